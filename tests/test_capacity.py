"""The highest load that meets the SLOs: found where theory has it, in few runs, never claimed unmeasured."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from loadgen import drive
from loadgen.capacity import Capacity, _conclude, find_capacity
from loadgen.capacity import load as read_back
from loadgen.client.control import Stop
from loadgen.client.unreachable import Unreachable
from loadgen.edges import Search, Spent, crossing, edges
from loadgen.looks import Looks, _is_steady
from loadgen.order import Order
from loadgen.plan import Phase
from loadgen.probe import (
    Measure,
    Probe,
    _cut_off,
    _is_behind,
    _served,
    _together,
    at_concurrency,
    at_rate,
    pace_rps,
)
from loadgen.records import Outcome
from loadgen.report.capacity_view import curve
from loadgen.run import EndedEarly, Run
from loadgen.run_folder import load
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.stats import summarize
from loadgen.stats.pooled import pooled
from loadgen.workload import draw
from tests.records import failed, header, ok, run_of

STEADY: dict[str, Any] = {"num_requests": 40, "warmup_requests": 3}
LAWS: list[dict[str, Any]] = [
    {"kind": "poisson", "rate": 4},
    {"kind": "constant", "rate": 4},
    {"kind": "gamma", "rate": 4, "burstiness": 0.3},
    {"kind": "weibull", "rate": 4, "shape": 0.6},
    {"kind": "burst", "size": 4, "every": "1s"},
    {"kind": "batches", "size": 3, "sizes": "geometric", "batch_rate": 2},
    {"kind": "on_off", "rate": 8, "off_rate": 1, "on_for": "2s", "off_for": "3s"},
    {"kind": "mmpp", "states": [{"rate": 1, "dwell": "2s"}, {"rate": 9, "dwell": "1s"}]},
    {"kind": "sine", "rate": 4, "amplitude": 0.8, "period": "5s"},
    {"kind": "steps", "points": [{"at": "0s", "rate": 2}, {"at": "2s", "rate": 6}], "every": "4s"},
    {"kind": "curve", "points": [{"at": "0s", "rate": 2}, {"at": "3s", "rate": 6}]},
    {"kind": "ramp", "from": 1, "to": 6, "over": "5s"},
    {
        "kind": "stages",
        "stages": [{"arrivals": {"kind": "poisson", "rate": 4}, "duration": "3s"}],
        "repeat": True,
    },
]


def queue(rate: float = 4, rows: int = 2000, **load: Any) -> Scenario:
    """A server of one slot that takes 1 ms a token: a queue as in the books."""
    return build(
        {
            "engine": {"max_sequences": 1, "cost": {"kind": "fixed", "step": "1ms"}},
            "load": {
                "arrivals": {"kind": "poisson", "rate": rate},
                "num_requests": rows,
                "warmup_requests": rows // 20,
                "prompt_tokens": 1,
                "output_tokens": 100,
            }
            | load,
        }
    )


# --- one plan, scaled in time -------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law["kind"])
def test_probes_differ_in_nothing_but_the_scale_of_time(law: dict[str, Any]) -> None:
    """The same rows, whose instants are those of the scenario over the factor, and the rate follows."""
    asked = build(
        {"load": STEADY | {"arrivals": law, "output_tokens": {"kind": "uniform", "min": 1, "max": 9}}}
    )
    pace = pace_rps(asked)
    one, three = draw(asked), draw(at_rate(asked, 3 * pace, pace))
    assert np.abs(one.due_ns - 3 * three.due_ns).max() <= 1000  # nanoseconds are whole
    assert one.output_tokens.tolist() == three.output_tokens.tolist()
    assert pace_rps(at_rate(asked, 3 * pace, pace)) == pytest.approx(3 * pace, rel=1e-6)


def test_times_of_the_load_are_scaled_too() -> None:
    """A measured part and a warm-up by time hold as many rows at any rate."""
    load = {"arrivals": {"kind": "poisson", "rate": 10}, "duration": "20s", "warmup": "4s"}
    asked = build({"load": load})
    twice = at_rate(asked, 20, pace_rps(asked))
    assert (twice.load.duration_s, twice.load.warmup_s) == (10, 2)
    assert len(draw(twice)) == len(draw(asked))


@pytest.mark.parametrize(
    ("load", "why"),
    [
        ({"arrivals": {"kind": "burst"}, "num_requests": 9}, "kind burst have no rate"),
        ({"arrivals": {"kind": "custom", "law": "m:f"}, "num_requests": 9}, "kind custom have no rate"),
        ({"requests": [{"prompt": 1, "output": 1}]}, "written out has no rate"),
    ],
)
def test_a_load_without_a_rate_is_refused(load: dict[str, Any], why: str) -> None:
    """In one line that says which key."""
    with pytest.raises(ScenarioError, match=why) as told:
        find_capacity(build({"load": load}), ["p90(ttft) <= 1s"])
    assert str(told.value).startswith("load.")


def test_only_a_closed_loop_has_a_concurrency() -> None:
    """An open one is searched over its rate; a closed one, over its users."""
    with pytest.raises(ScenarioError, match="only a closed loop"):
        at_concurrency(queue(), 4)
    closed = build({"load": {"arrivals": {"kind": "closed", "concurrency": 2}, "num_requests": 9}})
    assert draw(at_concurrency(closed, 7)).users == 7


@pytest.mark.parametrize(
    ("slos", "why"),
    [
        ([], "give some, with --slo"),
        (["output_tokens_per_s >= 10"], "bounds no load from above"),
        (["p99(tttft) <= 1s"], "did you mean ttft"),
    ],
)
def test_slos_that_bound_no_load_are_refused(slos: list[str], why: str) -> None:
    """Before anything is measured."""
    with pytest.raises(ScenarioError, match=why):
        find_capacity(queue(), slos)


# --- the search, on curves that are known -------------------------------------------------------------------


class Curve:
    """A server whose excess is `slope` x log(load / edge), a little off by seed; decided beyond `doubt`."""

    def __init__(self, edge: float, slope: float = 5.0, doubt: float = 0.2, noise: float = 0.0) -> None:
        self.edge, self.slope, self.doubt, self.noise = edge, slope, doubt, noise
        self.takes: list[float] = []

    def take(self, load: float, runs: int) -> Probe:
        self.takes.append(load)
        luck = np.random.default_rng(0).normal(0, self.noise, 100)[:runs].mean()
        excess = self.slope * log(load / self.edge) + luck
        verdict = "PASS" if excess < -self.doubt else "FAIL" if excess > self.doubt else "UNRESOLVED"
        return Probe(load=load, folders=["f"] * runs, verdict=verdict, excess=excess, served_rps=load)  # type: ignore[arg-type]


def searched(curve: Any, start: float = 1.0, **changes: Any) -> Search:
    asked = {"resolution": 0.02, "seeds": 1, "most_runs": 60, "whole": False, "doublings": 1} | changes
    search = Search(take=curve.take, start=start, told=lambda *_: None, **asked)
    search.run()
    return search


@given(
    edge=st.floats(0.02, 50),
    slope=st.floats(0.5, 50),
    doubt=st.floats(0, 0.3),
    noise=st.sampled_from([0, 0.05]),
)
def test_the_crossing_is_found_in_few_runs(edge: float, slope: float, doubt: float, noise: float) -> None:
    """From whatever load the search starts, between neighbours that lie 2 % apart, and both edges stand."""
    curve = Curve(edge, slope, min(doubt, slope / 3), noise)
    search = searched(curve)
    loads = sorted(p.load for p in search.probes.values())
    luck = float(np.random.default_rng(0).normal(0, noise, 100)[0])
    below = max(load for load in loads if search.probes[load].meets)
    above = min(load for load in loads if not search.probes[load].meets)
    assert below <= edge * exp(-luck / slope) * 1.0001 <= above * 1.0002
    assert above / below <= 1.0201
    verdicts = {p.verdict for p in search.probes.values()}
    assert {"PASS", "FAIL"} <= verdicts
    assert len(curve.takes) <= 6 + 20


def test_repeats_average_the_luck_of_one_seed() -> None:
    """Whatever the first seed says, the neighbours of the crossing were run by all."""
    curve = Curve(10, slope=3, noise=0.5)
    search = searched(curve, start=8, seeds=5)
    luck = np.random.default_rng(0).normal(0, 0.5, 100)[:5].mean()
    often = sorted((p for p in search.probes.values() if p.runs == 5), key=lambda p: p.load)
    below = max(p.load for p in often if p.meets)
    above = min(p.load for p in often if not p.meets)
    assert below <= 10 * exp(-luck / 3) <= above <= below * 1.0201


def test_users_are_whole() -> None:
    """Between neighbours that differ by one."""
    search = searched(Curve(23.5, doubt=0), start=4, whole=True)
    met = [p.load for p in search.probes.values() if p.meets]
    missed = [p.load for p in search.probes.values() if not p.meets]
    assert (max(met), min(missed)) == (23, 24)


def test_a_search_ends_where_everything_fails() -> None:
    """A thousandth of the load to start from is as low as it goes."""
    search = searched(Curve(1e-9), start=1.0)
    assert min(search.probes) == pytest.approx(2**-10, rel=1e-4)
    assert all(p.verdict == "FAIL" for p in search.probes.values())


def test_less_load_is_not_tried_where_requests_are_alone_on_the_server() -> None:
    """A limit below the time of one request: live, each halving of the rate would take twice as long."""
    found = find_capacity(queue(4, rows=200), ["p90(e2e) <= 50ms"], seeds=1)
    assert (found.answer, found.load) == ("FAIL", None)
    assert 0.5 <= found.probes[0].load < 4


def test_a_search_has_a_bound() -> None:
    """Of runs in all."""
    curve = Curve(3.3, noise=0.3)
    with pytest.raises(Spent):
        searched(curve, seeds=5, most_runs=9)
    assert len(curve.takes) == 9


class Blind(Curve):
    """A client that cannot follow above a load: nothing there can be trusted."""

    def take(self, load: float, runs: int) -> Probe:
        probe = super().take(load, runs)
        return replace(probe, verdict="INVALID", excess=None) if load > 6 else probe


def test_what_cannot_be_trusted_is_neither_pass_nor_fail() -> None:
    """It is tried once more, then the search stays below, and no edge is made of it."""
    curve = Blind(10)
    search = searched(curve, start=1)
    assert curve.takes.count(8) == 2
    assert not [p for p in search.probes.values() if p.verdict == "FAIL"]


# --- looks at a run that goes on ----------------------------------------------------------------------------


def probed(folder: Path, scenario: Scenario, slos: Sequence[str], **of_plan: Any) -> Run:
    asked = build(scenario.model_dump(mode="json", by_alias=True) | {"slos": [*slos]})
    plan = draw(asked)
    run = drive.simulate(Order(asked, plan, folder, "r"), looks=Looks(plan))
    drive.conclude(run, folder)
    return run


def test_a_hopeless_run_ends_at_the_first_look(tmp_path: Path) -> None:
    """Twice what the server can do: an eighth of the rows tell, and the run is whole as far as it went."""
    run = probed(tmp_path / "r", queue(20, rows=800), ["p90(e2e) <= 300ms"])
    assert run.header.ended_early is not None
    assert (run.header.ended_early.verdict, run.header.interrupted, run.header.complete) == (
        "FAIL",
        False,
        True,
    )
    summary = summarize(load(tmp_path / "r"))
    assert (summary.offered, summary.validity, summary.verdict) == (100, "VALID", "FAIL")
    assert [f.text for f in summary.findings if f.name == "ended_early"]


def test_a_clear_pass_ends_at_half(tmp_path: Path) -> None:
    """Not before, and judged by the rows up to there alone."""
    run = probed(tmp_path / "r", queue(1, rows=800), ["p90(e2e) <= 1s"])
    assert run.header.ended_early is not None
    assert run.header.ended_early.verdict == "PASS"
    assert summarize(run).offered == 400


def test_nothing_passes_early_while_requests_pile_up(tmp_path: Path) -> None:
    """Slowly, and still far within the limit."""
    run = probed(tmp_path / "r", queue(10.5, rows=800), ["p90(e2e) <= 1h"])
    assert run.header.ended_early is None


def test_a_near_thing_runs_to_its_end(tmp_path: Path) -> None:
    """An SLO that the server just meets takes all the rows there are."""
    run = probed(tmp_path / "r", queue(7, rows=800), ["p90(e2e) <= 390ms"])
    assert run.header.ended_early is None
    assert summarize(run).offered == 800


def test_rows_beyond_the_look_are_load_kept_up_meanwhile(tmp_path: Path) -> None:
    """Only the quick ones of them have ended: to count them would flatter."""
    run = probed(tmp_path / "r", queue(20, rows=800), ["p90(e2e) <= 300ms"])
    assert run.header.ended_early is not None
    later = run.records.due_s > run.header.ended_early.until_s
    assert (run.records.phase[later] == Phase.TAIL).all()
    assert run.header.rows_not_sent is not None
    assert run.header.rows_not_sent > 0


def test_looks_are_not_taken_where_rows_wait_for_answers() -> None:
    """Which rows come first is not known before."""
    closed = build({"load": {"arrivals": {"kind": "closed", "concurrency": 2}, "num_requests": 900}})
    looks = Looks(draw(closed))
    assert not [r for i in range(900) if (r := looks.after(ok(i, 0.0))) is not None]


def test_over_http_a_look_drains_the_run() -> None:
    """It is taken in a thread, and the run then ends as Ctrl-C would end it, but not as interrupted."""
    early = EndedEarly(until_s=1.0, verdict="FAIL", why="told")

    class Told:
        def after(self, record: object) -> Any:
            return self

        def tell(self, header: object) -> EndedEarly:
            return early

    async def told() -> tuple[Stop, Any]:
        stop, about = Stop(), header()
        looking = drive._Looking(Told(), about, stop)  # type: ignore[arg-type]
        looking.at(ok())
        await looking._task  # type: ignore[misc]
        await looking.over()
        return stop, about

    stop, about = asyncio.run(told())
    assert (stop.asked, stop.cutting, about.ended_early) == (True, False, early)


# --- several runs as one ------------------------------------------------------------------------------------


def test_runs_of_one_load_are_judged_as_if_one_came_after_the_other() -> None:
    """Rows add up, gaps stay with their rows, and windows abut."""
    one = run_of([ok(i, 1.0 + i, gaps_us=[i + 1]) for i in range(4)])
    two = run_of([ok(i, 2.0 + i, gaps_us=[10 * (i + 1), 5]) for i in range(3)])
    both = pooled([one, two])
    r = both.records
    assert len(r) == 7
    assert r.gaps_us.tolist() == [1, 2, 3, 4, 10, 5, 20, 5, 30, 5]
    assert np.diff(r.gap_start).tolist() == [1, 1, 1, 1, 2, 2, 2]
    assert (r.first_token_s - r.due_s) == pytest.approx(0.1)
    assert (np.diff(r.due_s) >= 0).all()


# --- theory -------------------------------------------------------------------------------------------------

BOUNDS = ["rejection_rate <= 1%", "error_rate <= 1%"]


def lindley_mean_s(scenario: Scenario, rate: float) -> float:
    """The mean sojourn of the measured rows at a rate, by W' = max(0, W + S - A), without any engine."""
    plan = draw(scenario)
    gaps_s = np.diff(plan.due_ns / 1e9, prepend=0) * pace_rps(scenario) / rate
    service_s, wait_s, waits_s = plan.output_tokens / 1e3, 0.0, []
    for gap_s, before_s in zip(gaps_s, [0.0, *service_s[:-1]], strict=True):
        wait_s = max(0.0, wait_s + before_s - gap_s)
        waits_s.append(wait_s)
    return float((waits_s + service_s)[plan.phase == Phase.MEASURED].mean())


def pollaczek_khinchine_ms(rho: float) -> float:
    """Mean sojourn where service is always 100 ms."""
    return 100 + rho * 100 / (2 * (1 - rho))


def test_the_load_found_is_that_at_which_the_queue_of_this_very_plan_is_at_the_limit() -> None:
    """Arrivals and lengths are known: so is, by Lindley's recursion, the mean at every rate."""
    asked = queue(4, rows=400, output_tokens={"kind": "truncated_exponential", "mean": 100, "cap": 900})
    found = find_capacity(asked, ["mean(e2e) <= 250ms", *BOUNDS], seeds=1)
    assert found.load is not None
    assert lindley_mean_s(asked, found.load * 0.99) < 0.25 < lindley_mean_s(asked, found.load * 1.01)


@pytest.mark.slow
def test_the_capacity_of_an_md1_queue_is_where_pollaczek_and_khinchine_have_it() -> None:
    """Fixed service: the mean sojourn at a utilisation of 0.7 is the limit; within 3 %."""
    limit_ms = pollaczek_khinchine_ms(0.7)
    found = find_capacity(queue(4, rows=20_000), [f"mean(e2e) <= {limit_ms}ms", *BOUNDS], seeds=1)
    assert found.answer == "BOUNDED"
    assert found.load == pytest.approx(7.0, rel=0.03)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 7.0 < found.high


@pytest.mark.slow
def test_the_capacity_of_an_mm1_queue_is_where_its_sojourn_has_it() -> None:
    """Exponential service of mean 100 ms: the sojourn's p90 is ln 10 / (mu - lambda); within 3 %."""
    lengths = {"kind": "truncated_exponential", "mean": 100, "cap": 100_000}
    found = find_capacity(queue(4, rows=20_000, output_tokens=lengths), ["p90(e2e) <= 700ms"], seeds=2)
    assert found.load == pytest.approx(10 - log(10) / 0.7, rel=0.03)


def test_what_lies_above_is_said() -> None:
    """A full queue rejects."""
    asked = queue(8, rows=200)
    engine = asked.engine.model_copy(update={"max_queue": 4})
    asked = asked.model_copy(update={"engine": engine})
    found = find_capacity(asked, ["rejection_rate <= 10%"], seeds=1, resolution=0.1)
    assert found.above is not None
    assert "rejected" in found.above
    assert found.limiting == "rejection_rate <= 10%"


def test_a_closed_loop_is_searched_over_its_users() -> None:
    """One slot, 100 ms each, nobody thinks: k users wait k x 100 ms, so three keep within 350 ms."""
    closed = queue(arrivals={"kind": "closed", "concurrency": 1}, rows=200)
    found = find_capacity(closed, ["p90(e2e) <= 350ms"], seeds=1)
    assert (found.over, found.unit, found.load, found.low, found.high) == ("concurrency", "users", 3, 3, 4)


# --- a folder that is taken up again ------------------------------------------------------------------------

SLO = ["p90(e2e) <= 300ms"]


def quick(out: Path, **changes: Any) -> Capacity:
    asked = {"seeds": 1, "resolution": 0.2, "virtual": True} | changes
    return find_capacity(queue(4, rows=120), SLO, out=out, **asked)


def test_a_finished_search_is_read_back(tmp_path: Path) -> None:
    """Nothing is measured again, and the answer is the same."""

    def never(*_: object) -> Run:
        raise AssertionError("measured again")

    first = quick(tmp_path / "c")
    again = quick(tmp_path / "c", measure=never)
    assert (again.load, again.low, again.high) == (first.load, first.low, first.high)
    assert json.loads((tmp_path / "c" / "capacity.json").read_bytes())["answer"] == first.answer


def test_a_probe_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    """And the half is kept aside."""
    first = quick(tmp_path / "c")
    cut = next((tmp_path / "c").glob("002-*"))
    (cut / "run.json").write_bytes(
        (cut / "run.json").read_bytes().replace(b'"complete": true', b'"complete": false')
    )
    assert quick(tmp_path / "c").load == first.load
    assert len([*(tmp_path / "c").glob("unused-*")]) == 1


def test_a_folder_of_another_search_is_refused(tmp_path: Path) -> None:
    """Its probes would be taken for ours."""
    quick(tmp_path / "c")
    with pytest.raises(ScenarioError, match="holds another search"):
        find_capacity(queue(4, rows=300), SLO, out=tmp_path / "c", seeds=1)


def test_a_search_over_http_takes_no_simulated_probe_for_its_own(tmp_path: Path) -> None:
    """Nor the other way: figures of a simulation would stand as measured."""
    quick(tmp_path / "c")
    with pytest.raises(ScenarioError, match=r"001-rate=4-seed0 is a probe .* or of other flags: choose"):
        quick(tmp_path / "c", measure=lambda *_: None, virtual=False)


def test_an_interrupt_ends_the_search_with_what_is_known(tmp_path: Path) -> None:
    """What was being measured then is not used."""
    left = iter([False, False, True])

    def measure(order: Order, looks: Looks | None) -> Run:
        stop = next(left)
        return drive.simulate(order, lambda: stop)

    found = quick(tmp_path / "c", measure=measure)
    assert found.interrupted
    assert len(found.probes) == 2
    assert not quick(tmp_path / "c").interrupted


class Killed(BaseException):
    """Nothing of ours runs after it."""


def killed_in(number: int) -> Measure:
    """The search is killed in that run."""
    left = iter(range(1, number))

    def measure(order: Order, looks: Looks | None) -> Run:
        if next(left, None) is None:
            raise Killed
        return drive.simulate(order, looks=looks)

    return measure


@pytest.mark.parametrize(("number", "probes"), [(1, 0), (4, 3)])
def test_a_search_that_was_killed_is_no_search_that_ended(tmp_path: Path, number: int, probes: int) -> None:
    """It asks for no longer load, which the rest of it may not need, and going on ends it."""
    with pytest.raises(Killed):
        quick(tmp_path / "c", measure=killed_in(number), resolution=0.02)
    cut = read_back(tmp_path / "c")
    assert (cut.ended, len(cut.probes), cut.answer) == (False, probes, "UNRESOLVED")
    assert cut.reason
    assert "times as long" not in cut.reason
    whole = quick(tmp_path / "c", resolution=0.02)
    assert whole.ended
    assert "times as long" in whole.reason
    assert read_back(tmp_path / "c").reason == whole.reason


def test_the_lowest_load_of_a_search_that_was_killed_may_not_be_its_lowest(tmp_path: Path) -> None:
    """A FAIL at the first of its loads is none of the search."""
    with pytest.raises(Killed):
        find_capacity(queue(40, rows=120), SLO, out=tmp_path / "c", measure=killed_in(2))
    cut = read_back(tmp_path / "c")
    assert [probe.verdict for probe in cut.probes] == ["FAIL"]
    assert cut.answer == "UNRESOLVED"


def test_a_search_kept_by_an_older_version_ended(tmp_path: Path) -> None:
    """It does not say so."""
    quick(tmp_path / "c")
    path = tmp_path / "c" / "capacity.json"
    kept = json.loads(path.read_bytes())
    del kept["ended"]
    path.write_text(json.dumps(kept))
    assert read_back(tmp_path / "c").ended


# --- what cannot be known -----------------------------------------------------------------------------------


def unasked(*_: object) -> Run:
    raise AssertionError("something was sent")


@pytest.mark.parametrize(
    ("slo", "why"),
    [
        ("error_rate <= 0.1%", "156 requests cannot show it: it takes 2,995"),
        ("p99(ttft) <= 1s", "156 requests cannot show it: it takes 299"),
        ("rejection_rate <= 0%", "no number of requests can show it"),
        ("mean(e2e) <= 1s", "can PASS only with SLOs of rejection_rate and error_rate"),
    ],
)
def test_nothing_is_sent_for_an_slo_that_all_seeds_together_cannot_show(slo: str, why: str) -> None:
    """It would be UNRESOLVED at any load, however high."""
    found = find_capacity(queue(rows=52, warmup_requests=0), [slo], measure=unasked)
    assert (found.answer, found.probes) == ("UNRESOLVED", [])
    assert why in found.reason
    assert "nothing was sent" in found.reason


class Deaf(Curve):
    """A server that never misses, and answers no more than so many a second."""

    def take(self, load: float, runs: int) -> Probe:
        probe = super().take(load, runs)
        return replace(probe, verdict="UNRESOLVED", excess=-1.0, served_rps=min(load, self.edge))


@pytest.mark.parametrize(("doublings", "most"), [(1, 32), (5, 512)])
def test_load_is_not_driven_up_past_what_brings_no_more_answers(doublings: int, most: float) -> None:
    """At most twice the first load that was not followed; of users, who only wait longer, five doublings."""
    curve = Deaf(12)
    searched(curve, doublings=doublings)
    assert 12 < max(curve.takes) <= most


def test_a_search_without_a_miss_says_what_was_answered() -> None:
    """Requests that wait for ever are no errors: only a limit of a latency would bound the load."""
    found = find_capacity(queue(8, rows=200), ["error_rate <= 2%"], seeds=1)
    assert (found.answer, found.load, found.high) == ("UNRESOLVED", None, None)
    assert "no more than before: limit a latency too" in found.reason
    assert found.probes[-1].load <= 32


class Pitted(Curve):
    """Somewhere below the crossing nothing can be measured."""

    def take(self, load: float, runs: int) -> Probe:
        probe = super().take(load, runs)
        return replace(probe, verdict="INVALID", excess=None) if 9 < load < 11 else probe


def test_what_cannot_be_measured_is_no_miss() -> None:
    """The crossing is sought between what met the SLOs and what did not, on whatever side it lies."""
    search = searched(Pitted(10, doubt=0.01), start=4)
    low, high = crossing(search.probes.values())
    assert low is not None
    assert high is not None
    assert low.load <= 9
    assert high.load >= 11


def test_a_fail_counts_however_few_runs_it_is_of() -> None:
    """And only what passes below every fail is an edge."""
    runs = [
        (8.0, "PASS", 3),
        (10.0, "UNRESOLVED", 3),
        (11.0, "FAIL", 1),
        (12.0, "PASS", 3),
        (13.0, "FAIL", 3),
    ]
    probes = [Probe(load=at, verdict=v, folders=["f"] * n, excess=0.0) for at, v, n in runs]  # type: ignore[arg-type]
    assert edges(probes) == (8.0, 11.0)


def test_wide_edges_are_no_answer() -> None:
    """A hundred requests leave most loads undecided: how many would not, is said."""
    found = find_capacity(queue(4, rows=120), SLO, seeds=1)
    assert found.low is not None
    assert found.high is not None
    assert found.high > 1.13 * found.low
    assert found.answer == "UNRESOLVED"
    times = re.search(r"make the load at least (\d+) times as long", found.reason)
    assert times is not None
    assert 5 < int(times[1]) < 100  # by hand: about 5,000 tell 87 of 100 from 90


def test_served_is_of_the_middle_of_the_ends() -> None:
    """Eleven answers a second apart, whatever the window: one a second, four tokens each."""
    run = run_of([ok(i, float(i)) for i in range(11)])
    assert _served(run) == pytest.approx((1.0, 4.0))
    late = run_of([ok(i, i / 10, ttft_s=1.0 + 0.9 * i) for i in range(11)])
    assert _served(late) == pytest.approx((1.0, 4.0))
    assert _is_behind(late, summarize(late))
    assert not _is_behind(run, summarize(run))


def away(folder: Path, first: int, last: int) -> Run:
    """The run in `folder`, had those rows met no server."""
    path = folder / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    gone = [line.replace(b'"outcome":"ok"', b'"outcome":"connect_error"') for line in lines[first:last]]
    path.write_bytes(b"".join([*lines[:first], *gone, *lines[last:]]))
    return load(folder)


def leaving(times: int) -> Measure:
    """Its server is away in the middle of so many runs, from the third on."""
    left = iter([False, False, *[True] * times, *[False] * 50])

    def measure(order: Order, looks: Looks | None) -> Run:
        run = drive.simulate(order, looks=looks)
        return away(order.folder, 50, 70) if next(left) else run

    return measure


def test_a_server_that_is_gone_ends_the_search(tmp_path: Path) -> None:
    """It fails no SLO: what is known stays, and the search goes on from there once the server is back."""
    with pytest.raises(Unreachable, match=r"twice, 20 requests in a row had no connection \(connect_error\)"):
        quick(tmp_path / "c", measure=leaving(2))
    kept = json.loads((tmp_path / "c" / "capacity.json").read_bytes())
    assert len(kept["probes"]) == 2
    assert "see whether it still runs" in kept["reason"]
    assert quick(tmp_path / "c").load == quick(tmp_path / "d").load
    assert len([*(tmp_path / "c").glob("unused-*")]) == 2


def test_a_server_that_was_away_for_a_while_is_measured_again(tmp_path: Path) -> None:
    """A restart in the midst of a probe is no miss of its load, and leaves no trace in the answer."""
    found = quick(tmp_path / "c", measure=leaving(1))
    assert (found.load, found.high) == ((undisturbed := quick(tmp_path / "d")).load, undisturbed.high)
    assert len([*(tmp_path / "c").glob("unused-*")]) == 1


def test_a_kept_probe_whose_server_was_away_is_made_again(tmp_path: Path) -> None:
    """As one that cannot be trusted is."""
    first = quick(tmp_path / "c")
    away(next((tmp_path / "c").glob("002-*")), 50, 70)
    assert quick(tmp_path / "c").load == first.load
    assert len([*(tmp_path / "c").glob("unused-*-002-*")]) == 1


def test_requests_that_fail_here_and_there_are_an_answer() -> None:
    """Every other one, under load: but ten in a row, in the order in which they were due, are none."""
    other = [failed(i, i / 10, Outcome.BROKEN) if i % 2 else ok(i, i / 10) for i in range(100)]
    assert _cut_off(run_of(other)) is None
    for many, told in ((9, False), (10, True)):
        rows = [
            failed(i, i / 10, Outcome.BROKEN) if 40 <= i < 40 + many else ok(i, i / 10) for i in range(99)
        ]
        assert (_cut_off(run_of(rows[::-1])) is not None) == told
    refused = [failed(i, i / 10, Outcome.HTTP_ERROR) for i in range(100)]
    assert _cut_off(run_of(refused)) is None


def test_failures_that_miss_a_latency_alone_are_named(tmp_path: Path) -> None:
    """A fifth of the requests fail: no speed of the others would meet a p90; and it is said what happens."""

    def measure(order: Order, looks: Looks | None) -> Run:
        run = drive.simulate(order)
        if "rate=4-" in order.folder.name:
            return run
        path = order.folder / "records.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        lines[::5] = [line.replace(b'"outcome":"ok"', b'"outcome":"http_error"') for line in lines[::5]]
        path.write_bytes(b"".join(lines))
        return load(order.folder)

    found = quick(tmp_path / "c", measure=measure)
    assert found.limiting == "requests fail"
    assert found.above is not None
    assert "20.0% fail" in found.above
    assert [row[-1] for row in curve(found).rows][1:] == ["20.0 %"] * (len(found.probes) - 1)


def test_runs_of_which_one_cannot_tell_whether_requests_pile_up_do_not_tell_it_together() -> None:
    """Nor does what is not known become a no."""
    runs = [run_of([ok(i, i / 10) for i in range(20)])] * 2
    known, unknown = (replace(summarize(runs[0]), overloaded=said) for said in (False, None))
    assert _together([known, unknown], with_users=False).overloaded is None
    assert _together([known, known], with_users=False).overloaded is False
    assert _together([unknown, replace(known, overloaded=True)], with_users=False).overloaded is True


def test_an_undecided_load_at_the_crossing_itself_says_what_it_lacks() -> None:
    """At a distance of nothing, no number of requests would do; of users the crossing is at a probe."""
    found = Capacity(name="n", over="concurrency", unit="users", slos=[], resolution=0.02)
    told: dict[str, Any] = {"folders": ["f"], "requests": 9, "n_to_decide": 90, "reason": "too few"}
    _conclude(
        found,
        [
            Probe(load=1, verdict="PASS", excess=-1.0, folders=["f"]),
            Probe(load=4, verdict="UNRESOLVED", excess=-0.1, **told),
            Probe(load=9, verdict="FAIL", excess=1.0, folders=["f"]),
        ],
    )
    assert (found.load, found.answer) == (4, "UNRESOLVED")
    assert found.reason.endswith(": too few")


def test_a_pass_is_not_lacking_for_figures_where_nobody_can_tell_whether_the_server_keeps_up() -> None:
    """Sixty requests: the answer says that, and not how many the figures would take."""
    found = find_capacity(queue(4, rows=60), ["p50(e2e) <= 1h"], seeds=1)
    assert found.answer == "UNRESOLVED"
    assert "too few requests to tell whether the server keeps up" in found.reason


def test_what_could_not_be_trusted_is_measured_again(tmp_path: Path) -> None:
    """The next time: maybe the machine was busy."""
    first = quick(tmp_path / "c")
    path = next((tmp_path / "c").glob("002-*")) / "run.json"
    header = json.loads(path.read_bytes())
    path.write_text(json.dumps(header | {"rows_due": header["rows_due"] + 500}))
    assert quick(tmp_path / "c").load == first.load
    assert len([*(tmp_path / "c").glob("unused-*-002-*")]) == 1


def test_the_price_of_a_million_tokens_is_that_of_the_server_at_the_capacity() -> None:
    """A dollar an hour over the tokens of an hour; without a target too, and for each GPU of the engine."""
    cost = {"kind": "roofline", "gpu": "a100-80gb", "gpus": 2, "model": "llama-3-8b"}
    asked = build(queue(4, rows=400).model_dump(mode="json", by_alias=True) | {"engine": {"cost": cost}})
    found = find_capacity(asked, ["p90(ttft) <= 100ms"], seeds=1, usd_per_hour=7.2, resolution=0.5)
    below = max((p for p in found.probes if p.meets and p.load <= (found.load or 0)), key=lambda p: p.load)
    assert below.output_tokens_per_s is not None
    assert found.usd_per_million_output_tokens == pytest.approx(2000 / below.output_tokens_per_s)
    assert found.load is not None
    assert found.per_accelerator["load"] == pytest.approx(found.load / 2)
    assert found.per_accelerator["output_tokens_per_s"] == pytest.approx(below.output_tokens_per_s / 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"over": "bogus"},
        {"resolution": 0},
        {"resolution": float("nan")},
        {"seeds": 0},
        {"most_runs": 0},
        {"usd_per_hour": float("nan")},
        {"usd_per_hour": 0.0},
        {"usd_per_hour": "3"},
        {"resolution": "2%"},
        {"seeds": 1.5},
        {"seeds": True},
    ],
)
def test_what_no_search_can_be_made_of_is_refused(wrong: dict[str, Any]) -> None:
    """With its name."""
    with pytest.raises(ScenarioError, match=f"{next(iter(wrong))}: "):
        find_capacity(queue(), SLO, **wrong)


def test_the_scenarios_repeats_are_the_seeds_at_a_load() -> None:
    """Unless another number is asked for."""
    asked = queue(rows=20).model_copy(update={"repeats": 2})
    slos = ["p99(ttft) <= 1s"]  # which so few cannot show, so that nothing is measured
    assert find_capacity(asked, slos).seeds == 2
    assert find_capacity(asked, slos, seeds=4).seeds == 4
    assert find_capacity(queue(rows=20), slos).seeds == 3


def test_other_slos_may_be_asked_of_the_same_folder_and_no_other_load(tmp_path: Path) -> None:
    """The name alone does not make it the same search."""
    quick(tmp_path / "c")
    other = find_capacity(queue(4, rows=120), ["p80(e2e) <= 1h"], out=tmp_path / "c", seeds=1, most_runs=2)
    assert other.slos == ["p80(e2e) <= 1h"]
    engine = queue().engine.model_copy(update={"max_sequences": 2})
    asked = queue(4, rows=120).model_copy(update={"engine": engine})
    with pytest.raises(ScenarioError, match="in engine"):
        find_capacity(asked, SLO, out=tmp_path / "c", seeds=1)


def test_what_piles_up_above_is_said() -> None:
    """Twice what one slot can do, and nothing is rejected."""
    found = find_capacity(queue(8, rows=500), SLO, seeds=1, resolution=0.2)
    assert found.above is not None
    assert "pile up" in found.above


def test_no_pass_is_told_early_of_requests_that_take_longer_and_longer() -> None:
    """Though the server keeps up so far."""
    flat = run_of([ok(i, i / 10) for i in range(400)])
    rising = run_of([ok(i, i / 10, ttft_s=0.1 + i / 4000) for i in range(400)])
    kept_up = replace(summarize(flat), overloaded=False)
    assert _is_steady(flat, kept_up)
    assert not _is_steady(rising, kept_up)
