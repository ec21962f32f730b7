"""What a server told of itself, from logs made by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb
from typing import Any

import pytest

from loadgen.records import Outcome, RequestRecord
from loadgen.run import Run
from loadgen.server_log import Scrape, ServerLog
from loadgen.stats import summarize
from loadgen.stats.outliers import _chance
from loadgen.stats.scraped import together, track, tracks
from loadgen.stats.server import COUNTS, RESTARTS, findings, server_side
from loadgen.stats.summary import Overlap, ServerPart, ServerSide
from tests.records import failed, ok, run_of

ROWS = [ok(i, float(i)) for i in range(10)]  # of 16 and 4 tokens each


def looks(*values: dict[str, float] | None, first_s: float = -0.1, **more: Any) -> list[Scrape]:
    """One a second; None: it did not answer."""
    return [
        Scrape(
            at_s=first_s + i,
            took_s=0.01,
            kind="vLLM",
            values=each or {},
            error=None if each is not None else "no answer",
            **more,
        )
        for i, each in enumerate(values)
    ]


def run_with(scrapes: list[Scrape], rows: list[RequestRecord] = ROWS, **header: Any) -> Run:
    return replace(run_of(rows, **header), server=ServerLog(scrapes=tuple(scrapes)))


def counting(name: str, *values: float | None) -> list[Scrape]:
    return looks(*({} if value is None else {name: value} for value in values))


def side(run: Run) -> ServerSide:
    found = server_side(run)
    assert found is not None
    return found


def whole(scrapes: list[Scrape], rows: list[RequestRecord] = ROWS) -> ServerPart:
    found = side(run_with(scrapes, rows)).whole
    assert found is not None
    return found


# --- counts and gauges --------------------------------------------------------------------------------------


def test_a_count_is_from_the_last_look_before_the_run_on() -> None:
    """What was there before, and what the looks before that saw, is in no figure."""
    scrapes = counting("output_tokens", 70, 100, 130, 190)
    for scrape, at_s in zip(scrapes, (-1.5, -0.5, 0.5, 1.5), strict=True):
        scrape.at_s = at_s
    assert whole(scrapes).counts == {"output_tokens": 90}


def test_a_count_that_falls_starts_anew() -> None:
    """100 to 130, then a restart, then 20 and 50: 80 in all. It is told, once for all counts."""
    values = [{"output_tokens": a, "preemptions": b} for a, b in [(100, 5), (130, 6), (20, 0), (50, 1)]]
    found = whole(looks(*values))
    assert found.counts == {"output_tokens": 80, "preemptions": 2}
    assert found.restarts == 1


def test_a_count_that_is_not_there_yet_begins_at_0() -> None:
    """Some servers have a counter from its first event on."""
    assert whole(counting("rejected", None, None, 3, 5)).counts == {"rejected": 5}


def test_what_is_never_told_is_not_there() -> None:
    """Absent is no 0."""
    found = whole(counting("output_tokens", 1, 2))
    assert "preemptions" not in found.counts
    assert found.means == found.peaks == {}
    assert found.ratio("prefix_hits", "prefix_queries") is None


def test_a_gauge_is_of_the_looks_in_the_window() -> None:
    """The one before the run, the ones after the window and the one without an answer are left out."""
    values = [{"running": float(n)} for n in (99, 2, 4)]
    found = whole(looks(*values, None, *({"running": 6.0},) * 7, {"running": 99.0}))
    assert found.means == {"running": pytest.approx((2 + 4 + 6 * 7) / 9)}
    assert found.peaks == {"running": 6}


def test_what_was_missed_is_counted() -> None:
    """Of six looks two had no answer, one after the other: three seconds without."""
    answer = {"running": 1.0}
    found = whole(looks(answer, answer, None, None, answer, answer))
    assert (found.looks, found.looks_due, found.longest_gap_s) == (4, 6, pytest.approx(3.0))
    assert found.error == "no answer"


def test_seconds_in_which_nobody_looked_were_due_too() -> None:
    """Looks at 0 s and 10 s: eleven were due."""
    scrapes = counting("running", 1, 1)
    scrapes[1].at_s = 10.0
    assert (whole(scrapes).looks, whole(scrapes).looks_due) == (2, 11)


# --- several servers ----------------------------------------------------------------------------------------


def test_several_servers_are_summed_and_of_shares_the_fullest_counts() -> None:
    """One restarted: its own count starts anew, the other's goes on."""
    one = looks(
        *({"running": 1.0, "kv_share": 0.5, "output_tokens": n} for n in (10.0, 20.0, 5.0)), target="a"
    )
    other = looks(
        *({"running": 2.0, "kv_share": 0.9, "output_tokens": n} for n in (0.0, 7.0, 9.0)), target="b"
    )
    found = side(run_with([s for pair in zip(one, other, strict=True) for s in pair]))
    assert found.whole is not None
    assert found.whole.means == {"running": 3, "kv_share": 0.9}
    assert found.whole.counts == {"output_tokens": 15 + 9}
    assert {name: part.counts["output_tokens"] for name, part in found.by_target.items()} == {"a": 15, "b": 9}


def test_what_one_server_does_not_tell_is_not_known_of_all() -> None:
    """A sum over a part of the servers would look like one over all."""
    one, other = looks({"running": 1.0}, target="a"), looks({"waiting": 1.0}, target="b")
    assert together([track(one), track(other)]).values == {}
    assert list(tracks(ServerLog(scrapes=(*one, *other)))) == ["a", "b"]


# --- agreement ----------------------------------------------------------------------------------------------

END = {"output_tokens": 40.0, "prompt_tokens": 160.0, "succeeded": 10.0}
BEGIN = dict.fromkeys(END, 0.0)


def verdicts(found: ServerSide) -> dict[str, str]:
    return {one.figure: one.verdict for one in found.agreement}


def test_equal_counts_are_equal() -> None:
    """Ten requests of 16 and 4 tokens, by hand 160 and 40; what is not counted by both is not compared."""
    found = side(run_with(looks(BEGIN, *[END] * 12)))
    assert verdicts(found) == {"output_tokens": "equal", "succeeded": "equal", "prompt_tokens": "equal"}
    assert findings(found) == []


def test_a_run_that_was_not_looked_at_to_its_end_is_not_compared() -> None:
    """The last answer ended after the last look; or the first look came after the origin."""
    assert side(run_with(looks(BEGIN, END))).agreement == []
    assert side(run_with(looks(BEGIN, *[END] * 12, first_s=0.1))).agreement == []


def test_other_clients_are_warned_of_and_give_no_verdict() -> None:
    """More than we asked for, and nothing that was cut short: the run stays valid."""
    more = END | {"output_tokens": 1040.0}
    summary = summarize(run_with(looks(BEGIN, *[more] * 12)))
    (found,) = [f for f in summary.findings if f.name == COUNTS]
    assert (found.effect, "1,040 output tokens, and we 40" in found.text) == ("warning", True)
    assert summary.server is not None
    assert verdicts(summary.server)["output_tokens"] == "differs"


@pytest.mark.parametrize(
    ("told", "verdict"), [(38, "differs"), (39, "cut"), (41, "equal"), (43, "cut"), (44, "differs")]
)
def test_requests_cut_short_explain_no_more_than_they_could_be(told: float, verdict: str) -> None:
    """One had 2 of 4 tokens when it was cut: of 41 the server may have counted 2 less, or 2 more."""
    cut = ok(10, 9.5, gaps_us=(1000,), outcome=Outcome.ABORTED, asked_output_tokens=4, phase="tail")
    rows = [*ROWS[:9], ok(9, 9.0, gaps_us=(1000, 1000)), cut]
    found = side(run_with(looks(BEGIN, *[END | {"output_tokens": told}] * 12), rows))
    assert verdicts(found)["output_tokens"] == verdict


def test_refused_requests_are_held_to_the_servers_count_of_them() -> None:
    """Seven here and seven there; warm-up and tail count as well."""
    rows = [*ROWS, *(failed(10 + i, 1.0, Outcome.REJECTED, phase="tail") for i in range(7))]
    found = side(run_with(looks(BEGIN | {"rejected": 1}, *[END | {"rejected": 8}] * 12), rows))
    assert verdicts(found)["rejected"] == "equal"


def test_a_restart_is_warned_of() -> None:
    """Figures are of two servers then."""
    found = side(run_with(counting("output_tokens", 9, 0, 1)))
    assert RESTARTS in [f.name for f in findings(found)]


def test_a_run_whose_server_was_not_looked_at_has_no_word_of_it() -> None:
    """As a simulated one. One whose server told nothing says why."""
    assert server_side(run_of(ROWS)) is None
    run = replace(run_of(ROWS), server=ServerLog(absent="GET /metrics: 404 Not Found"))
    assert side(run) == ServerSide(absent="GET /metrics: 404 Not Found")


# --- outliers -----------------------------------------------------------------------------------------------


def slow_and_fast(slow_from_s: float) -> list[RequestRecord]:
    """200 requests in 10 s; the ten of half a second from `slow_from_s` on wait 0.4 s, others 10 ms."""
    slow = range(round(slow_from_s * 20), round(slow_from_s * 20) + 10)
    return [ok(i, i / 20, ttft_s=0.4 if i in slow else 0.01, gaps_us=(1000,)) for i in range(200)]


def test_the_slowest_that_overlap_a_preemption_are_counted_against_all() -> None:
    """Preemptions between 4.9 s and 5.9 s: the ten slow ones from 5 s on overlap it, and with them the 20
    that were under way between."""
    scrapes = counting("preemptions", *([0] * 6 + [3] * 8))
    rows = slow_and_fast(5.0)
    by_hand = sum(r.first_token_s >= 4.9 and r.due_s < 5.9 for r in rows if r.first_token_s is not None)
    (found,) = side(run_with(scrapes, rows)).overlaps
    assert found == Overlap(of="ttft", what="preemption", slowest=10, hit=10, share=by_hand / 200)


def test_what_falls_together_by_chance_is_not_said() -> None:
    """Preemptions elsewhere, or all the time."""
    rows = slow_and_fast(5.0)
    assert side(run_with(counting("preemptions", *([0] * 2 + [3] * 12)), rows)).overlaps == []
    assert side(run_with(counting("preemptions", *range(14)), rows)).overlaps == []


def test_the_slowest_that_were_due_at_a_long_queue_are_counted() -> None:
    """It was 9 long from 4.9 s to 5.9 s, else 0; it grew in the second before."""
    rows = slow_and_fast(5.0)
    (found,) = side(run_with(counting("waiting", *([0] * 5 + [9] + [0] * 8)), rows)).overlaps
    by_hand = sum(3.9 <= r.due_s <= 5.9 for r in rows)
    assert (found.of, found.what, found.hit) == ("ttft", "queue", 10)
    assert found.share == pytest.approx(by_hand / 200, abs=0.006)


def test_the_longest_stalls_are_lined_up_where_they_were() -> None:
    """A stall of 300 ms in the midst of an answer, at a preemption; the first tokens are all alike."""
    rows = [
        ok(i, i / 20, ttft_s=0.01, gaps_us=(1000, 300_000, 1000) if 100 <= i < 110 else (1000, 2000, 1000))
        for i in range(200)
    ]
    found = side(run_with(counting("preemptions", *([0] * 6 + [3] * 8)), rows)).overlaps
    assert Overlap(of="stall", what="preemption", slowest=10, hit=10, share=20 / 200) in found


def test_requests_are_lined_up_with_their_own_server_alone() -> None:
    """The other one preempted: that is no reason."""
    rows = slow_and_fast(5.0)
    for row in rows:
        row.target = "a"
    quiet = looks(*({"preemptions": 0.0} for _ in range(14)), target="a")
    busy = looks(*({"preemptions": float(n > 5)} for n in range(14)), target="b")
    scrapes = [s for pair in zip(quiet, busy, strict=True) for s in pair]
    assert side(run_with(scrapes, rows)).overlaps == []


def test_few_requests_have_no_outliers() -> None:
    """Ten of forty are no few."""
    scrapes = counting("preemptions", *([0] * 6 + [3] * 8))
    assert side(run_with(scrapes, slow_and_fast(5.0)[90:130])).overlaps == []


@pytest.mark.parametrize(("n", "marked", "drawn"), [*product((12, 20), (0, 3, 7), (4, 9))])
def test_chance_is_hypergeometric(n: int, marked: int, drawn: int) -> None:
    """Counted by the ways to draw."""
    for hit in range(drawn + 1):
        ways = sum(comb(marked, i) * comb(n - marked, drawn - i) for i in range(hit, drawn + 1))
        assert _chance(hit, drawn, marked, n) == pytest.approx(ways / comb(n, drawn), abs=1e-9)
