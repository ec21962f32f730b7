"""Cumulative distributions of latencies."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from loadgen.charts.distributions import MOST_POINTS, compared, latencies
from loadgen.charts.picture import Picture
from loadgen.records import Outcome
from loadgen.run import Run
from loadgen.stats import summarize
from loadgen.stats.metrics import owed_gaps
from loadgen.stats.quantiles import rank
from tests.charts.drawn import any_run, is_whole
from tests.records import failed, ok, run_of

PERCENTS = (50, 75, 90, 95, 99, 99.9)


def of(run: Run) -> Picture:
    picture = latencies(run, summarize(run))
    assert picture is not None
    return picture


def curve(picture: Picture, name: str) -> list[tuple[float, float]]:
    """Share and value of each point."""
    columns = next(iter(picture.data.values()))
    by = picture.by or ""
    return [
        (float(share), float(value))
        for which, share, value in zip(columns[by], columns["share"], columns["within_s"], strict=True)
        if which == name and share is not None and value is not None
    ]


def is_inverse_cdf(points: Sequence[tuple[float, float]], values: Sequence[float], offered: int) -> bool:
    """Of every point by its definition: at least the share is <= its value, and less than it is below."""
    found, slack = np.sort(np.maximum(values, 1e-5)), 1e-6 * offered  # shares have six digits
    return all(
        np.searchsorted(found, value * (1 + 1e-5), "right") >= share * offered - slack
        and np.searchsorted(found, value * (1 - 1e-5)) <= share * offered + slack
        for share, value in points
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_point_is_an_adjusted_quantile(seed: int) -> None:
    """Of TTFT and E2E over offered requests; the curve ends at the share that came at all."""
    run = any_run(seed, n=80)
    r, picture = run.records, of(run)
    offered = int(r.offered.sum())
    for name, until in (("TTFT", r.first_token_s), ("E2E", r.last_token_s)):
        values = (until - r.due_s)[r.answered]
        points = curve(picture, name)
        assert is_inverse_cdf(points, values.tolist(), offered)
        assert points[0][0] == 0
        assert points[-1][0] == pytest.approx(len(values) / offered, rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_the_percentiles_of_the_summary_are_points(seed: int) -> None:
    """p50 to p99.9 exactly, however many requests there are: no quantile that people read is a guess."""
    dice = random.Random(seed)
    rows = [ok(i, i * 0.001, ttft_s=round(dice.lognormvariate(-2, 1), 6)) for i in range(5000)]
    run = run_of([*rows, *(failed(i, 5.0) for i in range(5000, 5000 + 3 * seed))])
    metric, points = summarize(run).metrics["ttft_s"], curve(of(run), "TTFT")
    drawn = dict(points)
    found = {p: value for p in PERCENTS if (value := metric.adjusted[f"p{p:g}"]) is not None}
    assert len(found) >= 5
    assert len(points) <= MOST_POINTS + 1
    for p, value in found.items():
        share = round(rank(p, metric.offered) / metric.offered, 6)
        assert drawn[share] == pytest.approx(value, rel=1e-5)
    assert is_inverse_cdf(points, [row.first_token_s - row.due_s for row in rows], metric.offered)


@pytest.mark.parametrize("seed", range(4))
def test_gaps_count_each_token_and_those_that_are_owed(seed: int) -> None:
    """One by one over ok rows: a gap is shared among the tokens of its later event."""
    dice = random.Random(seed)
    rows, values = [], list[float]()
    for i in range(30):
        gaps_us = [dice.choice([0, 300, 40_000, 1_500_000]) + dice.randrange(9) for _ in range(5)]
        tokens = [dice.randrange(1, 4) for _ in range(6)]
        rows.append(ok(i, i * 0.1, gaps_us=gaps_us, event_tokens=tokens, output_tokens=sum(tokens)))
        for gap_us, count in zip(gaps_us, tokens[1:], strict=True):
            values += [round(gap_us / count) / 1e6] * count
    run = run_of([*rows, failed(30, 3.0)])
    owed = int(owed_gaps(run.records).sum())
    assert owed == 4
    points = curve(of(run), "ITL")
    assert is_inverse_cdf(points, values, len(values) + owed)
    assert points[-1][0] == pytest.approx(len(values) / (len(values) + owed), rel=1e-5)


def test_gaps_of_unknown_tokens_are_chunk_gaps() -> None:
    """Where usage is given and does not tell which tokens came with which event, there is no ITL."""
    picture = of(run_of([ok(event_tokens=None, output_tokens=9)]))
    assert [*picture.series] == ["TTFT", "E2E", "chunk gap"]
    assert {value for _, value in curve(picture, "chunk gap")} == {0.01}


def test_limits_stand_where_the_slos_say() -> None:
    """pNN at its height, max at 1, goodput without a height; a rate or a mean is no point of a curve."""
    slos = ["p99(ttft) <= 500ms", "max(e2e) <= 9s", "mean(ttft) <= 1s", "error_rate <= 1%", "p90(tpot) <= 1s"]
    scenario = {"load": {"requests": [{"prompt": 16, "output": 4}]}, "slos": slos, "goodput": {"ttft": "2s"}}
    limits = of(run_of([ok(i) for i in range(5)], scenario=scenario)).data["limits"]
    assert [*zip(limits["metric"], limits["within_s"], limits["share"], limits["limit"], strict=True)] == [
        ("TTFT", 0.5, 0.99, "p99(ttft) <= 500ms"),
        ("E2E", 9.0, 1.0, "max(e2e) <= 9s"),
        ("TTFT", 2.0, None, "goodput: ttft <= 2s"),
    ]


def test_limits_at_one_place_have_one_label() -> None:
    """Words over words could not be read; both are told where the pointer is."""
    load = {"requests": [{"prompt": 16, "output": 4}]}
    scenario = {"load": load, "slos": ["p99(ttft) <= 500ms"], "goodput": {"ttft": "500ms"}}
    limits = of(run_of([ok()], scenario=scenario)).data["limits"]
    assert limits["limit"] == ["p99(ttft) <= 500ms", "goodput: ttft <= 500ms"]
    assert limits["label"] == ["p99(ttft) <= 500ms", ""]


def test_a_limit_that_grows_with_the_prompt_is_no_one_place() -> None:
    """500 ms and more for each token of the prompt: a rule would be wrong for all but one length."""
    scenario = {
        "load": {"requests": [{"prompt": 16, "output": 4}]},
        "slos": ["p99(ttft) <= 500ms + 1ms/token"],
    }
    assert of(run_of([ok()], scenario=scenario)).data["limits"]["within_s"] == []


def test_what_never_came_is_said() -> None:
    """One in four failed: the p99 is never, in words and table."""
    picture = of(run_of([ok(0), ok(1), ok(2), failed(3)]))
    assert "TTFT: 50 % within 100 ms, 25 % never came." in picture.says
    table = {row[0]: row[1] for row in picture.table.rows}
    assert table["p50"] == "100 ms"
    assert table["p99"] == "∞"
    assert table["never came"] == "1"


def test_aborted_requests_are_not_offered() -> None:
    """We cut them ourselves: the curve of the others reaches 1."""
    points = curve(of(run_of([ok(0), failed(1, outcome=Outcome.ABORTED)])), "TTFT")
    assert points == [(0.0, 0.1), (1.0, 0.1)]


def test_simulated_and_measured_never_look_alike() -> None:
    """A simulated run is dashed, and its name says what it is."""
    runs = {"static": any_run(1, source="virtual"), "mine": any_run(2)}
    for metric in ("ttft_s", "e2e_s", "gaps"):
        picture = compared(metric, runs)
        assert picture is not None
        assert is_whole(picture)
        assert [*picture.series] == ["static (simulated)", "mine"]
        scale = picture.spec["encoding"]["strokeDash"]["scale"]
        assert dict(zip(scale["domain"], scale["range"], strict=True))["mine"] == [1, 0]
        assert dict(zip(scale["domain"], scale["range"], strict=True))["static (simulated)"] != [1, 0]


def test_runs_of_which_one_has_no_itl_are_compared_by_chunk_gaps() -> None:
    """ITL of one beside chunk gaps of the other would compare two things."""
    runs = {
        "a": run_of([ok(event_tokens=[1, 2, 2, 2])]),
        "b": run_of([ok(event_tokens=None, output_tokens=9)]),
    }
    picture = compared("gaps", runs)
    assert picture is not None
    assert picture.title.startswith("Chunk gap")
    assert {value for _, value in curve(picture, "a")} == {0.01}


def test_nothing_is_compared_where_nothing_came() -> None:
    """No curve of failed runs."""
    assert compared("ttft_s", {"a": run_of([failed()]), "b": run_of([])}) is None
