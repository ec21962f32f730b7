"""Whether a change made it slower."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.records import Outcome
from loadgen.stats import summarize
from loadgen.stats.change import Change, changes
from loadgen.stats.figures import METRICS, Tolerance
from loadgen.stats.sample import Sample, sample
from loadgen.workload import draw
from tests.bench.gate import BASELINES, overall, scenario, taken
from tests.records import failed, ok, run_of

_TAILS = [name for name in METRICS if name.endswith("p99")]
LATENCIES = [name for name, metric in METRICS.items() if metric.unit == "s"]


def _run(n: int = 400, *, slower: float = 1.0, seed: int = 0, fail: int = 0, **about: object) -> Sample:
    """Requests whose latencies are lognormal with a spread of 30 %, all `slower` times as long."""
    rng = np.random.default_rng(0)  # the plan's: alike in every run
    own = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        size, noise = rng.lognormal(0, 0.3), own.lognormal(0, 0.05)
        gaps_us = [round(10_000 * size * noise * slower)] * 3
        rows.append(ok(i, i * 0.1, ttft_s=round(0.1 * size * noise * slower, 6), gaps_us=gaps_us))
    for i in range(0, n, n // fail) if fail else ():
        rows[i] = failed(i, i * 0.1)
    run = run_of(rows)
    found = sample(run, summarize(run))
    return replace(found, about=msgspec.structs.replace(found.about, **about))


def _by_name(found: list[Change]) -> dict[str, Change]:
    return {change.metric: change for change in found}


def test_runs_of_the_same_pass_where_their_noise_is_known() -> None:
    """Ten runs, of which the last five are said to be changed, and are not."""
    runs = [_run(seed=seed) for seed in range(10)]
    assert {change.verdict for change in changes(runs[:5], runs[5:])} == {"PASS"}


def test_a_tenth_slower_fails_and_is_told_with_an_interval_that_holds_it() -> None:
    """All latencies a tenth longer: each fails at a tolerance of 5 %, with the truth in its interval; but of
    the p99 of 400 requests, which four of them make, none can be told.
    """
    before = [_run(seed=seed) for seed in range(5)]
    after = [_run(seed=seed, slower=1.1) for seed in range(5, 10)]
    found = changes(before, after, tolerances=dict.fromkeys(LATENCIES, Tolerance()), metrics=LATENCIES)
    tails = {change.metric for change in found if change.verdict == "UNRESOLVED"}
    assert tails >= {"ttft_p99", "e2e_p99"}
    assert tails <= {*_TAILS}
    for change in found[: len(LATENCIES)]:
        assert change.verdict == ("UNRESOLVED" if change.metric in tails else "FAIL")
        assert (change.low or 0.0) < 0.1 < (change.high or 0.0)
        assert change.change == pytest.approx(0.1, abs=0.03)


def test_faster_is_no_worsening() -> None:
    """A third off every latency passes."""
    assert {change.verdict for change in changes([_run()], [_run(seed=1, slower=0.67)])} == {"PASS"}


def test_pairing_takes_the_plan_out_of_the_noise() -> None:
    """Requests differ by 30 % and their own noise is 5 %: paired, the interval is a third as wide."""
    before, after = [_run(seed=1)], [_run(seed=2)]
    paired, alone = (
        _by_name(changes(before, after, noise=0.0, paired=paired, metrics=["e2e_mean"]))["e2e_mean"]
        for paired in (True, False)
    )
    width = [change.high - change.low for change in (paired, alone)]  # type: ignore[operator]
    assert width[0] < width[1] / 3


def test_one_baseline_leaves_the_assumed_noise_and_many_runs_tell_their_own() -> None:
    """3 % from one run to another, until quiet runs bring it down, one by one."""
    noises = [
        _by_name(changes([_run(seed=i) for i in range(k)], [_run(seed=99)]))["e2e_mean"].noise
        for k in (1, 3, 10)
    ]
    assert noises[0] == pytest.approx(0.03 / 2**0.5)
    assert noises[0] > noises[1] > noises[2] > 0  # type: ignore[operator]


def test_a_stated_noise_is_that_of_one_run() -> None:
    """2 % each: the change from one run to one other has 2.8 %, and its interval 1.96 times that."""
    same = [_run(), _run()]
    [change, *_] = changes(same[:1], same[1:], noise=0.02, metrics=["e2e_mean"])
    assert change.noise == 0.02
    assert np.log1p(change.high) == pytest.approx(1.96 * 0.02 * 2**0.5, rel=0.01)


def test_a_pass_is_sure_to_be_below_one_and_a_half_tolerances() -> None:
    """Of a noise of 2.8 % the 95 % bound of no change is 4.7 %: below 7.5 %, but not below 4.5 %."""
    same = [_run(), _run()]
    verdicts = [
        changes(same[:1], same[1:], noise=0.02, metrics=["e2e_mean"], tolerances={"e2e_mean": allowed})[
            0
        ].verdict
        for allowed in (Tolerance(relative=0.05), Tolerance(relative=0.03))
    ]
    assert verdicts == ["PASS", "UNRESOLVED"]


def test_too_short_to_see_the_tolerance_is_unresolved() -> None:
    """Twenty requests whose noise is far above 1 % cannot show a tolerance of 1 %."""
    tight = {"e2e_mean": Tolerance(relative=0.01)}
    [change, *_] = changes([_run(20)], [_run(20, seed=1)], tolerances=tight, metrics=["e2e_mean"])
    assert change.verdict == "UNRESOLVED"
    assert "the noise hides a change of this size" in change.reason
    assert (change.detectable or 0.0) > 0.01


def test_an_absolute_tolerance_counts_where_it_is_the_larger() -> None:
    """A tenth of 130 ms is allowed, if 20 ms are."""
    given = {"e2e_mean": Tolerance(relative=0.01, absolute=0.02)}
    [change, *_] = changes([_run()], [_run(slower=1.1)], tolerances=given, noise=0.0, metrics=["e2e_mean"])
    assert change.baseline is not None
    assert change.allowed == pytest.approx(0.02 / change.baseline)
    assert change.verdict == "PASS"


def test_more_failures_fail_whatever_the_rest_does() -> None:
    """5 % of the requests fail after the change: the error rate fails, and p99s are infinitely late."""
    found = _by_name(changes([_run()], [_run(fail=20, slower=0.5)]))
    assert found["error_rate"].verdict == "FAIL"
    assert found["error_rate"].change == pytest.approx(0.05)
    assert found["ttft_p99"].candidate is None
    assert found["ttft_p99"].verdict != "PASS"


def test_nothing_found_in_a_few_requests_is_no_proof_that_nothing_is_there() -> None:
    """No error in 50 requests leaves up to 6 % possible: half a percent cannot be shown; 2,000 show it."""
    few, many = (
        _by_name(changes([_run(n)], [_run(n)], metrics=["error_rate"]))["error_rate"] for n in (50, 2000)
    )
    assert (few.verdict, many.verdict) == ("UNRESOLVED", "PASS")


@pytest.mark.parametrize(
    ("about", "verdict", "why"),
    [
        ({"validity": "INVALID"}, "INVALID", "cannot be trusted"),
        ({"itl_valid": False}, "UNRESOLVED", "gaps between tokens are not judged"),
        ({"gaps": "chunk_gap"}, "UNRESOLVED", "tokens of each event"),
    ],
)
def test_what_was_not_measured_well_never_passes(about: dict[str, object], verdict: str, why: str) -> None:
    """A side whose figure cannot be used decides, whatever the figures say."""
    found = _by_name(changes([_run()], [_run(**about)]))["itl_p99"]
    assert found.verdict == verdict
    assert why in found.reason


def test_what_was_rejected_or_failed_is_always_looked_at() -> None:
    """A mean is of ok requests: it is never alone."""
    assert {"e2e_mean", "rejection_rate", "error_rate"} == set(
        _by_name(changes([_run()], [_run()], metrics=["e2e_mean"]))
    )


def test_where_the_candidate_alone_is_overloaded_no_latency_passes() -> None:
    """It depends on the run length; where the baselines are overloaded too, the same length was measured."""
    alone, both = (
        _by_name(changes([_run(overloaded=before)], [_run(seed=1, overloaded=True)], noise=0.0))
        for before in (False, True)
    )
    assert {name: alone[name].verdict for name in ("e2e_mean", "error_rate")} == {
        "e2e_mean": "UNRESOLVED",
        "error_rate": both["error_rate"].verdict,
    }
    assert "depends on the run length" in alone["e2e_mean"].reason
    assert both["e2e_mean"].verdict == "PASS"


def test_a_spread_that_the_assumption_does_not_explain_counts_alone() -> None:
    """Five baselines that differ by a fifth are not said to differ by 2 %."""
    loud = [_run(slower=slower) for slower in (0.8, 0.9, 1.0, 1.1, 1.25)]
    [change, *_] = changes(loud, [_run(slower=1.25)], metrics=["e2e_mean"])
    assert change.noise == pytest.approx(np.std(np.log([0.8, 0.9, 1.0, 1.1, 1.25]), ddof=1), rel=0.05)
    assert change.verdict == "UNRESOLVED"


def test_failures_near_the_percentile_are_no_warning_and_no_number() -> None:
    """Two of 200: some resamples have a p99, and some have none."""
    found = _by_name(changes([_run(200, fail=2)], [_run(200, fail=2, seed=1)]))
    assert found["ttft_p99"].verdict == "UNRESOLVED"
    assert "may be infinitely late" in found["ttft_p99"].reason


def test_a_figure_one_side_lacks_is_unresolved() -> None:
    """Answers of one token have no gap."""
    run = run_of([ok(i, i, gaps_us=[]) for i in range(400)])
    without = sample(run, summarize(run))
    found = _by_name(changes([_run()], [without]))
    assert {found[name].verdict for name in ("itl_p50", "itl_p99", "tpot_mean")} == {"UNRESOLVED"}
    assert "not measured in every run" in found["tpot_mean"].reason


def test_paired_runs_are_compared_by_the_requests_they_have_in_common() -> None:
    """A run cut to its first half is compared by that half."""
    whole = _run()
    half = whole.only(np.arange(len(whole)) < 200)
    assert {change.n for change in changes([whole], [half])} == {200}
    with pytest.raises(ValueError, match="none in common"):
        changes([whole.only(np.arange(400) < 200)], [whole.only(np.arange(400) >= 200)])


@settings(max_examples=20)
@given(st.floats(0.5, 2.0))
def test_the_change_is_the_ratio_of_the_figures(slower: float) -> None:
    """Of runs that differ by a factor alone."""
    [change, *_] = changes([_run(60)], [_run(60, slower=slower)], metrics=["e2e_mean"])
    assert change.change == pytest.approx(slower - 1, abs=0.001)


def test_fewer_tokens_per_second_are_a_worsening() -> None:
    """Half the requests rejected, at the same pace: about half the tokens per second, told as 50 % worse."""
    rows = [ok(i, i * 0.1) if i % 2 else failed(i, i * 0.1, Outcome.REJECTED) for i in range(400)]
    run = run_of(rows)
    found = _by_name(changes([_run()], [sample(run, summarize(run))]))
    assert found["output_tokens_per_s"].change == pytest.approx(0.5, abs=0.01)
    assert found["output_tokens_per_s"].verdict == "FAIL"
    assert found["rejection_rate"].verdict == "FAIL"


def test_forty_simulated_pairs_get_the_verdicts_they_deserve() -> None:
    """Runs differ by 2 %. Where nothing changed, none fails; where steps are a tenth slower, 19 of 20 do.

    Theory: the change of two runs has a standard deviation of about 2.5 %, and steps a tenth slower make the
    figures 12 % worse, near 4.5 of them. A FAIL begins at about 2.75; the chance to stay below is 4 %.
    """
    five = dict.fromkeys(LATENCIES, Tolerance())
    verdicts = {share: Counter[str]() for share in (0.0, 0.1)}
    for number in range(5):
        plan = draw(scenario(number, 0))
        before = [taken(scenario(number, 100 * number + i), plan) for i in range(BASELINES)]
        for i, share in enumerate(4 * [0.0] + 4 * [0.1], BASELINES):
            after = taken(scenario(number, 100 * number + i, share), plan)
            verdicts[share][overall(changes(before, [after], tolerances=five))] += 1
    assert verdicts[0.0]["FAIL"] == 0
    assert verdicts[0.1]["FAIL"] >= 19
