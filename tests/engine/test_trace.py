"""What is read off a trace."""

from __future__ import annotations

from itertools import count, islice

from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine.trace import Ends, Passage, Totals, passages, totals
from tests.engine.iterations import BASELINE, iteration


def test_each_request_s_way_is_read_off_the_iterations() -> None:
    """First output, completion, preemptions and result, as worked out on paper for the teaching scheduler."""
    assert [
        (p.request, p.first_output, p.completed, p.preemptions, p.result) for p in passages(BASELINE)
    ] == [
        ("A", 3, 5, 1, "completed"),
        ("B", 1, 2, 0, "completed"),
        ("C", 1, 1, 0, "completed"),
        ("D", 3, 4, 0, "completed"),
        ("E", 5, 5, 0, "completed"),
        ("F", None, None, 0, "rejected"),
    ]


def test_a_second_prefill_after_a_preemption_is_no_first_output() -> None:
    """What a request computes anew gives its next token; the first came before."""
    trace = [
        iteration(0, prefill=[("A", 4)], emitted="A", admitted="A", active="A"),
        iteration(1, preempted="A", queue="A"),
        iteration(2, prefill=[("A", 5)], emitted="A", admitted="A", completed="A"),
    ]
    assert list(passages(trace)) == [
        Passage(request="A", first_output=0, completed=2, preemptions=1, result="completed")
    ]


def test_what_still_waits_or_runs_at_the_end_is_unfinished() -> None:
    """As it is in a trace that was interrupted."""
    trace = [iteration(0, prefill=[("A", 4)], admitted="A", active="A", queue="B")]
    assert [(p.request, p.result) for p in passages(trace)] == [("A", "unfinished"), ("B", "unfinished")]


def test_a_request_is_given_as_soon_as_all_before_it_have_ended() -> None:
    """So that a long trace is never held whole: an endless one gives its first at once."""
    endless = (iteration(n, admitted=f"r{n}", emitted=f"r{n}", completed=f"r{n}") for n in count())
    assert [p.request for p in islice(passages(endless), 3)] == ["r0", "r1", "r2"]


def test_totals_are_the_sums_of_the_iterations() -> None:
    """The teaching scheduler's: unused 0 3 2 2 4 4, two in the queue at most, A put back once, F refused."""
    assert totals(BASELINE) == Totals(
        iterations=6,
        longest_queue=2,
        preemptions=1,
        rejections=1,
        unused_tokens=0 + 3 + 2 + 2 + 4 + 4,
        slots=12,
        used_slots=12,
    )


def test_without_a_budget_nothing_of_it_is_unused() -> None:
    """Nor is there a sum, of no iterations as of many."""
    assert totals([]).unused_tokens is None
    assert totals([iteration(0), iteration(1)]).unused_tokens is None


def test_iterations_in_which_a_decode_waited_are_counted_and_the_first_is_named() -> None:
    """However many they are."""
    found = totals(iteration(n, decode_waited=n % 3 == 2) for n in range(10))
    assert (found.decode_waited, found.waited_first) == (3, 2)


@given(st.integers(0, 30), st.integers(1, 12))
def test_ends_hold_the_first_and_the_last_and_count_the_rest(many: int, keep: int) -> None:
    """Nothing twice, nothing out of order."""
    ends = Ends(range(many), keep)
    kept = [*ends.first, *ends.last]
    assert kept == sorted(set(range(keep)) & set(range(many)) | set(range(max(many - keep, 0), many)))
    assert ends.between == many - len(kept)
