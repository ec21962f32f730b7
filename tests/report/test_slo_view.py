"""What is said of SLOs: of whose they are, how sure, and what they leave out."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.report import slo_view, summary_view
from loadgen.slo_sets import SETS
from loadgen.stats import Summary, summarize
from tests.records import ok, run_of


def summary(*slos: str, **scenario: Any) -> Summary:
    rows = [ok(i, i / 10) for i in range(100)]
    return summarize(run_of(rows, scenario={"slos": list(slos), **scenario}))


def notes(*slos: str, **scenario: Any) -> str:
    table = slo_view.table(summary(*slos, **scenario), "measured")
    assert table is not None
    return " ".join(table.notes)


@pytest.mark.parametrize(
    ("slo", "goodput", "noted"),
    [
        ("share(tpot<=50ms, longest_stall<=1s) >= 90%", {}, True),
        ("share(tpot<=50ms, ttft<=1s) >= 90%", {}, False),
        ("share(fluidity>=0.9) >= 90%", {}, False),
        ("goodput >= 1/s", {"tpot": "50ms"}, True),
        ("goodput >= 1/s", {"tpot": "50ms", "e2e": "9s"}, False),
        ("p99(itl) <= 50ms", {}, False),
    ],
)
def test_a_share_that_knows_nothing_of_the_wait_is_noted(
    slo: str, goodput: dict[str, str], noted: bool
) -> None:
    """A goodput or share of gaps alone can be raised by holding tokens back."""
    fluidity = {"ttft": "1s", "itl": "50ms", "rule": "code"}
    said = notes(slo, goodput=goodput, fluidity=fluidity)
    assert (f"{slo}: it says nothing of the wait for the first token" in said) == noted


def test_a_goodput_of_gaps_alone_is_noted_without_any_slo() -> None:
    """Beside the rate itself; not where it has a limit of TTFT."""
    said = [summary_view.rates(summary(goodput=limits)).notes for limits in ({"tpot": "1s"}, {"ttft": "1s"})]
    assert ["holds tokens back" in " ".join(notes) for notes in said] == [True, False]


def test_a_class_whose_goodput_is_of_gaps_alone_is_named() -> None:
    """It, and not the class beside it; so is an SLO of its own."""
    classes = {
        "chat": {"weight": 1, "goodput": {"tpot": "1s"}, "slos": ["goodput >= 1/s"]},
        "batch": {"weight": 1, "goodput": {"e2e": "9s"}, "slos": ["goodput >= 2/s"]},
    }
    rows = [ok(i, i / 10, class_=("chat", "batch")[i % 2]) for i in range(100)]
    s = summarize(run_of(rows, scenario={"load": {"classes": classes}}))
    table = slo_view.table(s, "measured")
    assert table is not None
    for notes, name in ((summary_view.rates(s).notes, "goodput, "), (table.notes, "")):
        said = [note for note in notes if "holds tokens back" in note]
        assert [note.startswith(f"{name}chat") for note in said] == [True]


def test_a_limit_that_grows_with_the_prompt_is_shown_so() -> None:
    """In the SLO's own words, and in those of goodput."""
    s = summary("p99(ttft) <= 500ms + 0.2ms/token", goodput={"ttft": "500ms + 0.2ms/token"})
    table = slo_view.table(s, "measured")
    assert table is not None
    assert table.rows[0][0] == "p99(ttft) <= 500ms + 0.2ms/token"
    assert ["goodput", "TTFT <= 500ms + 200us/token"] in [
        [row[0], row[3]] for row in summary_view.rates(s).rows
    ]


def test_a_set_says_whose_it_is_and_how_sure() -> None:
    """Its note once; the confidence of each bound, where there are two both."""
    said = notes("mlperf-gpt-oss-120b-interactive", "p99(ttft) <= 1s")
    assert said.count("mlperf-gpt-oss-120b-interactive: MLPerf") == 1
    assert "with 95 % or 99 % confidence" in said
    assert "with 95 % confidence" in notes("p99(ttft) <= 1s")


def test_every_set_is_listed_with_its_note() -> None:
    """One row each; a family's note once."""
    table = slo_view.sets()
    assert [row[0] for row in table.rows] == [*SETS]
    assert sum("DistServe" in note for note in table.notes) == 1
    assert all(any(each.note in note for note in table.notes) for each in SETS.values())
