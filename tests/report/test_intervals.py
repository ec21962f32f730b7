"""How sure percentiles are, in words."""

from __future__ import annotations

from loadgen.report.summary_view import latencies
from loadgen.stats.summary import Interval
from tests.report.summaries import distribution, metrics, summary


def test_what_is_decided_has_bounds_and_the_rest_its_effective_n() -> None:
    """A bound past the last value is beyond it, never the maximum; without intervals nothing is said."""
    near = Interval(low=0.0512, high=0.0701, decided=True)
    open_ended = Interval(low=0.2, high=None, decided=True)
    told = metrics(
        ttft_s=distribution(0.0671, n_effective=420.2, intervals={"p50": near, "p99": open_ended}),
        e2e_s=distribution(2.41, n_effective=37.4, intervals={"p50": near, "p99": Interval()}),
        tpot_s=distribution(0.0183, intervals={"p50": Interval(), "p99": Interval()}),
        longest_stall_s=distribution(0.07, intervals={"p99": Interval(decided=True)}),
    )
    notes = latencies(summary(metrics=told)).notes
    assert "TTFT: p50 51.2 ms to 70.1 ms, p99 200 ms to > max, effective n = 420." in notes
    assert "E2E: p50 51.2 ms to 70.1 ms, effective n = 37, p99 undecided." in notes
    assert "TPOT: p50 and p99 undecided." in notes
    assert "longest stall: p99 > max." in notes
    assert sum(" p99 " in note for note in notes) == 4
    assert not any("undecided" in note or "Intervals" in note for note in latencies(summary()).notes)
