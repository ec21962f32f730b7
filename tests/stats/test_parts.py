"""Figures by class and by turn: those of the same rows alone."""

from __future__ import annotations

import pytest

from loadgen.records import Outcome, Records, Try
from loadgen.stats import summarize
from tests.records import failed, ok, run_of

CLASSES = {
    "load": {"classes": {**{name: {"weight": 1} for name in ("chat", "batch", "never")}}},
    "goodput": {"ttft": "150ms"},
}


def test_a_class_has_the_figures_of_its_rows_alone() -> None:
    """By hand: of three chats one is refused, of two batches none; what was warm-up is in neither."""
    rows = [
        ok(0, 0.0, class_="chat", ttft_s=0.1, gaps_us=[10_000] * 3),
        failed(1, 1.0, Outcome.REJECTED, class_="chat"),
        ok(2, 2.0, class_="chat", ttft_s=0.3, gaps_us=[30_000]),
        ok(3, 3.0, class_="batch", ttft_s=0.2, gaps_us=[]),
        failed(4, 4.0, Outcome.BROKEN, class_="batch"),
        ok(5, 0.5, class_="batch", phase="warmup"),
    ]
    summary = summarize(run_of(rows, scenario=CLASSES))
    chat, batch = summary.by_class["chat"], summary.by_class["batch"]
    assert [*summary.by_class] == ["chat", "batch"]
    assert (chat.offered, chat.outcomes, chat.rejection_rate, chat.error_rate) == (
        3, {"ok": 2, "rejected": 1}, pytest.approx(1 / 3), 0.0,
    )  # fmt: skip
    assert (batch.offered, batch.rejection_rate, batch.error_rate) == (2, 0.0, 0.5)
    assert (chat.metrics["ttft_s"].mean, chat.metrics["ttft_s"].adjusted["p50"]) == (pytest.approx(0.2), 0.3)
    assert (chat.metrics["itl_s"].n, chat.metrics["itl_s"].offered) == (4, 8)  # a refused one owes four
    assert chat.metrics["output_tokens"].mean == 3
    assert chat.goodput is not None
    assert (chat.goodput.good, chat.goodput.rps) == (1, pytest.approx(0.1))


def test_parts_are_the_figures_of_a_run_of_those_rows() -> None:
    """Gaps and listed tokens go along with their rows: a class alone is a run without the others."""
    rows = [
        ok(i, i / 10, class_="chat" if i % 3 else "batch", gaps_us=[1000 * i + k for k in range(i % 4)])
        for i in range(30)
    ]
    rows[4] = ok(4, 0.4, class_="chat", gaps_us=[7, 9], event_tokens=[1, 2, 3], output_tokens=6)
    whole = summarize(run_of(rows, scenario=CLASSES))
    for name in ("chat", "batch"):
        alone = summarize(run_of([row for row in rows if row.class_ == name], scenario=CLASSES))
        assert {key: alone.metrics[key] for key in whole.by_class[name].metrics} == whole.by_class[
            name
        ].metrics


def test_a_run_without_classes_or_turns_has_no_parts() -> None:
    """Nothing to part it by."""
    summary = summarize(run_of([ok(0)]))
    assert (summary.by_class, summary.by_turn) == ({}, {})


def test_turns_are_told_apart_and_later_ones_together() -> None:
    """Of nine turns the fourth to the seventh, and from the eighth on, are one part each."""
    rows = [ok(i, float(i), session="0", turn=i + 1, ttft_s=round(0.1 * (i + 1), 6)) for i in range(9)]
    by_turn = summarize(run_of(rows)).by_turn
    assert {name: part.offered for name, part in by_turn.items()} == {
        "1": 1,
        "2": 1,
        "3": 1,
        "4-7": 4,
        "8+": 2,
    }
    assert by_turn["4-7"].metrics["ttft_s"].mean == pytest.approx(0.55)


def test_further_attempts_are_counted() -> None:
    """A row is offered once, however often it was tried."""
    again = [Try(outcome=Outcome.REJECTED, status=429)] * 2
    summary = summarize(run_of([ok(0, retried=again), ok(1, 1.0), ok(2, 2.0, phase="tail", retried=again)]))
    assert (summary.offered, summary.outcomes, summary.retries) == (2, {"ok": 2}, 2)


def test_no_rows_are_picked_from_none() -> None:
    """Columns stay columns."""
    empty = Records.from_records([])
    assert len(empty.only(empty.measured)) == 0
