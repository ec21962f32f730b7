"""What is shown of the server's own metrics."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace
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
    looks_in_window=10,
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
        assert "agree with ours within what the 1 request that was cut short may have had: 180 prompt" in page
        assert "180 prompt tokens (ours 160)" in page
        assert (
            "7 of the 10 slowest first tokens overlap a preemption; by chance 12.0 % of them would." in page
        )


def test_requests_that_we_ended_ourselves_are_told_as_such() -> None:
    """And how to do without them; others are only told to be cut."""
    apart = [Agreement(figure="output_tokens", server=41, ours=40, verdict="cut")]
    (said,) = sentences(with_server(agreement=apart, cut=1, cut_tail=1))
    assert said == (
        "The server's counts agree with ours within what the 1 request of the tail load that we ended may "
        "have had (--no-tail leaves it out): 41 output tokens (ours 40)."
    )
    assert "3 requests that were cut short" in sentences(with_server(agreement=apart, cut=3, cut_tail=1))[0]
    assert "that were retried" in sentences(with_server(agreement=apart))[0]
    both = "the 3 requests cut short, and requests that were retried, may have had"
    assert both in sentences(with_server(agreement=apart, cut=3, cut_tail=3, retries=1))[0]


def test_of_several_servers_those_that_told_nothing_are_counted() -> None:
    """And marked in the table of each."""
    silent = replace(PART, means={}, peaks={}, counts={}, kind=None, looks=0)
    s = with_server(
        whole=replace(silent, looks=8, kind="vLLM"), by_target={"http://a": PART, "http://b": silent}
    )
    assert "Of 2 servers 1 told nothing: what all do together is not known." in sentences(s)
    (*_, by_server) = tables(s, "")
    assert [row[-1].split(" of ")[0] for row in by_server.rows] == [str(PART.looks), "0"]


def test_no_look_in_the_window_is_said_and_is_no_zero() -> None:
    """What was before does not stand for it."""
    part = replace(PART, means={}, peaks={}, looks_in_window=0)
    s = replace(with_server(whole=part), window_start_s=1.0, window_end_s=1.48)
    (table,) = tables(s, "")
    assert table.rows[0] == ["looks", "0", "", "in the window of 480 ms: what ran then is not known"]
    assert "running" not in [row[0] for row in table.rows]
    _, by_server = tables(with_server(whole=part, by_target={"http://a": part}), "")
    assert by_server.rows[0][1:4] == ["–", "–", "–"]


def test_a_server_that_tells_nothing_of_use_has_its_place_all_the_same() -> None:
    """With what is to be said of it."""
    part = replace(PART, means={}, peaks={}, counts={}, kind=None, left_out="running of -5")
    page = shown(with_server(whole=part), 300)
    assert "that is of use here" in page
    assert "None of its metrics has a name" in page
    assert "Left out of it: running of -5." in page


def test_a_mean_reads_no_higher_than_the_most() -> None:
    """12,345.6 of at most 12,346."""
    part = replace(PART, means={"running": 12_345.6}, peaks={"running": 12_346.0})
    (table,) = tables(with_server(whole=part), "")
    assert table.rows[0][1] == "12,346"


def test_our_first_tokens_stand_beside_with_their_number() -> None:
    """Of the same requests as the server's, so far as we know."""
    (table,) = tables(with_server(ttft_from_send_s=0.26, ttft_count=5), "")
    (row,) = [row for row in table.rows if row[0] == "TTFT"]
    assert row[3] == "mean of 4 requests; ours from sending 260 ms, of 5"


def test_counts_after_a_restart_are_at_least() -> None:
    """What came between the last look and it is lost."""
    (table,) = tables(with_server(whole=replace(PART, restarts=1)), "")
    assert ["preemptions", "3", "", "at least, over the whole run"] in table.rows


def test_no_head_is_broken_on_a_usual_terminal() -> None:
    """100 columns, with a name of some length."""
    name = "http://127.0.0.1:8000 (127.0.0.1:8000)"
    page = shown(with_server(by_target={name: PART, name + "1": PART}))
    assert "  preempted  " in page


def test_an_absent_server_is_one_line_with_the_reason() -> None:
    """In the server's place, harmless whatever the server put into it."""
    s = with_server(whole=None, absent="GET http://x/metrics: 404 \x1b[31mnope")
    (table,) = tables(s, "")
    assert table.rows == [["metrics", "none", "", "GET http://x/metrics: 404 nope"]]
    assert sentences(s) == []
    for page in (shown(s, 300), summary_markdown(s)):
        before, _, after = page.partition("Server, by its own metrics")
        assert "/x/metrics: 404 nope" in after
        assert "404" not in before


def test_a_run_without_a_server_says_nothing_of_one() -> None:
    """As a simulated one."""
    assert "Server, by its own metrics" not in shown(summary())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"looks": 5, "error": "GET x: no answer within 2 s"}, "5 times, where 12 were due"),
        ({"longest_gap_s": 4.0}, "once not for 4.00 s"),
        (
            {"untold": ["kv_share", "queue_s_sum", "queue_s_count"]},
            "The server does not tell: KV cache, time in",
        ),
        ({"left_out": "running of -5"}, "Left out of it: running of -5."),
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
    assert by_server.rows[0][1:] == ["7.50", "–", "50.0 %", "3", "–", "–", "12 of 12"]


def test_the_page_of_a_run_has_it_as_well() -> None:
    """And the reason where there is none."""
    run = run_of([ok(i, float(i)) for i in range(3)])
    run = Run(run.header, run.records, server=ServerLog(absent="GET /metrics: 404"))
    assert "GET /metrics: 404" in run_page(run, summarize(run))
