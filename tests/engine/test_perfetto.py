"""The picture of a trace, read as a viewer reads it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine.perfetto import Event, events
from loadgen.engine.trace import Iteration
from tests.engine.iterations import BASELINE, iteration


class Slice(NamedTuple):
    name: str
    start_s: float
    end_s: float
    depth: int
    args: dict[str, Any]


def threads(found: list[Event]) -> dict[int, str]:
    return {e["tid"]: e["args"]["name"] for e in found if e["ph"] == "M" and e["name"] == "thread_name"}


def slices(found: list[Event]) -> dict[str, list[Slice]]:
    """What a viewer makes of begins and ends, by the name of their thread: a stack for each."""
    names, stacks = threads(found), defaultdict[int, list[Event]](list)
    made = defaultdict[str, list[Slice]](list)
    for e in found:
        stack = stacks[e["tid"]] if e["ph"] in "BE" else []
        if e["ph"] == "B":
            stack.append(e)
        elif e["ph"] == "E":
            begun = stack.pop()
            assert begun["name"] == e["name"]
            args = begun.get("args", {}) | e.get("args", {})
            span = Slice(e["name"], begun["ts"] / 1e6, e["ts"] / 1e6, len(stack), args)
            made[names[e["tid"]]].append(span)
    assert not any(stacks.values()), "a slice was not closed"
    return {thread: sorted(some, key=lambda s: (s.start_s, s.depth)) for thread, some in made.items()}


def drawn(trace: Iterable[Iteration]) -> list[Event]:
    return list(events(trace, "teaching"))


def spans(found: list[Slice], depth: int) -> list[tuple[str, float, float]]:
    return [(s.name, s.start_s, s.end_s) for s in found if s.depth == depth]


def test_each_slot_is_a_thread_that_shows_who_holds_it() -> None:
    """Lowest free slot first: C takes the one that A lost, D the one that C left."""
    found = slices(drawn(BASELINE))
    assert spans(found["slot 0"], 0) == [("A", 0, 1), ("C", 1, 2), ("D", 2, 5), ("E", 5, 6)]
    assert spans(found["slot 1"], 0) == [("B", 0, 3), ("A", 3, 6)]


def test_inside_a_stay_stands_what_was_computed() -> None:
    """A prompt in its pieces, decodes one after the other as one slice, each with its tokens."""
    found = slices(drawn(BASELINE))["slot 1"]
    assert [
        (*span[:3], span.args["tokens"], span.args["iteration"]) for span in found if span.depth == 1
    ] == [
        ("prefill", 0, 1, 3, 0),
        ("prefill", 1, 2, 1, 1),
        ("decode", 2, 3, 1, 2),
        ("prefill", 3, 4, 3, 3),
        ("decode", 4, 6, 2, 4),
    ]


def test_a_decode_that_waits_leaves_a_hole() -> None:
    """One slice before it, one after it."""
    trace = [
        iteration(0, decode="A", active="A"),
        iteration(1, active="A"),
        iteration(2, decode="A", completed="A"),
    ]
    assert spans(slices(drawn(trace))["slot 0"], 1) == [("decode", 0, 1), ("decode", 2, 3)]


def test_a_slot_that_a_batch_holds_after_its_member_ended_is_empty_inside() -> None:
    """A ended after the second step, and is active as long as B is."""
    trace = [
        iteration(0, prefill=[("A", 2), ("B", 2)], admitted="A B", emitted="A B", active="A B"),
        iteration(1, decode="A B", completed="A", active="A B"),
        iteration(2, decode="B", active="A B"),
        iteration(3, decode="B", completed="B"),
    ]
    found = slices(drawn(trace))
    assert spans(found["slot 0"], 0) == [("A", 0, 4)]
    assert spans(found["slot 0"], 1) == [("prefill", 0, 1), ("decode", 1, 2)]
    assert spans(found["slot 1"], 1) == [("prefill", 0, 1), ("decode", 1, 4)]


def test_preemptions_and_rejections_are_marked_where_they_happen() -> None:
    """The one on the slot that was lost, the other on the queue's own thread."""
    found = drawn(BASELINE)
    marks = [
        (e["name"], threads(found)[e["tid"]], e["ts"], e["args"]["request"]) for e in found if e["ph"] == "i"
    ]
    assert marks == [("preempted", "slot 0", 1e6, "A"), ("rejected", "queue", 2e6, "F")]


def test_counters_follow_the_queue_the_slots_the_budget_and_the_memory() -> None:
    """Each at the instant from which its value holds, and only where it changes."""
    trace = [iteration(n, kv_blocks=blocks, active="A") for n, blocks in enumerate([3, 3, 5])]
    assert _counted(drawn(trace), "KV", "blocks") == [(0, 3), (2e6, 5)]
    found = drawn(BASELINE)
    assert _counted(found, "requests", "waiting") == [
        (1e6, 0),
        (2e6, 1),
        (3e6, 2),
        (4e6, 1),
        (5e6, 1),
        (6e6, 0),
    ]
    assert _counted(found, "tokens", "unused") == [(0, 0), (1e6, 3), (2e6, 2), (4e6, 4)]
    assert _counted(found, "KV", "blocks") == []


def _counted(found: list[Event], name: str, series: str) -> list[tuple[float, int]]:
    return [(e["ts"], e["args"][series]) for e in found if e["ph"] == "C" and e["name"] == name]


def test_who_is_admitted_and_put_back_before_a_step_never_holds_a_slot() -> None:
    """An urgent request came at the same instant."""
    trace = [iteration(0, admitted="A U", preempted="A", prefill=[("U", 2)], queue="A", active="U")]
    assert spans(slices(drawn(trace))["slot 0"], 0) == [("U", 0, 1)]


@st.composite
def traces(draw: st.DrawFn) -> list[Iteration]:
    """Requests that come and go in any way that leaves every list true to the one before."""
    made, active, now_s, names = [], list[str](), 0.0, iter(f"r{n}" for n in range(1000))
    waiting: list[str] = []
    for number in range(draw(st.integers(0, 12))):
        preempted = [name for name in active if draw(st.booleans())][:1]
        admitted = waiting[: draw(st.integers(0, 2))] + [next(names) for _ in range(draw(st.integers(0, 2)))]
        active = [name for name in active if name not in preempted] + admitted
        waiting = [name for name in waiting if name not in admitted] + preempted
        doing = {name: draw(st.sampled_from(["prefill", "decode", "wait"])) for name in active}
        completed = [name for name in active if doing[name] != "wait" and draw(st.booleans())]
        active = [name for name in active if name not in completed]
        step_s = draw(st.floats(1e-6, 2, allow_nan=False))
        now_s += draw(st.sampled_from([0.0, 0.1, 1 / 3])) if not active else 0.0
        made.append(
            iteration(
                number,
                start_s=now_s,
                step_s=step_s,
                admitted=" ".join(admitted),
                preempted=" ".join(preempted),
                prefill=[(name, 1) for name in doing if doing[name] == "prefill"],
                decode=" ".join(name for name in doing if doing[name] == "decode"),
                completed=" ".join(completed),
                queue=" ".join(waiting),
                active=" ".join(active),
            )
        )
        now_s += step_s
    return made


@given(traces())
def test_any_trace_is_drawn_in_order_with_every_token_in_a_slice(trace: list[Iteration]) -> None:
    """Instants never fall, slices nest and close, stays in a slot do not overlap, no token is lost."""
    found = drawn(trace)
    instants = [e["ts"] for e in found if e["ph"] != "M"]
    assert instants == sorted(instants)
    by_thread = slices(found)
    tokens = sum(len(it.decode) + sum(n for _, n in it.prefill) for it in trace)
    inside = [s for some in by_thread.values() for s in some if s.depth == 1]
    assert sum(s.args["tokens"] for s in inside) == tokens
    for some in by_thread.values():
        stays = spans(some, 0)
        assert all(end <= start for (_, _, end), (_, start, _) in pairwise(stays))
