"""What a server told of itself, from logs made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from loadgen.records import Outcome, RequestRecord, Try
from loadgen.run import Run
from loadgen.server_log import Scrape, ServerLog
from loadgen.stats import summarize
from loadgen.stats.outliers import Rows, _joined, _overlap, _shuffled
from loadgen.stats.scraped import together, track, tracks
from loadgen.stats.server import COUNTS, RESTARTS, findings, server_side
from loadgen.stats.summary import ServerPart, ServerSide
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
    values = [
        {"output_tokens": float(a), "preemptions": float(b)}
        for a, b in [(100, 5), (130, 6), (20, 0), (50, 1)]
    ]
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
    assert (found.looks, found.looks_due) == (4, 6)
    assert found.longest_gap_s == pytest.approx(3.0)
    assert found.error == "no answer"


def test_seconds_in_which_nobody_looked_were_due_too() -> None:
    """Looks at 0 s and 10 s: eleven were due."""
    scrapes = counting("running", 1, 1)
    scrapes[1].at_s = 10.0
    assert (whole(scrapes).looks, whole(scrapes).looks_due) == (2, 11)


def test_looks_in_quick_order_have_no_more_weight() -> None:
    """Ten in the first second say 0, nine in the next nine seconds 10: nine tenths of the time."""
    scrapes = counting("running", *[0] * 10, *[10] * 9)
    for scrape, at_s in zip(scrapes, [*(0.01 + k / 10 for k in range(10)), *range(1, 10)], strict=True):
        scrape.at_s, scrape.took_s = float(at_s), 0.0
    assert whole(scrapes).means["running"] == pytest.approx(9.0, abs=0.02)


def test_no_look_in_the_window_is_no_zero() -> None:
    """It is absent, and how many looks there were is told."""
    rows = [ok(0, 0.1, ttft_s=0.1), ok(1, 0.5)]
    found = side(run_with(counting("running", 0, 0), rows, window_end_s=0.8)).whole
    assert found is not None
    assert (found.means, found.looks_in_window) == ({}, 0)
    assert "running" not in found.untold
    assert "waiting" in found.untold


def test_a_mean_is_never_above_the_most() -> None:
    """However it is rounded."""
    found = whole(counting("kv_share", *[0.1] * 9))
    assert found.means["kv_share"] <= found.peaks["kv_share"] == 0.1


def test_a_gauge_may_be_of_any_instant_from_asking_on() -> None:
    """A look that was asked before the window, and answered in it, is not in it."""
    scrapes = counting("running", 99, 1, 1)
    scrapes[1].took_s, scrapes[1].values = 0.95, {"running": 50.0}
    assert whole(scrapes).peaks == {"running": 1}


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


def test_servers_are_joined_by_time() -> None:
    """Looked at in turns, each on its own clock: what a server told last holds until it is told anew, but not
    for longer than 2.5 s, and not over a look without an answer.
    """
    one = track([Scrape(at_s=at, took_s=0.0, values={"running": 1.0}) for at in (0.0, 1.0, 2.0, 3.0)])
    other = track([Scrape(at_s=at, took_s=0.0, values={"running": 5.0}) for at in (-0.5, 6.5)])
    told = together([one, other]).known("running")
    assert [*zip(told.at_s, told.values, strict=True)] == [(0.0, 6.0), (1.0, 6.0), (2.0, 6.0)]
    gone = Scrape(at_s=0.5, took_s=0.0, error="no answer")
    broken = track([Scrape(at_s=-0.5, took_s=0.0, values={"running": 5.0}), gone])
    assert [*together([one, broken]).known("running").at_s] == [0.0]


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


def test_a_surplus_that_nothing_explains_differs() -> None:
    """Of prompt tokens, without a retry or a request that was cut; with one retried it may be anything."""
    end = END | {"prompt_tokens": 161.0}
    assert verdicts(side(run_with(looks(BEGIN, *[end] * 12))))["prompt_tokens"] == "differs"
    again = [*ROWS[:9], ok(9, 9.0, retried=[Try(started_s=9.0, ended_s=9.0, outcome=Outcome.REJECTED)])]
    assert verdicts(side(run_with(looks(BEGIN, *[end] * 12), again)))["prompt_tokens"] == "cut"


@pytest.mark.parametrize(("told", "verdict"), [(165.0, "cut"), (170.0, "cut"), (1e9, "differs")])
def test_prompts_of_requests_cut_short_explain_no_more_than_was_asked_twice(
    told: float, verdict: str
) -> None:
    """One of 5 asked prompt tokens has no count of its own: of 160 the server may have 10 more."""
    cut = ok(10, 9.5, outcome=Outcome.ABORTED, asked_prompt_tokens=5, prompt_tokens=None, phase="tail")
    found = side(run_with(looks(BEGIN, *[END | {"prompt_tokens": told}] * 12), [*ROWS, cut]))
    assert verdicts(found)["prompt_tokens"] == verdict


def test_counts_of_several_servers_do_not_age() -> None:
    """One was looked at for the last time 4 s before the other; it counted nothing since."""
    a = looks(BEGIN, *[END] * 12, target="a")
    b = looks(BEGIN, *[END] * 16, target="b")
    found = side(run_with([*a, *b], [*ROWS, *(ok(10 + i, float(i)) for i in range(10))]))
    assert verdicts(found)["output_tokens"] == "equal"


def test_how_long_a_server_was_silent_counts_to_the_last_try() -> None:
    """It told of itself twice, and not in the five seconds that follow, or in the four before."""
    assert whole(looks(BEGIN, END, *[None] * 5)).longest_gap_s == 5.0
    assert whole(looks(*[None] * 4, BEGIN, END)).longest_gap_s == 4.0


def test_after_a_restart_nothing_is_compared() -> None:
    """What was counted before it and after the last look is lost."""
    found = side(run_with(looks(BEGIN, END, BEGIN, *[END] * 12)))
    assert found.agreement == []
    assert [f.name for f in findings(found)] == [RESTARTS]
    assert "at least" in findings(found)[0].text


def test_requests_of_the_tail_that_we_ended_are_told_from_others() -> None:
    """One of the tail, and one of the window that was cut as well."""
    cut = [ok(10 + i, 9.5, outcome=Outcome.ABORTED, phase=p) for i, p in enumerate(("tail", "measured"))]
    found = side(run_with(looks(BEGIN, *[END] * 12), [*ROWS, *cut]))
    assert (found.cut, found.cut_tail) == (2, 1)


def test_our_first_tokens_are_of_all_requests() -> None:
    """As the server counts: warm-up and tail too, from sending; what has none has no part."""
    rows = [ok(0, 0.0, ttft_s=0.1), ok(1, 1.0, ttft_s=0.3, phase="tail"), failed(2, 2.0)]
    found = side(run_with(counting("running", 1, 1), rows))
    assert found.ttft_from_send_s == pytest.approx(0.2, abs=1e-3)
    assert found.ttft_count == 2


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

BUSY_S = (3, 8, 9, 15, 26, 31)  # seconds of 40 in which the server preempts


def slow_and_fast(busy_s: Sequence[int] = BUSY_S, **changes: Any) -> list[RequestRecord]:
    """Ten requests a second for 40 s; four of each busy second wait 0.3 s, others 10 ms."""
    slow = {10 * s + k for s in busy_s for k in (2, 4, 5, 7)}
    rows = [ok(i, i / 10, ttft_s=0.3 if i in slow else 0.01, gaps_us=(1000,)) for i in range(400)]
    for row in rows:
        for name, value in changes.items():
            setattr(row, name, value)
    return rows


def preempting(busy_s: Sequence[int] = BUSY_S, **more: Any) -> list[Scrape]:
    """One preemption in each busy second, known at the look 0.9 s after it began."""
    return looks(*({"preemptions": float(sum(s < k for s in busy_s))} for k in range(42)), **more)


def test_the_slowest_that_overlap_a_preemption_are_counted_against_chance() -> None:
    """All twenty; by chance as many as when the spans stood anywhere: by another draw of their places."""
    (found,) = side(run_with(preempting(), slow_and_fast())).overlaps
    assert (found.of, found.what, found.slowest, found.hit) == ("ttft", "preemption", 20, 20)
    slow = sorted(s + k / 10 for s in BUSY_S for k in (2, 4, 5, 7))[-20:]
    draw, hits = Random(7), 0
    for _ in range(2000):
        places = sorted(draw.uniform(0, 39.91 - 6.05) for _ in range(5))
        lengths = [1.01] * 4 + [2.01]  # two of the six touch
        draw.shuffle(lengths)
        begins, so_far = [], 0.0
        for place, length in zip(places, lengths, strict=True):
            begins.append((place + so_far, place + so_far + length))
            so_far += length
        hits += sum(any(b <= at + 0.3 and at <= e for b, e in begins) for at in slow)
    assert found.share == pytest.approx(hits / 2000 / 20, abs=0.03)


def test_what_falls_together_by_chance_is_not_said() -> None:
    """Preemptions in other seconds, or in all; and where all slow ones met one preemption, that is one
    coincidence and not ten.
    """
    rows = slow_and_fast()
    assert side(run_with(preempting((1, 6, 12, 20, 23, 35)), rows)).overlaps == []
    assert side(run_with(preempting(range(42)), rows)).overlaps == []
    assert side(run_with(preempting((8, 9)), slow_and_fast((8, 9) * 3))).overlaps == []


@pytest.mark.parametrize(("width_s", "is_said"), [(0.2, True), (0.7, True), (2.0, False), (4.0, False)])
def test_below_one_in_a_hundred_it_is_no_chance(width_s: float, *, is_said: bool) -> None:
    """Ten waits of no length at one instant, and one span of so many of 100 s: by chance it meets them as
    often as it is wide.
    """
    begin_s, end_s = np.linspace(0, 100, 101), np.linspace(0, 100, 101)
    slow_s = np.where(np.arange(101) < 10, 1.0, 0.0)
    begin_s[:10] = end_s[:10] = 50.0
    begin_s[50] = end_s[50] = 0.0
    spans = (np.array([50 - width_s / 2]), np.array([50 + width_s / 2]))
    rows = Rows(begin_s, end_s, [(np.ones(101, bool), spans)])
    assert (_overlap("ttft", "preemption", slow_s, rows) is not None) == is_said


def test_who_waits_at_the_very_end_may_be_met_by_chance() -> None:
    """One span over nearly all of it: that ten of ten meet it says nothing, the last one of all included."""
    at_s = np.linspace(0, 100, 101)
    rows = Rows(at_s, at_s, [(np.ones(101, bool), (np.array([1.0]), np.array([100.0])))])
    assert np.mean(rows.slowest(at_s, 10).met_by_chance((0.0, 100.0))) > 9.7
    assert _overlap("ttft", "queue", at_s, rows) is None


@pytest.mark.parametrize(("span_s", "is_said"), [(1.0, True), (1.8, False)])
def test_little_more_than_chance_is_not_worth_a_word(span_s: float, *, is_said: bool) -> None:
    """A span about every 2 s: the 100 slowest meet all one. That is sure, but nine of ten do by chance in
    the one case, and half of them in the other.
    """
    at_s = np.arange(10_000) / 100
    slow_s = np.where(np.arange(10_000) % 100 == 50, 1.0, 0.0)
    g = np.random.default_rng(3)
    begins = np.cumsum((2 - span_s) * g.uniform(0.2, 1.8, 50) + span_s) - span_s
    at_s[slow_s > 0] = np.repeat(begins, 2) + span_s * g.uniform(0, 1, 100)
    rows = Rows(at_s, at_s, [(np.ones(10_000, bool), (begins, begins + span_s))])
    assert (_overlap("ttft", "queue", slow_s, rows) is not None) == is_said


def test_a_shuffle_keeps_spans_and_pauses() -> None:
    """All that is on the circle, whatever touches as one; in order, and as long together."""
    spans = (np.array([-2.0, 4.0, 5.0, 8.0, 20.0]), np.array([1.0, 5.01, 6.0, 9.0, 21.0]))
    joined = _joined(spans, (0.0, 10.0))
    assert [*zip(*map(list, joined), strict=True)] == [(0, 1), (4, 6), (8, 9)]
    for seed in range(20):
        begins, ends = _shuffled(joined, (0.0, 10.0), np.random.default_rng(seed))
        lengths = sorted((ends - begins).round(9))
        assert sum(lengths) == pytest.approx(4)
        assert all(begins[1:] >= ends[:-1])
        assert (begins.min() >= 0, ends.max() <= 10) == (True, True)
        assert len(lengths) == 4 or lengths == [1, 1, 2]


def test_long_waits_meet_more_by_their_length_and_that_is_no_finding() -> None:
    """60 runs whose preemptions know nothing of the requests: by so small a chance, one would be many."""
    said = 0
    for seed in range(60):
        g = np.random.default_rng(seed)
        due_s = np.cumsum(g.exponential(0.2, 200))
        waits_s, gaps_us = g.lognormal(-1, 1, 200), g.integers(1000, 500_000, 200)
        each = zip(due_s.tolist(), waits_s.tolist(), gaps_us.tolist(), strict=True)
        rows = [ok(i, due, ttft_s=wait, gaps_us=(gap,)) for i, (due, wait, gap) in enumerate(each)]
        counted = np.cumsum(g.random(50) < 0.2)
        scrapes = counting("preemptions", *map(float, counted))
        said += len(side(run_with(scrapes, rows)).overlaps)
    assert said <= 2  # of 120


def test_the_slowest_that_were_due_at_a_long_queue_are_counted() -> None:
    """It is 9 long at ten looks of 42, else 0; the slow ones were due between such a look and the next."""
    long_s = (2, 7, 11, 16, 22, 25, 29, 33, 36, 38)
    waiting = [9 if k in long_s else 0 for k in range(42)]
    slow = {10 * s + k for s in long_s for k in (2, 5)}
    rows = [ok(i, i / 10, ttft_s=0.3 if i in slow else 0.01, gaps_us=(1000,)) for i in range(400)]
    (found,) = side(run_with(counting("waiting", *waiting), rows)).overlaps
    assert (found.of, found.what, found.hit) == ("ttft", "queue", 20)


def test_the_longest_stalls_are_lined_up_where_they_were() -> None:
    """A stall of 300 ms in the midst of an answer, at a preemption; the first tokens are all alike."""
    slow = {10 * s + k for s in BUSY_S for k in (2, 4, 5, 7)}
    rows = [
        ok(i, i / 10, ttft_s=0.01, gaps_us=(1000, 300_000, 1000) if i in slow else (1000, 2000, 1000))
        for i in range(400)
    ]
    found = side(run_with(preempting(), rows)).overlaps
    assert ("stall", "preemption", 20) in [(one.of, one.what, one.hit) for one in found]


def test_requests_are_lined_up_with_their_own_server_alone() -> None:
    """The other one preempted: that is no reason. An address that a name was resolved to is no other one."""
    for target in ("http://a", "http://a (10.0.0.1:80)"):
        rows = slow_and_fast(target=target)
        quiet = [*preempting((), target="http://a"), *preempting(target="http://b")]
        busy = [*preempting(target="http://a"), *preempting((), target="http://b")]
        assert side(run_with(quiet, rows)).overlaps == []
        assert len(side(run_with(busy, rows)).overlaps) == 1


def test_looks_that_are_of_no_single_target_are_of_all() -> None:
    """Two places with metrics of one target."""
    scrapes = [*preempting((), target="http://a:1/m"), *preempting(target="http://a:2/m")]
    assert len(side(run_with(scrapes, slow_and_fast())).overlaps) == 1


def test_few_requests_have_no_outliers() -> None:
    """Ten of forty are no few."""
    assert side(run_with(preempting(), slow_and_fast()[:40])).overlaps == []
