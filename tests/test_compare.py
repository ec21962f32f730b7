"""Several runs of one plan side by side: what is compared, to what, and who may be called the winner."""

from __future__ import annotations

from itertools import combinations
from math import exp, hypot, log, sqrt
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.compare import Comparison, Row, compare
from loadgen.drive import simulate
from loadgen.order import Order
from loadgen.scenario import ScenarioError, build
from loadgen.stats import summarize
from loadgen.stats.summary import Finding, Goodput, Interval, SloResult, Summary, Verdict
from loadgen.workload import draw
from tests.report.summaries import distribution, metrics, nothing, summary

DIGEST = "5f" * 32


def compared(**variants: Summary) -> Comparison:
    return compare(variants, dict.fromkeys(variants, DIGEST))


def away(*factors: float, noise: float = 0.03) -> float:
    """How far together: as the noise that is assumed of two runs, two standard deviations of it each, and
    these factors.
    """
    return exp(hypot(2 * sqrt(2) * noise, *map(log, factors)))


def good(share: float, low: float, high: float, **changes: Any) -> Summary:
    sure = {"attainment": Interval(low=low, high=high, decided=True)}
    met = Goodput(limits_s={"ttft": 0.5, "tpot": 0.05}, good=0, attainment=share, rps=None)
    return summary(goodput=met, intervals=sure, **changes)


def rejecting(share: float, low: float, high: float) -> dict[str, Any]:
    rate = Interval(low=low, high=high, decided=True)
    return {"rejection_rate": share, "intervals": {"rejection_rate": rate}}


def burst(tokens_per_s: float | None, **changes: Any) -> Summary:
    return summary(window_by="burst", makespan_output_tokens_per_s=tokens_per_s, **changes)


def with_e2e(adjusted_p99: float | None, **changes: Any) -> Summary:
    return summary(metrics=metrics(e2e_s=distribution(1.0, adjusted={"p99": adjusted_p99})), **changes)


def row(c: Comparison, key: str) -> Row:
    return next(r for r in c.rows if r.key == key)


def test_runs_of_different_plans_are_refused_by_name() -> None:
    """A difference between two plans would look like a difference between two servers."""
    with pytest.raises(ScenarioError, match="fast ran another plan"):
        compare({"slow": summary(), "fast": summary()}, {"slow": "a" * 64, "fast": "b" * 64})


@pytest.mark.parametrize("variants", [{}, {"only": summary()}])
def test_fewer_than_two_variants_are_refused(variants: dict[str, Summary]) -> None:
    """There is nothing to compare."""
    with pytest.raises(ScenarioError, match="at least two"):
        compare(variants, dict.fromkeys(variants, DIGEST))


def test_the_ratio_is_the_value_over_the_first_variants() -> None:
    """1,500 against 600 tokens/s is 2.5 x baseline, and the baseline is 1 x itself."""
    c = compared(static=burst(600.0), continuous=burst(1500.0))
    assert c.baseline == "static"
    assert row(c, "makespan_output_tokens_per_s").ratios == {"static": 1.0, "continuous": 2.5}


def test_a_ratio_to_zero_or_to_nothing_is_undefined() -> None:
    """No rejection at the baseline makes no rejection ratio; a missing value makes none either."""
    c = compared(
        a=summary(rejection_rate=0.0, completed_rps=None), b=summary(rejection_rate=0.25, completed_rps=4.0)
    )
    assert row(c, "rejection_rate").ratios == {"a": None, "b": None}
    assert row(c, "completed_rps").ratios == {"a": None, "b": None}
    assert row(c, "rejection_rate").values == {"a": 0.0, "b": 0.25}


def test_a_figure_that_no_variant_has_is_left_out() -> None:
    """A burst has no rate: no row of dashes for it."""
    c = compared(a=burst(600.0, completed_rps=None), b=burst(700.0, completed_rps=None))
    assert "completed_rps" not in [r.key for r in c.rows]


def test_itl_is_never_set_beside_chunk_gaps() -> None:
    """Where one variant has no ITL, both show chunk gaps."""
    with_itl, without = summary(), summary(metrics=metrics(itl_s=nothing()))
    assert {"itl_p50_s"} < {r.key for r in compared(a=with_itl, b=with_itl).rows}
    keys = {r.key for r in compared(a=with_itl, b=without).rows}
    assert "chunk_gap_p50_s" in keys
    assert not [key for key in keys if key.startswith("itl")]


def test_a_burst_is_won_by_makespan_throughput() -> None:
    """Highest tokens a second over the makespan, whatever the latencies."""
    c = compared(a=burst(600.0), b=burst(900.0, metrics=metrics(e2e_s=distribution(99.0))))
    assert (c.winner, c.decided_by) == ("b", "makespan_output_tokens_per_s")
    assert "burst" in c.rule


def test_goodput_limits_decide_where_they_are_given() -> None:
    """The larger share of offered requests within every limit wins, where the ratio's interval is without 1;
    of a share that is 0, where their own lie apart.
    """
    c = compared(a=good(0.8, 0.76, 0.84), b=good(0.7, 0.65, 0.75))
    assert (c.winner, c.decided_by) == ("a", "attainment")
    assert "with TTFT <= 500ms and TPOT <= 50ms" in c.rule
    assert compared(a=good(0.8, 0.70, 0.84), b=good(0.7, 0.65, 0.78)).winner is None
    assert compared(a=good(0.02, 0.01, 0.04), b=good(0.0, 0.0, 0.009)).winner == "a"


def test_shares_of_which_nothing_is_known_have_no_winner() -> None:
    """Twice as many good ones may be two of ten instead of one."""
    unknown = [msgspec.structs.replace(good(share, 0, 1), intervals={}) for share in (0.1, 0.2)]
    assert compared(a=unknown[0], b=unknown[1]).winner is None


def test_different_goodput_limits_do_not_decide() -> None:
    """Shares that met different limits are no common measure."""

    def held_to(limit_s: float) -> Summary:
        return summary(goodput=Goodput(limits_s={"ttft_s": limit_s}, good=0, attainment=0.9, rps=None))

    assert compared(a=held_to(0.5), b=held_to(0.1)).decided_by == "e2e_p99_adjusted_s"


def test_a_variant_that_fails_requests_does_not_win_by_answering_the_rest_fast() -> None:
    """Its adjusted p99 is infinitely late, however fast its ok requests are; but a request or two more that
    failed may be chance.
    """
    patient, few = (
        with_e2e(9.0, **rejecting(0.0, 0.0, 0.012)),
        with_e2e(None, **rejecting(0.015, 0.005, 0.03)),
    )
    c = compared(patient=patient, rejecting=with_e2e(None, **rejecting(0.3, 0.25, 0.35)))
    assert c.winner == "patient"
    assert row(c, "e2e_p99_adjusted_s").values["rejecting"] is None
    assert compared(patient=patient, few=few).winner is None


def test_an_invalid_measurement_has_no_winner() -> None:
    """Nothing is concluded from a run that cannot be trusted, and its name is said."""
    c = compared(a=burst(600.0), b=burst(900.0, validity="INVALID"))
    assert c.winner is None
    assert "b is INVALID" in c.reason


def test_a_variant_that_cut_its_answers_short_wins_nothing() -> None:
    """Forced output lengths were not kept: one side had less to do."""
    short = Finding(name="output_tokens", effect="warning", text="outputs differ from the forced length")
    c = compared(a=burst(600.0), b=burst(900.0, findings=[short]))
    assert c.winner is None
    assert "b did not keep to the output lengths" in c.reason


def test_a_lead_that_noise_between_runs_can_make_wins_no_burst() -> None:
    """Two standard deviations of 10 % in each run, which may drift as a whole: 32.7 % together."""
    assert compared(a=burst(1000.0), b=burst(1326.0)).winner is None
    c = compared(a=burst(1000.0), b=burst(1328.0))
    assert c.winner == "b"
    assert "10 % of noise in each run" in c.rule
    assert any("Of the makespan, by 10 %" in note for note in c.notes)


def test_without_an_interval_only_what_is_over_twice_as_good_wins() -> None:
    """A p99 of few requests: half as late may be chance."""
    assert compared(a=with_e2e(100.0), b=with_e2e(51.0)).winner is None
    assert compared(a=with_e2e(100.0), b=with_e2e(49.0)).winner == "b"


def test_where_nobody_has_the_deciding_figure_nobody_wins() -> None:
    """All failed too often: the row is kept, since it says so."""
    c = compared(a=with_e2e(None), b=with_e2e(None))
    assert c.winner is None
    assert row(c, "e2e_p99_adjusted_s").n == {"a": 1000, "b": 1000}


@given(st.lists(st.floats(1.0, 1e6), min_size=2, max_size=5))
def test_the_named_winner_is_ahead_of_all_others_by_more_than_noise(rates: list[float]) -> None:
    """Whoever is named leads by over 32.7 %, and someone is named whenever one leads by so much."""
    c = compared(**{f"v{i}": burst(rate) for i, rate in enumerate(rates)})
    second, first = sorted(rates)[-2:]
    assert (c.winner is not None) == (first / second > away(noise=0.1))
    if c.winner is not None:
        assert rates[int(c.winner[1:])] == first


def test_a_simulated_figure_is_named_as_such_beside_measured_ones() -> None:
    """The mixture is said, with the names of the simulated variants."""
    c = compared(real=summary(), model=summary(source="virtual"))
    assert "SIMULATED figures beside measured ones: model." in c.notes
    assert c.variants["model"].source == "virtual"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"overloaded": True}, "Overloaded: b."),
        ({"partly_closed_loop": True}, "Partly closed loop: b."),
        ({"itl_assumed": True}, "usage: b."),
        ({"itl_valid": False}, "not to be used: b."),
    ],
)
def test_what_weakens_a_variant_is_noted(changes: dict[str, Any], word: str) -> None:
    """Each caution names the variants it holds for, and no other."""
    assert [note for note in compared(a=summary(), b=summary(**changes)).notes if word in note]


def test_a_comparison_is_strict_json_and_comes_back() -> None:
    """Undefined figures are null, and decoding gives the same value."""
    c = compared(a=with_e2e(None), b=burst(900.0))
    assert msgspec.json.decode(msgspec.json.encode(c), type=Comparison) == c


def test_each_side_says_how_its_slos_fared() -> None:
    """So many of each verdict; nothing where none was promised."""
    verdicts: tuple[Verdict, ...] = ("PASS", "FAIL", "PASS")
    promised = [
        SloResult(
            slo="p99(ttft) <= 1s", verdict=verdict, reason="", value=None, low=None, high=None, n=0,
            n_effective=None, n_to_decide=None,
        )
        for verdict in verdicts
    ]  # fmt: skip
    c = compared(a=summary(slos=promised), b=summary())
    assert (c.variants["a"].slos, c.variants["b"].slos) == ("PASS 2, FAIL 1", "")


# --- how sure ---------------------------------------------------------------------------------------


def sure(low: float | None, value: float, high: float | None, **changes: Any) -> Summary:
    """A run whose adjusted E2E p99, and plain mean of normalized latency, lie between these bounds."""
    told = Interval(low=low, high=high, decided=low is not None or high is not None)
    e2e = distribution(value / 4.5, intervals={"p99": told}, **changes)
    normalized = distribution(value / 1.25, intervals={"mean": told}, **changes)
    return summary(metrics=metrics(e2e_s=e2e, normalized_latency_s=normalized))


def test_a_ratio_may_be_off_by_as_much_as_both_its_figures_together() -> None:
    """Each known within a factor of two either way, and the noise between runs: the root of the squares."""
    found = row(compared(a=sure(0.5, 1, 2), b=sure(1.5, 3, 6)), "e2e_p99_adjusted_s").intervals["b"]
    assert found.low == pytest.approx(3 / away(2, 2))
    assert found.high == pytest.approx(3 * away(2, 2))


def test_only_what_the_other_may_do_matters_where_one_is_known_for_sure() -> None:
    """A baseline of exactly 2: the bounds are those of the other, halved, but for the noise between runs."""
    found = row(compared(a=sure(2, 2, 2), b=sure(1, 3, 8)), "e2e_p99_adjusted_s").intervals["b"]
    assert [found.low, found.high] == pytest.approx([1.5 / away(3), 1.5 * away(8 / 3)])


def test_a_figure_without_an_upper_bound_leaves_its_ratio_open_on_that_side() -> None:
    """Above where it is divided, down to nothing where it divides; with both, it is not told."""
    open_, known = sure(1, 2, None), sure(1, 1, 1)
    above = row(compared(a=known, b=open_), "e2e_p99_adjusted_s").intervals["b"]
    below = row(compared(a=open_, b=known), "e2e_p99_adjusted_s").intervals["b"]
    assert (above.low, above.high) == (pytest.approx(2 / away(2)), None)
    assert (below.low, below.high) == (0, pytest.approx(0.5 * away(2)))
    assert not row(compared(a=open_, b=open_), "e2e_p99_adjusted_s").intervals


@pytest.mark.parametrize("undecided", [sure(None, 1, None), with_e2e(1.0)])
def test_a_ratio_to_what_cannot_be_told_has_no_interval(undecided: Summary) -> None:
    """Too few independent requests, or no interval in a summary of another version."""
    assert not row(compared(a=undecided, b=sure(1, 2, 3)), "e2e_p99_adjusted_s").intervals


def test_a_plain_figure_has_an_interval_only_where_all_offered_were_ok() -> None:
    """Intervals are over all offered; of 1,000 ok among 1,010 they would be those of another figure."""
    whole, some = sure(1, 2, 3), sure(1, 2, 3, offered=1010)
    assert row(compared(a=whole, b=whole), "normalized_latency_mean_s").intervals
    assert not row(compared(a=whole, b=some), "normalized_latency_mean_s").intervals
    assert row(compared(a=whole, b=some), "e2e_p99_adjusted_s").intervals


def test_who_cannot_be_told_from_the_next_has_not_won() -> None:
    """30 % faster, and it may be chance; with tighter bounds it is not."""
    loose = compared(a=sure(0.7, 1, 1.5), b=sure(0.5, 0.7, 1.0))
    assert loose.winner is None
    assert loose.reason == "a tie: b and a cannot be told apart in E2E p99 adjusted"
    assert compared(a=sure(0.95, 1, 1.05), b=sure(0.65, 0.7, 0.75)).winner == "b"


def test_the_winner_is_told_from_each_other_and_not_from_the_baseline_alone() -> None:
    """Both are surely faster than the baseline, and neither surely than the other."""
    c = compared(slow=sure(9, 10, 11), b=sure(0.8, 1, 1.3), c=sure(0.8, 1.1, 1.4))
    assert c.winner is None
    assert c.reason == "a tie: b and c cannot be told apart in E2E p99 adjusted; behind: slow"


def simulated(folder: Path, seed: int, step: str = "10ms", jitter: Any = None, **changes: Any) -> Summary:
    """One plan on an engine whose steps take longer or shorter by chance: by another, with each seed."""
    load = {
        "arrivals": {"kind": "poisson", "rate": 8},
        "num_requests": 600,
        "prompt_tokens": 4,
        "output_tokens": {"kind": "exponential", "mean": 40},
    }
    engine = {
        "max_sequences": 8,
        "seed": seed,
        "cost": {"kind": "fixed", "step": step},
        "jitter": jitter or {"step": 0.3, "drift": 0.2},
    }
    goodput = changes.pop("goodput", {})
    asked = build({"name": "chance", "engine": engine, "load": load | changes, "goodput": goodput})
    return summarize(simulate(Order(asked, draw(asked), folder / f"{seed}-{step}", f"seed-{seed}")))


def held(rows: list[Row]) -> list[bool]:
    """Of each interval, whether it holds 1."""
    found = [i for r in rows for i in r.intervals.values()]
    return [(i.low or 0) <= 1 and (i.high is None or i.high >= 1) for i in found]


def pairs(runs: list[Summary]) -> list[Comparison]:
    return [compared(a=a, b=b) for a, b in combinations(runs, 2)]


def test_what_differs_by_chance_alone_is_within_the_interval(tmp_path: Path) -> None:
    """Of all pairs of seven runs of one plan, at least 95 % hold 1; an engine slower by half does not."""
    runs = [simulated(tmp_path, seed) for seed in range(7)]
    inside = held([r for c in pairs(runs) for r in c.rows])
    assert len(inside) >= 3 * 21
    assert sum(inside) >= 0.95 * len(inside)
    slower = compared(a=runs[0], b=simulated(tmp_path, 99, "15ms"))
    assert row(slower, "itl_p50_s").intervals["b"].low > 1.2  # type: ignore[operator]


RUN = {"step": 0.05, "run": 0.03}  # a machine that is 3 % faster one day, as one run does not show


def test_ratios_hold_what_one_run_cannot_show(tmp_path: Path) -> None:
    """Gaps that no run varies in itself, of machines with 3 % of noise from run to run: about 95 % hold 1."""
    runs = [simulated(tmp_path, seed, jitter=RUN) for seed in range(10)]
    inside = held([row(c, "itl_p50_s") for c in pairs(runs)])
    assert len(inside) == 45
    assert sum(inside) >= 0.9 * 45


@pytest.mark.parametrize(
    ("changes", "always"),
    [
        ({"goodput": {"ttft": "200ms", "tpot": "12ms"}}, True),
        # what the median takes: half of them are good, or all, or none, by chance
        ({"goodput": {"tpot": "10ms"}}, False),
        ({}, True),
        ({"arrivals": {"kind": "burst"}}, True),
    ],
)
def test_of_two_equal_servers_none_wins_and_of_unequal_ones_the_faster(
    tmp_path: Path, changes: dict[str, Any], always: bool
) -> None:
    """By each rule: at most a few in a hundred pairs that differ by chance alone; twice as fast always, but
    by a limit that chance decides, and by that never the slower.
    """
    usual = {"arrivals": {"kind": "poisson", "rate": 14}, "num_requests": 300}
    asked: dict[str, Any] = usual | changes
    runs = [simulated(tmp_path, seed, jitter=RUN, **dict(asked)) for seed in range(8)]
    assert sum(c.winner is not None for c in pairs(runs)) <= 3  # of 28
    slower = simulated(tmp_path, 99, "20ms", jitter=RUN, **dict(asked))
    winners = {compared(a=slower, b=run).winner for run in runs[:3]}
    assert winners == {"b"} if always else winners <= {"b", None}


@pytest.mark.parametrize("jitter", [{"step": 0.1, "drift": 0.1}, {"step": 0.3, "run": 0.03}])
def test_a_burst_of_equal_servers_has_no_winner_and_one_half_as_slow_again_loses(
    tmp_path: Path, jitter: dict[str, float]
) -> None:
    """A machine that drifts by 10 %, too: of pairs of runs, each of its own, at most 1 in 20."""
    asked: dict[str, Any] = {"arrivals": {"kind": "burst"}, "num_requests": 200}
    runs = [simulated(tmp_path, seed, jitter=jitter, **asked) for seed in range(40)]
    alike = [compared(a=a, b=b) for a, b in zip(runs[::2], runs[1::2], strict=True)]
    assert sum(c.winner is not None for c in alike) <= 1
    slower = [simulated(tmp_path, seed, "15ms", jitter=jitter, **asked) for seed in range(40, 44)]
    assert sum(compared(a=run, b=late).winner == "a" for run, late in zip(runs, slower, strict=False)) >= 3


def test_by_shares_that_wins_of_which_the_interval_of_the_ratio_is_without_1() -> None:
    """100 % against 22 % wins though their own intervals touch, and not where the ratio may be 1."""
    c = compared(a=good(0.217, 0.03, 0.96), b=good(1.0, 0.9, 1.0))
    assert row(c, "attainment").intervals["b"].low == pytest.approx(
        1 / 0.217 / exp(hypot(log(0.96 / 0.217), log(1 / 0.9)))
    )
    assert c.winner == "b"
    assert compared(a=good(0.217, 0.03, 1.0), b=good(1.0, 0.9, 1.0)).winner is None


def test_what_the_variants_were_asked_otherwise_is_said_of_each() -> None:
    """By its key, as deep as it lies; nothing that all share, nor what they are called."""
    scenarios = {
        "a": {"name": "a", "engine": {"batching": "static", "seed": 1}, "slos": ["x"]},
        "b": {"name": "b", "engine": {"batching": "continuous", "seed": 1, "max_queue": 4}, "slos": ["x"]},
    }
    variants = {"a": summary(), "b": summary()}
    c = compare(variants, dict.fromkeys(variants, DIGEST), scenarios)
    assert c.variants["a"].differs == {"engine.batching": "static"}
    assert c.variants["b"].differs == {"engine.batching": "continuous", "engine.max_queue": "4"}


def test_that_gaps_are_not_to_be_used_is_said_once() -> None:
    """What they assume does not matter then."""
    bad = summary(itl_valid=False, itl_assumed=True)
    assert sum("Gaps" in note or "ITL" in note for note in compared(a=bad, b=bad).notes) == 1
