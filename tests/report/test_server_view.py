"""What is shown of the server's own metrics."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from loadgen.pages.run_page import run_page
from loadgen.report.markdown import summary_markdown
from loadgen.report.server_view import sentences, tables
from loadgen.report.terminal import print_summary
from loadgen.run import Run
from loadgen.server_log import ServerLog
from loadgen.stats import summarize
from loadgen.stats.summary import Agreement, Overlap, ServerPart, ServerSide, Summary
from tests.records import ok, run_of
from tests.report.summaries import summary

PART = ServerPart(
    kind="vLLM",
    looks=12,
    looks_due=12,
    longest_gap_s=1.0,
    restarts=0,
    means={"running": 7.5, "kv_share": 0.25},
    peaks={"running": 16.0, "kv_share": 0.5},
    counts={
        "preemptions": 3.0,
        "queue_s_sum": 2.0,
        "queue_s_count": 8.0,
        "ttft_s_sum": 1.0,
        "ttft_s_count": 4.0,
    },
)


def with_server(**changes: object) -> Summary:
    return summary(server=ServerSide(**({"whole": PART} | changes)))  # type: ignore[arg-type]


def shown(s: Summary, width: int = 100) -> str:
    out = io.StringIO()
    print_summary(s, Console(file=out, width=width), folder=None)
    return out.getvalue()


def test_each_figure_has_its_unit_and_what_it_is_of() -> None:
    """Means of counts by hand: 2 s over 8 requests, 1 s over 4. What is not told has no row."""
    (table,) = tables(with_server(), "measured over HTTP")
    assert table.title == "Server, by its own metrics, under vLLM's names (measured over HTTP)"
    figures = {row[0]: row[1:] for row in table.rows}
    assert figures["running"][:2] == ["7.50", "requests"]
    assert "at most 16" in figures["running"][2]
    assert figures["KV cache"][0] == "25.0 %"
    assert figures["preemptions"][0] == "3"
    assert figures["queue"][:2] == ["250", "ms"]
    assert figures["TTFT"][:2] == ["250", "ms"]
    assert {"waiting", "cache hits", "step"}.isdisjoint(figures)


def test_every_page_has_the_table_and_what_is_to_be_said() -> None:
    """On a terminal, in Markdown."""
    s = with_server(
        agreement=[
            Agreement(figure="output_tokens", server=40, ours=40, verdict="equal"),
            Agreement(figure="prompt_tokens", server=180, ours=160, verdict="cut"),
        ],
        cut=1,
        overlaps=[Overlap(of="ttft", what="preemption", slowest=10, hit=7, share=0.12)],
    )
    for page in (shown(s, 300), summary_markdown(s)):
        assert "Server, by its own metrics" in page
        assert "over all requests: 40 output tokens." in page
        assert "1 request was cut short" in page
        assert "180 prompt tokens (ours 160)" in page
        assert "7 of the 10 slowest first tokens overlap a preemption, as 12.0 % of all do." in page


def test_an_absent_server_is_one_line_with_the_reason() -> None:
    """Harmless whatever the server put into it; no table, no heading."""
    s = with_server(whole=None, absent="GET http://x/metrics: 404 \x1b[31mnope")
    assert tables(s, "") == sentences(s) == []
    line = "server metrics: none (GET http://x/metrics: 404 nope)"
    assert line in shown(s, 300)
    assert "server metrics: none" in summary_markdown(s)


def test_a_run_without_a_server_says_nothing_of_one() -> None:
    """As a simulated one."""
    assert "server metrics" not in shown(summary())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"looks": 5, "error": "GET x: no answer within 2 s"}, "5 times, where 12 were due"),
        ({"longest_gap_s": 4.0}, "once not for 4.00 s"),
        ({"kind": None}, "None of its metrics has a name that is known here"),
    ],
)
def test_what_it_did_not_tell_is_said(changes: dict[str, object], said: str) -> None:
    """A gap in the looks is no quiet server."""
    part = ServerPart(**({name: getattr(PART, name) for name in PART.__struct_fields__} | changes))
    assert said in " ".join(sentences(with_server(whole=part)))


def test_each_of_several_servers_has_a_row() -> None:
    """Beside all together."""
    _, by_server = tables(with_server(by_target={"http://a": PART, "http://b": PART}), "measured over HTTP")
    assert [row[0] for row in by_server.rows] == ["http://a", "http://b"]
    assert by_server.rows[0][1:] == ["7.50", "–", "50.0 %", "3", "–", "–"]


def test_the_page_of_a_run_has_it_as_well() -> None:
    """And the reason where there is none."""
    run = run_of([ok(i, float(i)) for i in range(3)])
    run = Run(run.header, run.records, server=ServerLog(absent="GET /metrics: 404"))
    assert "server metrics: none (GET /metrics: 404)" in run_page(run, summarize(run))
