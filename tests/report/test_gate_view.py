"""What is said about a gate, in words that someone who sees one first understands."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from loadgen.report import gate_view
from loadgen.report.markdown import gate_markdown
from loadgen.report.terminal import print_gate
from tests.report.gates import change, gate, good, run, slo


def printed(columns: int, **changes: Any) -> str:
    console = Console(width=columns, no_color=True, highlight=False)
    with console.capture() as said:
        print_gate(gate(**changes), console)
    return said.get()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (change(), "TTFT p99 is 14.8 % slower (at least 11.2 %), more than the 5 % allowed"),
        (
            change("output_tokens_per_s", baseline=900.0, candidate=800.0, change=0.111, low=0.1),
            "output tokens/s is 11.1 % lower (at least 10 %), more than the 5 % allowed",
        ),
        (
            change("error_rate", baseline=0.0, candidate=0.012, change=0.012, low=0.008, allowed=0.005),
            "error rate is 1.2 points higher (at least 0.8 points), more than the 0.5 points allowed",
        ),
        (
            change(verdict="UNRESOLVED", reason="the candidate has no such figure"),
            "TTFT p99: the candidate has no such figure",
        ),
    ],
)
def test_a_change_is_said_in_a_sentence(given: Any, said: str) -> None:
    """How much, at least how much, and how much was allowed; why, where it cannot be told."""
    assert gate_view.sentence(given) == said


@pytest.mark.parametrize("columns", [80, 120])
def test_a_gate_fits_its_page(columns: int) -> None:
    """Every figure of a line stands on it; what can be seen at all only where there is room."""
    page = printed(columns, slos={"new-1": [slo()]}, notes=["another machine: a, then b."])
    assert max(map(len, page.splitlines())) <= columns
    line = next(line for line in page.splitlines() if line.startswith("TTFT p99"))
    assert line.split() == [
        *("TTFT", "p99", "400", "ms", "459", "ms", "14.8", "11.2", "18.5", "5"),
        *(["3.1"] if columns == 120 else []),
        "FAIL",
    ]
    assert ("detectable: the least" in page) is (columns == 120)


def test_the_verdict_stands_first_and_what_is_wrong_next() -> None:
    """What failed before what cannot be told, and that once for all it is so of."""
    unseen = [change(metric, verdict="UNRESOLVED", reason="too short") for metric in ("itl_p50", "itl_p99")]
    lines = printed(120, changes=[good(), *unseen, change()]).splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["FAIL", "FAIL", "UNRESOLVED"]
    assert "at least 11.2 %" in lines[1]
    assert "ITL p50, ITL p99: too short" in lines[2]


def test_of_runs_that_tell_nothing_only_that_is_said() -> None:
    """A figure of theirs that failed would be taken for a fact."""
    lines = printed(120, verdict="INVALID", faults=["candidate new-1 is no good"]).splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["INVALID", "INVALID", "baseline:"]


def test_both_sides_are_named_with_how_they_were_measured() -> None:
    """A simulated figure never looks measured."""
    page = printed(120, candidates=[run("new-1", source="virtual", target="bundled engine")])
    assert "baseline: 5 runs, base-0 to base-4: measured over HTTP" in page
    assert "candidate: new-1: SIMULATED in virtual time, bundled engine; 1,998 of 2,000 requests ok" in page
    assert "paired by request (measured over HTTP and SIMULATED in virtual time)" in page


def test_a_missed_slo_is_said() -> None:
    """With its class, and its reason where the verdict is not plain."""
    missed = [
        slo(verdict="FAIL"),
        slo("p99(itl) <= 50ms", class_="chat", verdict="UNRESOLVED", reason="too few"),
    ]
    page = printed(120, changes=[good()], slos={"new-1": missed})
    assert "FAIL  SLO p99(ttft) <= 500ms does not hold" in page
    assert "UNRESOLVED  SLO chat, p99(itl) <= 50ms: too few" in page


def test_markdown_is_the_same_page_with_nothing_active() -> None:
    """Verdict, sentences, tables; a target's markup is text."""
    text = gate_markdown(gate(candidates=[run("new-1", target="[x](http://evil) @all | <b>")]))
    assert text.startswith("# loadgen gate: FAIL\n")
    assert "- FAIL: TTFT p99 is 14.8 % slower (at least 11.2 %), more than the 5 % allowed" in text
    assert "| TTFT p99 | 400 ms | 459 ms | 14.8 | 11.2 | 18.5 | 5 | 3.1 | FAIL |" in text
    assert r"\[x\](http\://evil) \@all \| \<b\>" in text
