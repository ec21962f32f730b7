"""What is printed of a trace."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from loadgen.engine.trace import Iteration
from loadgen.report.tables import Table
from loadgen.report.terminal import print_trace
from loadgen.report.trace_view import look, tables
from loadgen.stats.summary import Finding, SloResult, Summary
from tests.engine.iterations import BASELINE, iteration
from tests.report.summaries import summary

VIRTUAL = summary(source="virtual")


def printed(
    trace: list[Iteration], width: int = 120, judged: Summary = VIRTUAL, *, alone: bool = False
) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=False, _environ={})
    print_trace("baseline", look(lambda: trace), judged, console, folder=Path("runs/x"), alone=alone)
    return file.getvalue()


def row(text: str, first: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def table(trace: list[Iteration], title: str) -> Table:
    return next(found for found in tables(look(lambda: trace)) if found.title == title)


def column(found: Table, head: str) -> list[str]:
    place = [c.head for c in found.columns].index(head)
    return [cells[place] for cells in found.rows]


def test_what_speaks_against_a_run_stands_at_its_head() -> None:
    """Overload and a finding, before any iteration."""
    finding = Finding(name="x", effect="warning", text="something is off", remedy="mend it")
    text = printed(BASELINE, judged=summary(source="virtual", overloaded=True, findings=[finding]))
    head = text[: text.index("Iterations")]
    assert head.startswith("baseline  VALID, SIMULATED in virtual time")
    assert "Something is off. Mend it." in head
    assert "Overloaded" in head


@pytest.mark.parametrize("alone", [True, False])
def test_what_was_promised_is_judged_before_any_iteration(alone: bool) -> None:
    """The verdict and the SLO that it comes from, of one run as of several; figures of one alone."""
    missed = SloResult(
        slo="p99(ttft) <= 1s", verdict="FAIL", reason="", value=0.5, low=0.4, high=0.6, n=9,
        n_effective=9, n_to_decide=None,
    )  # fmt: skip
    judged = summary(source="virtual", slos=[missed], verdict="FAIL")
    text = printed(BASELINE, judged=judged, alone=alone)
    head = text[: text.index("Iterations")]
    assert "FAIL  1 of 1 SLOs" in head
    assert "p99(ttft) <= 1s  FAIL" in head
    assert ("Latency" in head) == alone


def test_the_teaching_table_stands_as_on_paper() -> None:
    """Iteration 3 of the baseline: prompts of D and A end, E waits, two tokens of six are unused."""
    found = table(BASELINE, "Iterations")
    heads = ["#", "decode", "prefill", "emitted", "preempted", "rejected", "admitted", "completed"]
    assert [c.head for c in found.columns] == [*heads, "queue", "active", "unused"]
    assert found.rows[3] == ["3", "", "D:1 A:3", "D A", "", "", "A", "", "E", "D A", "2"]
    assert column(found, "unused") == ["0", "3", "2", "2", "4", "4"]


def test_every_request_has_its_row() -> None:
    """In which iteration its first output came, its last, and what became of it."""
    found = table(BASELINE, "Requests")
    assert found.rows[0] == ["A", "3", "5", "1", "completed"]
    assert found.rows[5] == ["F", "–", "–", "0", "rejected"]


def test_the_totals_answer_the_questions_of_the_lesson() -> None:
    """Longest queue, preemptions, rejections, unused budget, whether a decode waited, slots."""
    found = {cells[0]: cells[1:] for cells in table(BASELINE, "In all").rows}
    assert found["longest queue"][0] == "2"
    assert found["preemptions"][0] == found["rejections"][0] == "1"
    assert found["unused budget"] == ["15", "tokens in all, 2.50 an iteration"]
    assert found["decode waited"][0] == "never"
    assert found["slots used"] == ["100 %", "12 of 12"]


def test_slots_wasted_are_those_of_the_arithmetic_of_static_batching() -> None:
    """Eight answers of 20 to 200 tokens in one batch: 765 of 1,600 slots useful, 835 wasted, 52.19 %."""
    lengths = [20, 45, 80, 120, 150, 90, 60, 200]
    trace = [iteration(n, slots=8, used_slots=sum(n < length for length in lengths)) for n in range(200)]
    found = {cells[0]: cells[1:] for cells in table(trace, "In all").rows}
    assert found["slots used"] == ["47.8 %", "765 of 1,600"]
    assert found["slots wasted"] == ["52.2 %", "835 of 1,600: empty, or padding"]


def test_a_decode_that_waited_is_said_with_the_first_iteration() -> None:
    """Where to look."""
    trace = [iteration(n, decode_waited=n in (4, 7)) for n in range(9)]
    found = {cells[0]: cells[1:] for cells in table(trace, "In all").rows}
    assert found["decode waited"] == ["2", "iterations in which prompts held up a decode, first in 4"]


def test_a_column_with_nothing_in_it_is_not_shown() -> None:
    """No memory, no preemption, steps all alike; and the step where they differ."""
    heads = [
        c.head for c in table([iteration(0, decode="A"), iteration(1, decode="A")], "Iterations").columns
    ]
    assert heads == ["#", "decode"]
    varied = [iteration(0, decode="A", kv_blocks=7), iteration(1, decode="A", step_s=0.25)]
    assert table(varied, "Iterations").rows == [["0", "A", "7", "1.00 s"], ["1", "A", "", "250 ms"]]


def test_steps_that_differ_by_the_rounding_of_a_clock_are_alike() -> None:
    """0.3 - 0.2 is no other step than 0.1."""
    trace = [iteration(0, decode="A", step_s=0.1), iteration(1, decode="A", step_s=0.3 - 0.2)]
    assert [c.head for c in table(trace, "Iterations").columns] == ["#", "decode"]


def test_of_an_engine_that_never_ran_only_the_totals_are_shown() -> None:
    """A batch that waits for ever to fill."""
    assert [found.title for found in tables(look(list))] == ["In all"]
    assert "slots used – 0 of 0" in " ".join(printed([]).split())


def test_a_long_trace_is_cut_in_the_middle() -> None:
    """20 rows of either end, and how many are left out."""
    trace = [iteration(n, admitted=f"r{n}", completed=f"r{n}") for n in range(1244)]
    text = printed(trace)
    assert "… 1,204 more iterations, all in iterations.jsonl." in text
    assert "… 1,204 more requests." in text
    assert column(table(trace, "Iterations"), "#")[19:22] == ["19", "…", "1,224"]


def test_many_names_are_cut_and_counted() -> None:
    """A batch of 64 takes no more room than a few."""
    names = " ".join(f"request-{n}" for n in range(64))
    assert column(table([iteration(0, decode=names)], "Iterations"), "decode") == ["request-0 request-1 +62"]


def test_a_long_name_is_cut_and_its_tokens_are_not() -> None:
    """What the step computed is what the column is for."""
    found = table([iteration(0, prefill=[("a-request-of-a-long-name", 512)])], "Iterations")
    assert column(found, "prefill") == ["a-request-of-a-…:512"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_page(width: int) -> None:
    """Columns that do not fit are left out, and named."""
    crowded = [
        iteration(n, decode="A " * 64, queue="B " * 9, active="A " * 64, emitted="B") for n in range(99)
    ]
    for trace in (BASELINE, crowded):
        text = printed(trace, width)
        assert max(map(cell_len, text.splitlines())) <= width
        assert not any(line != line.rstrip() for line in text.splitlines())
    assert "left out for width" not in printed(BASELINE, 120)


def test_names_from_a_scenario_cannot_steer_the_terminal() -> None:
    """Nor take the whole line."""
    text = printed([iteration(0, admitted="a\x1b[31mb" + "c" * 99)])
    assert "\x1b" not in text
    assert "c" * 30 not in text
