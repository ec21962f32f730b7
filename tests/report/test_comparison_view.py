"""What is said of several runs of one plan: how sure each ratio is, at any width."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from loadgen.compare import Comparison, compare
from loadgen.report.comparison_view import figures, interval, sides
from loadgen.report.markdown import comparison_markdown
from loadgen.report.terminal import print_comparison
from loadgen.stats.summary import Interval, Summary
from tests.report.summaries import distribution, metrics, summary


def run(e2e_s: float, off: float | None, **changes: Any) -> Summary:
    """A run whose adjusted E2E p99 is known within a factor either way; None: cannot be told."""
    sure = Interval() if off is None else Interval(low=e2e_s / off, high=e2e_s * off, decided=True)
    return summary(metrics=metrics(e2e_s=distribution(e2e_s / 4.5, intervals={"p99": sure})), **changes)


def comparison(off: float | None, others: int = 1) -> Comparison:
    unknown = {"makespan_s": None, "makespan_output_tokens_per_s": None}
    changes: dict[str, Any] = unknown if off is None else {}
    sides = {"base": run(4, off, **changes)} | {f"variant-{i}": run(2, off) for i in range(others)}
    return compare(sides, dict.fromkeys(sides, "5f" * 32))


def printed(c: Comparison, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    print_comparison(c, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_interval_of_a_ratio_stands_beside_it() -> None:
    """Half, of two figures that are sure but for a tenth: and 3 % of noise in each run:
    0.5 over and times 1.173.
    """
    rows = {row[0]: row for row in figures(comparison(1.1), ["variant-0"]).rows}
    assert rows["E2E p99 adjusted ↓"][-2:] == ["0.500x", "[0.426, 0.587]"]
    assert rows["TTFT p99 ↓"][-1] == ""


def test_where_no_interval_is_known_no_column_is_left_empty() -> None:
    """Too few requests in every variant."""
    heads = [column.head for column in figures(comparison(None), ["variant-0"]).columns]
    assert heads[-1] == "x base"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, ""),
        (Interval(low=0.95, high=1.02, decided=True), "[0.950, 1.02]"),
        (Interval(low=1.5, high=None, decided=True), "[1.50, ∞)"),
        (Interval(low=0.4268, high=0.5861, decided=True), "[0.426, 0.587]"),
        (Interval(low=1.0042, high=1.1, decided=True), "[1.004, 1.10]"),
        (Interval(low=0.9, high=0.99961, decided=True), "[0.900, 0.9997]"),
        (Interval(low=0.9996, high=1.0004, decided=True), "[0.999, 1.01]"),
        (Interval(low=0.0034, high=0.0122, decided=True), "[0.003, 0.0122]"),
        (Interval(low=0.0, high=0.8, decided=True), "[0, 0.800]"),
    ],
)
def test_an_interval_may_be_open(found: Interval | None, said: str) -> None:
    """Down to nothing, or up without an end. Rounded outwards, and never to 1: whether it is in the interval
    names the winner.
    """
    assert interval(found) == said


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("others", [1, 2, 5])
def test_intervals_fit_a_terminal(width: int, others: int) -> None:
    """Each variant's is there once, uncut, however many tables that takes."""
    text = printed(comparison(1.1, others), width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert sum(line.count("[0.426, 0.587]") for line in text.splitlines() if "adjusted ↓" in line) == others


def test_a_narrow_terminal_says_what_it_leaves_out() -> None:
    """At 60 columns the ratio stays, and its interval goes."""
    text = printed(comparison(1.1), 60)
    assert "left out for width: 95 %." in text
    assert "0.500x" in text


def test_notes_and_markdown_tell_how_sure_ratios_are() -> None:
    """And do not where none has an interval."""
    assert "Intervals are of the ratio" in " ".join(comparison(1.1).notes)
    assert "Intervals" not in " ".join(comparison(None).notes)
    assert r"\[0.426, 0.587\]" in comparison_markdown(comparison(1.1))


def test_what_differs_stands_beside_each_variant() -> None:
    """Six of its keys at most, in words without marks of a terminal; no column where nothing differs."""
    runs = {"a": run(4, None), "b": run(2, None)}
    asked = {"a": {"policy": "fcfs"}, "b": {"policy": "\x1b[31maging"} | {f"k{i}": i for i in range(7)}}
    shown = sides(compare(runs, dict.fromkeys(runs, "5f" * 32), asked))
    assert [row[1] for row in shown.rows] == [
        "policy: fcfs",
        "policy: aging; k0: 0; k1: 1; k2: 2; k3: 3; k4: 4; and 2 more",
    ]
    assert sides(comparison(None)).columns[1].head == "source"
