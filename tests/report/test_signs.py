"""A stream that lacks our signs gets letters for them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from loadgen.report import signs
from loadgen.report.terminal import print_summary
from tests.report.summaries import distribution, metrics, summary


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_a_report_can_be_written_to_any_stream(encoding: str) -> None:
    """An infinitely late p99 is `inf` there, and the server's own letters are lost rather than the report."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    late = metrics(ttft_s=distribution(0.0671, adjusted={"p99": None}))
    print_summary(
        summary(metrics=late, model="过载"), Console(file=stream, width=100, _environ={}), folder=None
    )
    stream.flush()
    text = raw.getvalue().decode(encoding)
    assert "model ??" in text
    assert "inf" in next(line for line in text.splitlines() if line.startswith("TTFT "))


def test_a_stream_that_can_write_them_keeps_the_signs() -> None:
    """UTF-8 lacks nothing."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8")
    signs.allow(stream)
    stream.write("≤ ∞ – 过载")
    stream.flush()
    assert raw.getvalue().decode() == "≤ ∞ – 过载"
