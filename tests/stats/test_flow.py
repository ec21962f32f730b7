"""Rates in the window, makespan and requests in flight, by hand counts."""

from __future__ import annotations

import pytest

from loadgen.records import Outcome
from loadgen.stats.flow import (
    completed_rps,
    held_back,
    in_flight,
    makespan,
    offered_rps,
    output_tokens_per_s,
    window_s,
)
from tests.records import failed, ok, run_of


def test_completions_count_by_their_own_instant_and_in_any_phase() -> None:
    """Of ends at 0, 5, 9, 9.999999 and 10 s, the window [0, 10) holds all but the last."""
    ends = [("warmup", 0.0), ("measured", 5.0), ("measured", 9.999999), ("measured", 10.0), ("tail", 9.0)]
    rows = [ok(i, 0.0, phase=phase, ended_s=end) for i, (phase, end) in enumerate(ends)]
    assert completed_rps(run_of([*rows, failed(9, ended_s=4.0)])) == 0.4


def test_a_window_of_steady_completions_leaves_the_filling_out() -> None:
    """Eleven end once a second from 10 to 20 s: 1/s in the window [10, 20), 0.55/s over the whole run."""
    rows = [ok(i, 0.0, gaps_us=[], ttft_s=10.0 + i) for i in range(11)]
    run = run_of(rows, window_start_s=10.0, window_end_s=20.0)
    seconds, output, _ = makespan(run)
    assert completed_rps(run) == 1.0
    assert (seconds, output) == (20.0, 0.55)


def test_tokens_count_by_the_instant_of_their_own_event() -> None:
    """Events come each second from 8 s on, the window ends at 10 s: two are in it, with their tokens."""
    one_each = ok(0, 7.0, ttft_s=1.0, gaps_us=[1_000_000] * 4)
    listed = ok(1, 7.0, ttft_s=1.0, gaps_us=[1_000_000] * 2, event_tokens=[5, 2, 9], output_tokens=16)
    unknown = ok(2, 7.0, ttft_s=1.0, gaps_us=[1_000_000] * 3, event_tokens=None, output_tokens=10)
    for row, tokens in ((one_each, 2), (listed, 7), (unknown, 5)):
        assert output_tokens_per_s(run_of([row])) == pytest.approx(tokens / 10)
    early = ok(3, 0.0, phase="warmup", ttft_s=0.5, gaps_us=[1_000_000] * 3)
    assert output_tokens_per_s(run_of([early], window_start_s=2.5, window_end_s=12.5)) == pytest.approx(
        2 / 10
    )
    assert output_tokens_per_s(run_of([early, one_each])) == pytest.approx((4 + 2) / 10)


def test_an_answer_without_tokens_adds_none() -> None:
    """No token event, no instant, no rate."""
    row = ok(0, first_token_s=None, last_token_s=None, gaps_us=[], event_tokens=None, output_tokens=0)
    assert output_tokens_per_s(run_of([row])) == 0.0


def test_tokens_of_failed_requests_are_in_no_throughput() -> None:
    """900 tokens of good answers and 100 of broken ones in 10 s: 90 tokens/s."""
    good = ok(0, 0.0, ttft_s=0.1, gaps_us=[10_000] * 899, ended_s=9.9)
    broken = failed(
        1, 0.0, Outcome.BROKEN, first_token_s=0.1, gaps_us=[10_000] * 99, last_token_s=1.09, ended_s=10.0
    )
    run = run_of([good, broken])
    assert output_tokens_per_s(run) == 90.0
    assert makespan(run) == (10.0, 90.0, 91.6)


def test_by_count_the_offered_rate_is_of_the_gaps() -> None:
    """Five requests a second apart are 1/s, though their span is 4 s; by duration, five in 5 s are too."""
    rows = [ok(i, float(i)) for i in range(5)]
    assert offered_rps(run_of(rows, window_by="count", window_end_s=4.0)) == 1.0
    assert offered_rps(run_of(rows, window_end_s=5.0)) == 1.0


def test_of_no_request_there_is_no_rate() -> None:
    """Nor a negative one, where all were cut off."""
    assert offered_rps(run_of([], window_by="count", window_end_s=4.0)) is None
    assert offered_rps(run_of([], window_end_s=4.0)) is None


def test_a_window_by_count_is_where_rows_did_fall_due() -> None:
    """Of a closed loop or of conversations the plan cannot know: first measured due to last, not [0, 0]."""
    rows = [ok(i, 2.0 + i, phase="measured" if i else "warmup") for i in range(6)]
    assert window_s(run_of(rows, window_by="count", window_start_s=0.0, window_end_s=0.0)) == (3.0, 7.0)


@pytest.mark.parametrize("by", ["burst", "count"])
def test_a_burst_has_no_rate_but_a_makespan(by: str) -> None:
    """All due at once, or only one: no span to divide by; tokens over the makespan remain."""
    rows = [ok(0, 0.0, ttft_s=1.0, gaps_us=[1_000_000]), ok(1, 0.0, ttft_s=2.0, gaps_us=[2_000_000])]
    run = run_of(rows, window_by=by, window_end_s=0.0)
    assert (offered_rps(run), completed_rps(run), output_tokens_per_s(run)) == (None, None, None)
    assert makespan(run) == (4.0, 1.0, 9.0)
    assert in_flight(run) == (2, 1.5)


def test_makespan_is_of_the_whole_run_and_knows_what_it_cannot_know() -> None:
    """Warm-up and tail count, what we cut does not; one prompt without a count leaves the total unknown.

    From 0 to 5 s three answers of one token each.
    """
    rows = [
        ok(0, 0.0, phase="warmup", gaps_us=[], ttft_s=1.0),
        ok(1, 2.0, gaps_us=[], ttft_s=2.0, prompt_tokens=None),
        ok(2, 4.0, phase="tail", gaps_us=[], ttft_s=1.0),
        failed(3, 4.5, Outcome.ABORTED, phase="tail", ended_s=9.0),
    ]
    assert makespan(run_of(rows)) == (5.0, 0.6, None)
    assert makespan(run_of([])) == (None, None, None)
    assert makespan(run_of([failed(0, 1.0, Outcome.UNSENT, started_s=None, ended_s=None)])) == (
        None,
        None,
        None,
    )


def test_an_end_and_a_start_at_one_instant_do_not_overlap() -> None:
    """[0, 10), [2, 5), [5, 9), [10, 12): two at once at most; 17 request-seconds in the window's 10."""
    spans = [(0, 10), (2, 5), (5, 9), (10, 12)]
    rows = [ok(i, float(a), ended_s=float(b)) for i, (a, b) in enumerate(spans)]
    assert in_flight(run_of(rows)) == (2, 1.7)


def test_what_was_never_sent_was_never_in_flight_and_what_has_no_end_stays() -> None:
    """An unsent row counts nothing; a row without an end is in flight until the window closes."""
    rows = [failed(0, 1.0, Outcome.UNSENT, started_s=None), ok(1, 4.0, ended_s=None)]
    assert in_flight(run_of(rows)) == (1, 0.6)


def test_an_interrupted_run_is_divided_by_the_time_it_had() -> None:
    """Asked for 10 s and interrupted as the row at 4 s fell due: five rows in 4 s, not in 10."""
    rows = [ok(i, float(i), ended_s=i + 0.5) for i in range(5)]
    run = run_of(rows, interrupted=True)
    assert offered_rps(run) == 1.25
    assert completed_rps(run) == 1.0


def test_a_cap_holds_back_what_had_to_wait_for_a_place() -> None:
    """Two of three measured rows waited. None is no cap; 0 is a cap with room to spare."""
    rows = [ok(0), ok(1, slot_s=0.05), ok(2, slot_s=0.05), ok(3, slot_s=0.05, phase="warmup")]
    cap = {"load": {"max_concurrency": 1}}
    assert held_back(run_of(rows, scenario=cap)) == 2
    assert held_back(run_of(rows[:1], scenario=cap)) == 0
    assert held_back(run_of(rows[:1])) is None
