"""`warmup: auto`: what comes before the run has settled counts in no figure."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen import drive
from loadgen.order import Order
from loadgen.records import Floats, Outcome, RequestRecord
from loadgen.report import summary_view
from loadgen.run import Run
from loadgen.run_folder import load
from loadgen.scenario import ScenarioError, build
from loadgen.stats import summarize, vllm_result
from loadgen.stats.overload import overloaded
from loadgen.stats.sample import sample
from loadgen.stats.warmup import cut_of, most, settle, settled
from loadgen.workload import draw
from tests.bench.coverage import sojourns
from tests.records import failed, ok, run_of

AUTO = {"load": {"warmup": "auto", "num_requests": 200}}


def rows(e2e_s: list[float]) -> list[RequestRecord]:
    """One request a second, of such E2E."""
    return [ok(i, float(i), ttft_s=round(e2e, 6), gaps_us=[]) for i, e2e in enumerate(e2e_s)]


def run_with(e2e_s: list[float], **header: object) -> Run:
    return run_of(rows(e2e_s), **{"scenario": AUTO, "window_end_s": float(len(e2e_s))} | header)


STEP = [5.0, 4.0] * 20 + [1.0, 2.0] * 80  # 40 slow ones, then 160 as it goes on


def by_definition(series: Floats) -> int:
    """MSER-5 as White wrote it: for each truncation, the marginal standard error of what is left, capped."""
    n = len(series) // 5 * 5
    series = np.minimum(series, np.floor(2e6 * np.median(series[n // 2 : n])) / 1e6)
    batches = [float(np.mean(series[i : i + 5])) for i in range(0, len(series) // 5 * 5, 5)]
    errors = [np.var(batches[d:]) / len(batches[d:]) for d in range(len(batches) // 2 + 1)]
    return 5 * int(np.argmin(np.round(errors, 9)))


@given(st.lists(st.integers(1, 9), min_size=50, max_size=120), st.integers(0, 60), st.integers(0, 9))
def test_the_cut_is_where_the_definition_has_it(series: list[int], slow: int, more: int) -> None:
    """However the series goes, and where it begins with so many that are slower."""
    values = np.array(series, float) + more * (np.arange(len(series)) < slow)
    assert cut_of(values) == by_definition(values)


@pytest.mark.parametrize("load", [0.5, 0.7, 0.9])
def test_a_queue_that_is_steady_from_the_start_loses_next_to_nothing(load: float) -> None:
    """In the mean of 300 M/M/1 queues of 1,000: early bursts stay, so that no mean is flattered."""
    rng = np.random.default_rng(5)
    queues = [sojourns(rng, 1000, load) for _ in range(300)]
    cuts = [cut_of(np.round(queue, 6)) for queue in queues]
    kept = np.mean([queue[cut:].mean() for queue, cut in zip(queues, cuts, strict=True)])
    assert np.mean(cuts) < 50
    assert 0.985 < kept / np.mean(queues) < 1.03


def test_a_cold_start_is_left_out_whatever_its_values_are() -> None:
    """A hundred of ten times the latency: constant ones, and ones that vary as exponential ones do."""
    assert cut_of(np.array([10.0] * 100 + [1.0] * 300)) == 100
    rng = np.random.default_rng(7)
    for _ in range(20):
        series = np.round(rng.exponential(1.0, 600) * np.where(np.arange(600) < 60, 10.0, 1.0), 6)
        assert 54 <= cut_of(series) < 120


def test_what_an_empty_queue_begins_with_is_left_out() -> None:
    """At load 0.9 the mean of 1,000 from empty is 11 % too small: some of that is mended."""
    rng = np.random.default_rng(6)
    queues = [np.round(sojourns(rng, 1000, 0.9, empty=True), 6) for _ in range(300)]
    raw, cut = np.mean(queues), np.mean([queue[cut_of(queue) :].mean() for queue in queues])
    assert raw < 9
    assert raw * 1.01 < cut < 10


@pytest.mark.parametrize("value_s", [0.1, 1 / 3, 1799.999999])
def test_what_is_constant_has_no_warm_up(value_s: float) -> None:
    """Nothing is gained by leaving any of it out."""
    assert cut_of(np.full(1000, value_s)) == 0


def test_the_slow_beginning_is_left_out_of_every_figure() -> None:
    """40 requests of 4.5 s, then 160 of 1.5 s: these are the figures, their window starts at 40 s."""
    s = summarize(run_with(STEP))
    assert s.warmup is not None
    assert (s.warmup.rows, s.warmup.settled) == (40, True)
    assert (s.offered, s.rows_seen) == (160, {"warmup": 40, "measured": 160, "tail": 0})
    assert s.metrics["e2e_s"].mean == pytest.approx(1.5)
    assert (s.window_start_s, s.window_end_s, s.offered_rps) == (40.0, 200.0, 1.0)
    assert s.certificate is not None
    assert s.certificate.sent == 200  # all of the plan was sent as asked
    assert (
        "after 40 requests of warm-up (by MSER-5 of E2E, capped at twice its median)"
        in summary_view.identity(s)
    )


def test_every_reader_of_a_run_leaves_out_the_same() -> None:
    """vLLM's figures and a gate's sample are of the same 160; a window by count starts there."""
    run = run_with(STEP, window_by="count", window_end_s=199.0)
    s = summarize(run)
    assert vllm_result(run, s)["completed"] == 160
    assert sample(run, s).index.tolist() == [*range(40, 200)]
    assert (s.window_start_s, s.window_end_s) == (40.0, 199.0)


def test_to_settle_a_settled_run_changes_nothing() -> None:
    """What is found is of the whole run, whichever of the two is asked."""
    run = run_with(STEP)
    once, again = settle(run), settle(settled(run))
    assert again[1] == once[1]
    assert again[0].records.phase.tolist() == once[0].records.phase.tolist()
    assert again[0].header == once[0].header


def test_only_auto_is_looked_for() -> None:
    """A warm-up that was asked for, or none, stays what it is."""
    run = run_with(STEP, scenario={"load": {"warmup": "0s"}})
    assert settled(run) is run
    assert summarize(run).warmup is None


def test_a_run_that_never_settles_says_so() -> None:
    """Each request slower than the last: half is left out, and the reader is warned."""
    s = summarize(run_with([1.0 + i / 10 for i in range(200)]))
    assert s.warmup is not None
    assert (s.warmup.rows, s.warmup.settled) == (most(200), False) == (100, False)
    assert [f.effect for f in s.findings if f.name == "warmup"] == ["warning"]


def test_overload_is_looked_for_in_the_whole_run() -> None:
    """What grows by fits and starts shows in 420 requests; in the half that is left it might be chance."""
    run = run_with([1.0 + i / 10 + 8.0 * (i // 21 % 2) for i in range(420)])
    assert overloaded(settled(run)) is None
    assert summarize(run).overloaded is True


def test_too_few_answers_to_tell_by_are_all_kept() -> None:
    """49 answers and any number of failures: none is left out, and the reader is warned."""
    few = [*rows(STEP[:49]), *(failed(i, float(i), Outcome.REJECTED) for i in range(49, 200))]
    s = summarize(run_of(few, scenario=AUTO, window_end_s=200.0))
    assert s.warmup is not None
    assert (s.warmup.rows, s.warmup.settled, s.offered) == (0, None, 200)
    assert [f.effect for f in s.findings if f.name == "warmup"] == ["warning"]


def test_failed_requests_before_the_cut_are_warm_up_and_later_ones_count() -> None:
    """The series is of what was answered; who failed belongs to the part it fell due in."""
    mixed = [
        failed(i, float(i)) if i % 10 == 0 else ok(i, float(i), ttft_s=e2e, gaps_us=[])
        for i, e2e in enumerate(STEP)
    ]
    s = summarize(run_of(mixed, scenario=AUTO, window_end_s=200.0))
    assert s.warmup is not None
    assert 30 <= s.warmup.rows <= 50
    assert s.outcomes["http_error"] == (200 - s.warmup.rows) // 10


def test_a_folder_alone_gives_the_same(tmp_path: Path) -> None:
    """A simulated run that fills up from empty: what is cut is found again from the folder."""
    cost = {"kind": "fixed", "step": "20ms"}
    asked = {"arrivals": {"kind": "constant", "rate": 20}, "num_requests": 300, "warmup": "auto"}
    scenario = build(
        {
            "engine": {"max_sequences": 16, "cost": cost},
            "load": asked | {"prompt_tokens": 8, "output_tokens": 30},
        }
    )
    order = Order(scenario, draw(scenario), tmp_path / "run", "run-1")
    summary = drive.conclude(drive.simulate(order), order.folder)
    assert summary.warmup is not None
    assert 0 < summary.warmup.rows <= 150
    assert "warm-up auto" in summary.asked
    assert summarize(load(order.folder)) == summary
    written = msgspec.json.decode((order.folder / "summary.json").read_bytes())
    assert written["warmup"]["rows"] == summary.warmup.rows


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ({"arrivals": {"kind": "burst"}}, "one burst has no warm-up"),
        ({"arrivals": {"kind": "poisson", "rate": 1}, "warmup_requests": 3}, "not both"),
    ],
)
def test_auto_is_refused_where_it_means_nothing(load: dict[str, object], said: str) -> None:
    """A burst has no order of time; and a warm-up is told or looked for."""
    with pytest.raises(ScenarioError, match=said):
        build({"load": {"num_requests": 60, "warmup": "auto"} | load})
