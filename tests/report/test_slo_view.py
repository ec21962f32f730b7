"""What is said of SLOs: of whose they are, how sure, and what they leave out."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.report import slo_view, summary_view
from loadgen.report.tables import Table
from loadgen.slo_sets import SETS
from loadgen.stats import Summary, summarize
from tests.records import failed, ok, run_of


def summary(*slos: str, **scenario: Any) -> Summary:
    rows = [ok(i, i / 10) for i in range(100)]
    return summarize(run_of(rows, scenario={"slos": list(slos), **scenario}))


def _table(*slos: str) -> Table:
    made = slo_view.table(summary(*slos), "measured")
    assert made is not None
    return made


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


def test_a_percentile_is_shown_itself_beside_the_share_that_decides() -> None:
    """Of 100 TTFTs of 10 to 1,000 ms, p90 is 900 ms; with 20 failures it never came; no p98 is kept."""
    slos = ["p90(ttft) <= 5s", "p98(ttft) <= 5s", "mean(e2e) <= 9s"]
    rows = [ok(i, i / 10, ttft_s=(i + 1) / 100) for i in range(100)]
    late = [failed(100 + i, 10 + i / 10) for i in range(20)]
    for some, p90 in ((rows, "900 ms"), (rows + late, "∞")):
        table = slo_view.table(summarize(run_of(some, scenario={"slos": slos})), "measured")
        assert table is not None
        at = [column.head for column in table.columns].index("value")
        assert [row[at] for row in table.rows] == [p90, "–", "–"]
    assert "value" not in [column.head for column in _table("mean(e2e) <= 9s").columns]


def test_a_percentile_of_a_class_is_of_its_own() -> None:
    """Of every second request: 10, 30, ... 990 ms."""
    classes = {"chat": {"weight": 1, "slos": ["p50(ttft) <= 5s"]}, "batch": {"weight": 1}}
    rows = [ok(i, i / 10, ttft_s=(i + 1) / 100, class_=("chat", "batch")[i % 2]) for i in range(100)]
    s = summarize(run_of(rows, scenario={"load": {"classes": classes}}))
    assert slo_view.percentile(s.slos[0], s) == "490 ms"


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
