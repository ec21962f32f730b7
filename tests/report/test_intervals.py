"""How sure percentiles are, in words."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from rich.console import Console

from loadgen.report.markdown import summary_markdown
from loadgen.report.summary_view import latencies
from loadgen.report.tables import SURE, SURE_ADJUSTED, UNDECIDED
from loadgen.report.terminal import print_summary
from loadgen.stats.summary import Interval
from tests.report.summaries import distribution, metrics, summary


def test_what_is_decided_has_bounds_and_the_rest_its_effective_n() -> None:
    """In a row under the metric's, in its unit; a bound past the last value is open, never the maximum."""
    near = Interval(low=0.0512, high=0.0701, decided=True)
    open_ended = Interval(low=0.2, high=None, decided=True)
    told = metrics(
        ttft_s=distribution(0.0671, n_effective=420.2, intervals={"p50": near, "p99": open_ended}),
        e2e_s=distribution(2.41, n_effective=37.4, intervals={"p50": near, "p99": Interval()}),
        tpot_s=distribution(0.0183, intervals={"p50": Interval(), "p99": Interval()}),
        longest_stall_s=distribution(0.07, intervals={"p99": Interval(decided=True)}),
    )
    table = latencies(summary(metrics=told))
    under = {above[0]: row for above, row in pairwise(table.rows) if row[0] == SURE}
    heads = ("p50", "p99", "p99 adjusted")
    places = [next(i for i, c in enumerate(table.columns) if c.head == h) for h in heads]
    found = {name: [row[i] for i in places] for name, row in under.items()}
    assert found == {
        "TTFT": ["51.2–70.1", "eff. 420", "≥ 200"],
        "E2E": ["0.0512–0.0701", "eff. 37", UNDECIDED],
        "TPOT": [UNDECIDED, "", UNDECIDED],
        "longest stall": ["", "", "> max"],
    }


def test_an_interval_under_a_plain_figure_that_it_is_not_of_says_so() -> None:
    """Two of three failed: the p50 of all is infinitely late, that of the ok ones above it is not."""
    late = {"p50": Interval(decided=True), "p99": Interval(decided=True)}
    told = metrics(ttft_s=distribution(1.018, 144, offered=427, n_effective=103.0, intervals=late))
    table = latencies(summary(metrics=told))
    above, row = next((a, b) for a, b in pairwise(table.rows) if a[0] == "TTFT")
    assert (above[4], row[0], row[4]) == ("1,018", SURE_ADJUSTED, "> max")
    assert any("> max: it lies beyond" in note for note in table.notes)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_what_stands_under_the_latencies_is_short_and_of_this_run(width: int) -> None:
    """At most eight lines of 100 cells with every sign at once; definitions are where there is room."""
    told = metrics(
        ttft_s=distribution(
            0.06, 90, offered=99, n_effective=60.0, intervals={"p50": Interval(low=0.05, decided=True)}
        ),
        e2e_s=distribution(
            0.06,
            90,
            offered=99,
            adjusted={"p99": None},
            intervals={"p50": Interval(), "p99": Interval(decided=True)},
        ),
        tpot_s=distribution(0.02, 90, mean=None),
    )
    s = summary(metrics=told)
    out = io.StringIO()
    print_summary(s, Console(file=out, width=width, _environ={}), folder=None)
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    under = text[text.index("TTFT and E2E count from due") : text.index("Rates (")].strip().splitlines()
    said = " ".join(map(str.strip, under))
    assert all(f"{sign}: " in said for sign in ("∞", "~", "95 %", "≥", "> max", UNDECIDED, "–"))
    assert width < 100 or len(under) <= 8
    assert "one figure a request" not in text
    assert "TPOT: " in summary_markdown(s)


def test_the_signs_of_intervals_are_explained_only_where_they_occur() -> None:
    """A run without intervals says nothing of them."""
    sure = metrics(ttft_s=distribution(0.07, intervals={"p99": Interval()}))
    assert any(note.startswith("95 %:") for note in latencies(summary(metrics=sure)).notes)
    assert any(note.startswith(UNDECIDED) for note in latencies(summary(metrics=sure)).notes)
    plain = latencies(summary()).notes
    assert not any(note.startswith(("95 %", UNDECIDED)) for note in plain)
