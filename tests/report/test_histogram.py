"""A line of bars for each latency: as high as its counts, marked, labelled, and only of what was seen."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from loadgen.report.histogram import bars, lines
from loadgen.report.markdown import summary_markdown
from loadgen.report.terminal import print_summary
from loadgen.stats.summary import Summary
from tests.report.summaries import distribution, metrics, nothing, summary

BINS = [(0.04, 1), (0.06, 40), (0.1, 80), (0.2, 0), (0.3, 9)]


def shaped() -> Summary:
    """TTFT from 33.6 to 336 ms; gaps, but no ITL."""
    return summary(
        metrics=metrics(
            ttft_s=distribution(0.0671, bins=BINS),
            itl_s=nothing(),
            chunk_gap_s=distribution(0.02, bins=[(0.1, 5)]),
            e2e_s=distribution(2.0, bins=[(3.0, 4), (10.0, 4)]),
        )
    )


def printed(s: Summary, width: int, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_summary(s, Console(file=stream, width=width, _environ={}), folder=None)
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_bars_are_as_high_as_their_counts() -> None:
    """Of 80 at most: 40 is half of a line, 1 is still seen, 0 is not; p50 and p99 have a mark behind."""
    assert bars(distribution(0.0671, bins=BINS)) == "▁▄█│ ▁│"


def test_one_value_has_one_bar_and_one_mark() -> None:
    """Its p50 and its p99 are the same."""
    one = distribution(0.25, 1, quantiles=dict.fromkeys(("p50", "p99"), 0.25), bins=[(0.25, 1)])
    assert bars(one) == "█│"


def test_each_line_has_its_name_and_the_ends_of_its_axis() -> None:
    """TTFT, E2E, and chunk gaps where no ITL is known; a metric without any value has no line."""
    found = lines(shaped())
    assert [line.split("  ")[0] for line in found] == ["TTFT", "E2E", "chunk gap"]
    assert found[0].split()[1:3] == ["33.6", "ms"]
    assert found[0].endswith(" 336 ms")
    assert lines(summary()) == []


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_shapes_stand_under_the_latencies(width: int) -> None:
    """At any width, before the rates; nothing is said where there are none."""
    text = printed(shaped(), width)
    assert text.index("Latency (") < text.index("Shape (") < text.index("Rates (")
    assert max(map(cell_len, text.splitlines())) <= width
    assert "Shape" not in printed(summary(), width)


def test_a_terminal_without_our_signs_has_letters_for_them() -> None:
    """Low bars are dots, high ones number signs, and the marks can be told from both."""
    text = printed(shaped(), 100, "ascii")
    assert ".:#! .!" in text
    assert "! at p50 and p99" in text


def test_markdown_shows_them_as_code() -> None:
    """Where spaces stay; in an invalid run the heading says so."""
    text = summary_markdown(shaped())
    assert "```text\nTTFT" in text
    assert "▁▄█│ ▁│" in text
    assert "```" not in summary_markdown(summary())
