"""The shape of a run's latencies: a line of small bars each, over a log axis from least to largest."""

from __future__ import annotations

from loadgen.report import summary_view
from loadgen.report.figures import duration
from loadgen.stats.summary import Distribution, Summary

LEGEND = "a bar each of a log axis; │ at p50 and p99"
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_MARK = "│"
_MARKED = ("p50", "p99")


def title(s: Summary) -> str:
    return f"Shape ({summary_view.source_of(s)}): {LEGEND}"


def lines(s: Summary) -> list[str]:
    """One line each of TTFT, E2E and ITL, or of chunk gaps where no token's gap is known; none of nothing."""
    gaps = "itl_s" if s.metrics["itl_s"].n else "chunk_gap_s"
    shown = {key: d for key in ("ttft_s", "e2e_s", gaps) if (d := s.metrics[key]).bins}
    names = {key: summary_view.METRICS[key][0] for key in shown}
    ends = {key: (duration(d.min), duration(d.max)) for key, d in shown.items()}
    left, right = (
        max(map(len, names.values()), default=0),
        max((len(low) for low, _ in ends.values()), default=0),
    )
    return [
        f"{names[key]:<{left}}  {ends[key][0]:>{right}} {bars(d)} {ends[key][1]}" for key, d in shown.items()
    ]


def bars(d: Distribution) -> str:
    """A bar for each bin, as high as its count; a mark after those that hold p50 and p99."""
    top = max(count for _, count in d.bins)
    drawn = ""
    below = -1.0
    for edge, count in d.bins:
        drawn += _EIGHTHS[-(-count * 8 // top)]  # what is there at all, is seen
        drawn += _MARK * any(below < (d.quantiles[key] or 0.0) <= edge for key in _MARKED)
        below = edge
    return drawn
