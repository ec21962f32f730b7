"""The tokens of one stream, from its bytes: text, counts, and what is kept of them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from loadgen.client.stream import Stream
from tests.client.streams import DONE, bill, delta, event, say, text


def read(*events: bytes, keeps_text: bool = False) -> Stream:
    """A stream whose n-th event comes at n milliseconds."""
    stream = Stream(keeps_text=keeps_text)
    for ms, data in enumerate(events):
        stream.feed(data, ms * 1000)
    stream.end(len(events) * 1000)
    return stream


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((say("a"), say("é", "stop")), "aé"),
        ((text("a"), text("b", "stop")), "ab"),
        ((delta(reasoning_content="hm"), say("a")), "a"),
        ((delta(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),), "ab"),
        ((delta(content=[{"type": "thinking", "thinking": [{"text": "hm"}]}]), say("a")), "a"),
        ((delta(content=[3, {"text": 5}, "x"]), say("a")), "a"),
        ((event({"choices": [{"index": i, "delta": {"content": "ab"[i]}} for i in (0, 1)]}),), "a"),
        ((event({"content": "a", "stop": False}), event({"content": "b", "stop": True})), "ab"),
        ((event({"token": {"text": "a"}}), event({"token": {"text": "</s>", "special": True}})), "a"),
    ],
)
def test_text_is_the_first_answer_s_without_reasoning(events: tuple[bytes, ...], expected: str) -> None:
    """What a conversation goes on with: what its reader would have read."""
    assert "".join(read(*events, keeps_text=True).texts or ()) == expected


def usage(prompt: Any = None, completion: Any = None, **more: Any) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion} | more})


def test_usage_in_pieces_is_put_together() -> None:
    """A later usage that leaves a count out, or says null, does not take it back; what it says counts."""
    stream = read(
        usage(9, 0, prompt_tokens_details={"cached_tokens": 4}), say("a"), say("b", "stop"), usage(None, 2)
    )
    assert stream.usage is not None
    assert (stream.usage.prompt_tokens, stream.usage.completion_tokens) == (9, 2)
    assert stream.usage.prompt_tokens_details is not None
    assert stream.usage.prompt_tokens_details.cached_tokens == 4


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((bill(0), say("a"), say("b", "stop")), (2, "events")),
        ((bill(1), say("a"), say("b", "stop")), (2, "events")),
        ((bill(7), say("a"), say("b", "stop")), (7, "usage")),
        ((say("a"), bill(1), say("b", "stop")), (2, "events")),
        ((say("a"), say("b", "stop"), bill(1)), (1, "usage")),
        ((say("a", usage=3), say("b", usage=5), say("c", "stop")), (5, "usage")),
    ],
)
def test_usage_before_the_last_token_is_no_total_if_more_came(
    events: tuple[bytes, ...], expected: tuple[int, str]
) -> None:
    """A count given early is disproved by more events; one given at the end is the server's word."""
    assert read(*events, DONE).output_tokens() == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((say("a", usage=2), say("b", usage=5)), [2, 3]),
        ((say("a", usage=2), delta(), say("b", usage=5)), [2, 3]),
        ((say("a", usage=2), bill(2), say("b", usage=5)), [2, 3]),
        ((say("a", usage=1), say("b", usage=2)), 1),
        ((say("a", usage=2), say("b"), say("c", usage=9)), None),
        ((say("a"), say("b", usage=5), say("c", usage=9)), None),
        ((say("a", usage=2), say("b", usage=5), say("c")), None),
        ((say("a", usage=5), say("b", usage=5)), None),
        ((say("a", usage=5), say("b", usage=4)), None),
    ],
)
def test_tokens_of_each_event_are_known_where_usage_grows_with_each(
    events: tuple[bytes, ...], expected: int | list[int] | None
) -> None:
    """One token event without a count, or with a count that did not grow, leaves all of them unknown."""
    assert read(*events, DONE).event_tokens() == expected


def kept_bytes(stream: Stream) -> int:
    found = [getattr(stream, name) for name in Stream.__slots__]
    return sum(sys.getsizeof(value) for value in found if hasattr(value, "__len__"))


@pytest.mark.parametrize(("counts", "limit"), [(False, 5), (True, 9.5)])
def test_an_event_at_rest_takes_few_bytes(*, counts: bool, limit: float) -> None:
    """Four for its gap, four more only where a count comes with each, and an array's spare room."""
    stream = read(*(say("token", usage=i + 1 if counts else None) for i in range(20_000)))
    assert kept_bytes(stream) / 20_000 < limit


def test_counts_are_not_kept_once_one_is_missing() -> None:
    """A server that stops counting with each event costs no memory for the counts it gave."""
    stream = read(*(say("t", usage=i + 1) for i in range(5_000)), say("t"), say("t", usage=5_002))
    assert kept_bytes(stream) / 5_000 < 5.5


def test_an_instant_before_the_last_is_no_gap_below_zero() -> None:
    """Kernel stamps may step back when the clock is set: gaps still add up, and none is negative."""
    stream = Stream()
    for at_us in (100, 90, 120):
        stream.feed(say("a"), at_us)
    assert list(stream.gaps_us) == [0, 20]
    assert (stream.first_token_us, stream.last_token_us) == (100, 120)


def test_an_event_torn_by_the_end_of_the_body_is_no_odd_chunk() -> None:
    """What ends in the midst of an event is told from an event that is no chunk."""
    torn, odd = read(say("a"), b'data: {"cho'), read(say("a"), b"data: pulse\n\n")
    assert (torn.is_torn, torn.odd_chunk) == (True, None)
    assert (odd.is_torn, odd.odd_chunk) == (False, b"pulse")
