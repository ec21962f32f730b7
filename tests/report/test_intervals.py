"""How sure percentiles are, in words."""

from __future__ import annotations

from itertools import pairwise

from loadgen.report.summary_view import latencies
from loadgen.report.tables import SURE, UNDECIDED
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
    p50, late = (next(i for i, c in enumerate(table.columns) if c.head == h) for h in ("p50", "p99 adjusted"))
    assert [under["TTFT"][i] for i in (2, p50, late)] == ["eff. 420", "51.2–70.1", "≥ 200"]
    assert [under["E2E"][i] for i in (2, p50, late)] == ["eff. 37", "0.0512–0.0701", UNDECIDED]
    assert [under["TPOT"][i] for i in (2, p50, late)] == ["", UNDECIDED, UNDECIDED]
    assert [under["longest stall"][i] for i in (p50, late)] == ["", "> max"]
    assert len(under) == 4


def test_the_signs_of_intervals_are_explained_only_where_they_occur() -> None:
    """A run without intervals says nothing of them."""
    sure = metrics(ttft_s=distribution(0.07, intervals={"p99": Interval()}))
    assert any(note.startswith("95 %:") for note in latencies(summary(metrics=sure)).notes)
    assert any(note.startswith(UNDECIDED) for note in latencies(summary(metrics=sure)).notes)
    plain = latencies(summary()).notes
    assert not any(note.startswith(("95 %", UNDECIDED)) for note in plain)
