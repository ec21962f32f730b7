"""The certificate: arrivals sent as planned and drawn by their law pass; broken as others break them, not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from loadgen.records import Outcome
from loadgen.run import Run
from loadgen.scenario import build
from loadgen.stats import Certificate, uniform
from loadgen.stats.certificate import certify, declared
from loadgen.workload import draw
from tests.records import failed, ok, run_of

POISSON = {"kind": "poisson", "rate": "20/s"}
Floats = NDArray[np.float64]


def arrivals(law: dict[str, Any] | None, due_s: Floats, lag_s: Floats | float = 0.0, **load: Any) -> Run:
    started = np.broadcast_to(np.round(due_s + lag_s, 6), due_s.shape).tolist()
    rows = [
        ok(i, due, started_s=sent, gaps_us=[])
        for i, (due, sent) in enumerate(zip(due_s.tolist(), started, strict=True))
    ]
    return run_of(rows, scenario={"load": {"arrivals": law} | load})


def drawn(law: dict[str, Any], seed: int, n: int = 400) -> Floats:
    """By NumPy's own generators, not by the project's."""
    rng = np.random.default_rng(seed)
    shape = law.get("burstiness", 1.0)
    gaps = np.full(n, 1 / 20) if law["kind"] == "constant" else rng.gamma(shape, 1 / (20 * shape), n)
    return np.round(np.cumsum(gaps), 6)


def planned(arrivals: dict[str, Any], seed: int, n: int = 400, **load: Any) -> Run:
    """As the project draws it, and sent to the microsecond."""
    asked = {"arrivals": arrivals, "num_requests": n, "tail": False} | load
    scenario = build({"seed": seed, "load": asked})
    plan = draw(scenario)
    rows = [ok(i, due, gaps_us=[]) for i, due in enumerate(np.round(plan.due_ns / 1e9, 6).tolist())]
    window = {"window_start_s": plan.window.start_ns / 1e9, "window_end_s": plan.window.end_ns / 1e9}
    return run_of(rows, scenario=scenario.as_asked(), window_by=plan.window.by, **window)


def odd(certificate: Certificate) -> list[str]:
    return [test for test, p in certificate.p_values.items() if p < 1e-4]


# --- the plan -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [POISSON, None], ids=["poisson", "written out"])
def test_every_fiftieth_send_delayed_by_thirty_milliseconds_turns_it(law: dict[str, Any] | None) -> None:
    """2 % of the rows are not within 2 ms: departs, whatever the law; without the delay it stands."""
    due, lag = drawn(POISSON, 1), np.where(np.arange(400) % 50 == 49, 0.03, 0.0)
    late, prompt = certify(arrivals(law, due, lag)), certify(arrivals(law, due))
    assert (late.verdict, late.on_time, late.lag_max_s) == ("departs", pytest.approx(0.98), 0.03)
    assert "98.0% of 400 requests started within 2ms of due, fewer than 99.0%" in late.text
    assert (prompt.verdict, prompt.on_time) == ("as asked" if law else "not tested", 1.0)


@pytest.mark.parametrize(("late", "verdict"), [(1, "as asked"), (2, "departs")])
def test_in_a_short_run_one_hiccup_is_no_departure(late: int, verdict: str) -> None:
    """Of a hundred rows one may be late, two may not."""
    lag = np.where(np.arange(100) < late, 0.03, 0.0)
    assert certify(arrivals(POISSON, drawn(POISSON, 2, 100), lag)).verdict == verdict


def test_a_hundredth_of_the_mean_gap_is_no_lateness() -> None:
    """At one request in 10 s, 90 ms are within the plan and 110 ms are not."""
    due = np.arange(60) * 10.0
    slow = {"kind": "constant", "rate": 0.1}
    verdicts = [certify(arrivals(slow, due, lag)).verdict for lag in (0.09, 0.11)]
    assert verdicts == ["as asked", "departs"]


def test_rows_due_together_may_start_one_after_another() -> None:
    """A hundred at once, each 60 us after the last, are on time; 0.2 ms after the last they are not."""
    due = np.zeros(100)
    at_once = [certify(arrivals({"kind": "burst"}, due, np.arange(100) * step)) for step in (6e-5, 2e-4)]
    assert [c.verdict for c in at_once] == ["not tested", "departs"]


# --- the law ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "law",
    [
        POISSON,
        {"kind": "gamma", "rate": "20/s", "burstiness": 0.1},
        {"kind": "gamma", "rate": "20/s", "burstiness": 5.0},
        {"kind": "constant", "rate": "20/s"},
    ],
    ids=["poisson", "bursty", "smooth", "constant"],
)
def test_arrivals_drawn_by_their_law_and_sent_a_little_late_pass(law: dict[str, Any]) -> None:
    """Ten seeds: a lag of some hundred microseconds is no departure, even where gaps are as short."""
    for seed in range(10):
        lag_s = np.random.default_rng(seed + 100).exponential(1.5e-4, 400)
        certificate = certify(arrivals(law, drawn(law, 1000 + seed), lag_s))
        assert certificate.verdict == "as asked", certificate.text


def test_clean_seeds_turn_as_rarely_as_their_p_says() -> None:
    """200 seeds: p is at most 1 % in about 1 % of them or fewer, and none is below 1e-4."""
    p = np.array([certify(arrivals(POISSON, drawn(POISSON, seed))).p for seed in range(200)], float)
    assert (p >= 1e-4).all()
    assert (p <= 0.01).sum() <= stats.binom.ppf(0.9999, 200, 0.01)
    assert (p <= 0.2).sum() <= stats.binom.ppf(0.9999, 200, 0.2)


@pytest.mark.parametrize(
    "law",
    [
        {"kind": "weibull", "rate": 20, "shape": 0.6},
        {"kind": "on_off", "rate": 40, "on_for": "2s", "off_for": "2s"},
        {"kind": "mmpp", "states": [{"rate": 5, "dwell": "3s"}, {"rate": 40, "dwell": "1s"}]},
        {"kind": "steps", "points": [{"at": "0s", "rate": 5}, {"at": "5s", "rate": 40}]},
        {"kind": "ramp", "from": 1, "to": 40, "over": "20s"},
        {"kind": "sine", "rate": 20, "amplitude": 0.9, "period": "7s"},
        {"kind": "batches", "size": 3, "sizes": "geometric", "batch_rate": 10},
    ],
    ids=lambda law: law["kind"],
)
def test_every_process_passes_as_drawn_and_not_at_half_its_rate(law: dict[str, Any]) -> None:
    """The same instants at half the rate depart from the law."""
    run = planned(law, 5, 1200)
    assert certify(run).verdict == "as asked", certify(run).text
    due = run.records.due_s * 2
    asked = {"seed": 5, "load": run.asked("load")}
    slow = run_of([ok(i, d, gaps_us=[]) for i, d in enumerate(np.round(due, 6).tolist())], scenario=asked)
    assert certify(slow).verdict == "departs"


def test_a_batch_arrives_with_its_first_row() -> None:
    """The rest may follow up to 0.4 ms later, in any order: no p-value moves."""
    law = {"kind": "batches", "size": 3, "batch_rate": 5}
    rng = np.random.default_rng(8)
    due = np.repeat(np.round(np.cumsum(0.001 + rng.exponential(0.2, 200)), 6), 3)
    lag = np.round(rng.random((200, 3)) * 4e-4, 6)
    lag[np.arange(200), rng.integers(0, 3, 200)] = 0.0
    together, apart = (certify(arrivals(law, due, by)).p_values for by in (0.0, lag.ravel()))
    assert together == apart != {}


def test_equal_gaps_are_not_poisson() -> None:
    """A clockwork declared as Poisson is found out by its gaps and its too even counts."""
    found = odd(certify(arrivals(POISSON, np.arange(400) / 20)))
    assert {"Kolmogorov-Smirnov", "dispersion of counts per 5"} <= {*found}


def test_generators_that_share_a_seed_are_not_poisson() -> None:
    """Gaps repeated eight times over keep their distribution; the counts are eight times too uneven."""
    gaps = np.repeat(np.diff(drawn(POISSON, 1, 101)), 8)
    found = odd(certify(arrivals(POISSON, np.round(np.cumsum(gaps), 6))))
    assert {"correlation of successive gaps", "dispersion of counts per 20"} <= {*found}


def test_a_schedule_that_slips_is_not_at_its_rate() -> None:
    """Each wait half too long: 13/s is not 20/s."""
    assert "Kolmogorov-Smirnov" in odd(certify(arrivals(POISSON, drawn(POISSON, 2) * 1.5)))


def test_a_rate_that_is_a_tenth_off_is_seen_by_its_mean() -> None:
    """Of 3,000 gaps the mean has a standard error of 1.8 %; their shape hides a tenth far longer."""
    assert "the mean rate" in odd(certify(arrivals(POISSON, drawn(POISSON, 3, 3000) / 1.1)))


def test_exponential_gaps_are_not_constant() -> None:
    """Random gaps declared as constant are found out, by a binomial count of the strays."""
    started = drawn(POISSON, 3)
    p = certify(arrivals({"kind": "constant", "rate": 20}, started)).p_values
    gaps = np.diff(started) * 20
    strays = int((np.abs(gaps - 1) > 0.5).sum())
    exact = stats.binomtest(strays, len(gaps), 0.01, "greater").pvalue
    assert p == {"gaps off by over half of one": pytest.approx(exact)}


def test_p_values_are_those_of_the_textbook_tests() -> None:
    """Each against SciPy's own test of the same hypothesis on the same numbers."""
    u = np.random.default_rng(4).random(400)
    p = uniform.p_values(u)
    assert p["Kolmogorov-Smirnov"] == pytest.approx(stats.kstest(u, "uniform").pvalue, rel=0.06)
    scores = stats.norm.ppf(u)
    r = stats.pearsonr(scores[1:], scores[:-1])
    assert p["correlation of successive gaps"] == pytest.approx(r.pvalue, abs=0.02)
    at = np.cumsum(stats.expon.ppf(u))
    counts = np.histogram(at[:-1], 80, (0, at[-1]))[0]
    chi2, gamma = stats.chisquare(counts).pvalue, stats.gamma(len(u))
    assert p["the mean rate"] == pytest.approx(2 * min(gamma.cdf(at[-1]), gamma.sf(at[-1])))
    assert p["dispersion of counts per 5"] == pytest.approx(2 * min(chi2, 1 - chi2))
    assert p.keys() >= {"dispersion of counts per 20"}


# --- what cannot be tested ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "n", "why"),
    [
        (POISSON, 49, "fewer than 50 arrivals"),
        ({"kind": "burst", "size": 10, "every": "1s"}, 60, "burst arrivals have no law"),
        ({"kind": "trace"}, 60, "trace arrivals have no law"),
        ({"kind": "custom", "law": "mine:gaps"}, 60, "custom arrivals have no law"),
        (None, 60, "rows written out have no law"),
    ],
)
def test_what_has_no_law_is_not_tested_and_says_why(law: dict[str, Any] | None, n: int, why: str) -> None:
    """The plan is still held against."""
    certificate = certify(arrivals(law, np.arange(n) / 20))
    assert (certificate.verdict, certificate.p, certificate.on_time) == ("not tested", None, 1.0)
    assert certificate.text.startswith(f"not tested: {why}")


def test_a_closed_loop_has_no_arrivals_of_its_own() -> None:
    """They follow the answers, and a late client is told of by the send lag alone."""
    closed = {"kind": "closed", "concurrency": 4}
    for lag_s, share in ((0.0, "100.0%"), (0.01, "0.0%")):
        certificate = certify(arrivals(closed, np.arange(60) / 20, lag_s))
        assert certificate.text.startswith(f"closed: arrivals follow the answers; {share} of 60 requests")


def test_where_a_bound_held_rows_back_the_law_is_not_asked_for() -> None:
    """max_in_flight thins the arrivals, as the user wished: that they are Poisson no more is no news."""
    rows = [ok(i, i / 10) if i % 2 else failed(i, i / 10, Outcome.UNSENT) for i in range(200)]
    run = run_of(rows, scenario={"load": {"max_in_flight": 1, "arrivals": POISSON}})
    assert certify(run).verdict == "not tested"


def test_gaps_as_short_as_the_clients_lag_tell_nothing() -> None:
    """20,000/s through a client that is up to 0.9 ms late."""
    fast = {"kind": "poisson", "rate": 20_000}
    rng = np.random.default_rng(6)
    due = np.round(np.cumsum(rng.exponential(5e-5, 400)), 6)
    certificate = certify(arrivals(fast, due, rng.random(400) * 9e-4))
    assert certificate.verdict == "not tested"
    assert "the client's own lag" in certificate.text


def test_rescaled_arrivals_are_said_to_be_no_longer_pure() -> None:
    """Exactly 400 in 30 s, asked for at 20/s, pass at 400/30 a second."""
    run = planned(POISSON, 3, duration="30s", rescale=True)
    certificate = certify(run)
    assert certificate.verdict == "as asked"
    assert certificate.text.endswith("no longer the pure process but the Poisson process given its count")


def test_only_first_turns_are_arrivals() -> None:
    """Later turns follow the answers: with them the gaps are no longer those of the law."""
    due = drawn(POISSON, 7)
    rows = [ok(i, d, gaps_us=[], turn=1) for i, d in enumerate(due.tolist())]
    rows += [ok(400 + i, d + 0.001, gaps_us=[], turn=2) for i, d in enumerate(due.tolist())]
    assert certify(run_of(rows, scenario={"load": {"arrivals": POISSON}})).verdict == "as asked"


def test_rows_written_out_declare_no_law() -> None:
    """There is nothing to hold them against."""
    assert declared(run_of([], scenario={})) is None
    assert certify(run_of([])).on_time is None
