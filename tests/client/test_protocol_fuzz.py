"""Bytes nobody thought of: how they fall into reads changes nothing, and nothing raises."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.client.stream import Stream
from loadgen.records import Outcome
from tests.client.streams import DONE, HEAD, LAST_CHUNK, bill, chunk, delta, event, fault, head, say, text
from tests.client.told import Writes, asked

Figures = dict[str, Any]

VOCABULARY = [
    say("a"), say("é", "stop"), say("b", usage=3), text("c"), text("", "length"), bill(2), bill(0), DONE,
    delta(role="assistant", content=""), delta(reasoning="hm"), delta(content=[{"text": "x"}]),
    delta(tool_calls=[{"function": {"name": "f"}}]), delta(function_call={"arguments": "{}"}), fault(429),
    fault("x"), event({"object": "error", "message": "m", "code": 5}), event({"object": None}),
    event({"content": "n", "stop": True, "tokens_predicted": 1}), b"error: y\n\n", b": ping\n\n",
    event({"token": {"text": "t"}, "details": {"finish_reason": "f", "generated_tokens": 1}}),
    b"event: error\n", b"retry: 5\n\n", b"data:\n\n", b"id: 1\nevent: message\n", b"\xef\xbb\xbf",
    b'data: {"choices":[{"text":"\\ud83d"}]}\n\n',
]  # fmt: skip
NOISE = [
    b"", b"\n", b"\r", b"\n\n", b'"', b"{", b"}", b"[", b"null", b"-1", b"1e999", b"\xff", b"\\u", b":",
]  # fmt: skip
ENDS = [b"\n", b"\r", b"\r\n"]


def figures(reads: list[bytes]) -> Figures:
    """All that can be known of a stream whose reads came at one instant."""
    stream = Stream(keeps_text=True)
    for data in reads:
        stream.feed(data, 7)
    stream.end(7)
    found = {name: getattr(stream, name) for name in Stream.__slots__ if not name.startswith("_")}
    return found | {
        "tokens": stream.output_tokens(),
        "each": stream.event_tokens(),
        "warnings": stream.warnings(),
    }


def cut(body: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(at for at in cuts if at <= len(body)), len(body)]
    return [body[a:b] for a, b in pairwise(edges)]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Real events with other line ends, some bytes of which are lost, doubled or replaced."""
    body = bytearray(b"".join(draw(st.lists(st.sampled_from(VOCABULARY), max_size=8))))
    for _ in range(draw(st.integers(0, 4)) if body else 0):
        at = draw(st.integers(0, len(body) - 1)) if body else 0
        body[at : at + draw(st.integers(0, 3))] = draw(st.sampled_from(NOISE))
    return bytes(body).replace(b"\n", draw(st.sampled_from(ENDS)))


CUTS = st.lists(st.integers(0, 1200), max_size=12)


@settings(max_examples=300)
@given(mutated() | st.binary(max_size=300), CUTS)
def test_reads_change_no_figure(body: bytes, cuts: list[int]) -> None:
    """Any split of any bytes gives the tokens, errors, text and warnings of the unsplit bytes."""
    whole = figures([body])
    assert figures(cut(body, cuts)) == whole
    assert figures([body[i : i + 1] for i in range(len(body))]) == whole


SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2**40)
    | st.floats()
    | st.sampled_from(["", "a", "stop", "7", "429"])
)
ANY = st.recursive(
    SIMPLE,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["text", "x"]), inner),
    max_leaves=4,
)


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects some of whose keys are missing, and some of whose values are of any type."""
    return st.fixed_dictionaries({}, optional={key: kind | ANY for key, kind in fields.items()})


FUNCTION = objects(name=SIMPLE, arguments=SIMPLE)
DELTA = objects(
    content=SIMPLE, reasoning=SIMPLE, reasoning_content=SIMPLE, function_call=FUNCTION,
    tool_calls=st.lists(objects(function=FUNCTION), max_size=2),
)  # fmt: skip
CHOICE = objects(index=st.integers(0, 1), delta=DELTA, text=SIMPLE, message=DELTA, finish_reason=SIMPLE)
USAGE = objects(
    prompt_tokens=st.integers(0, 9), completion_tokens=st.integers(0, 9),
    completion_tokens_details=objects(reasoning_tokens=st.integers(0, 9)),
)  # fmt: skip
CHUNK = objects(
    choices=st.lists(CHOICE, max_size=2), usage=USAGE, error=objects(message=SIMPLE, code=SIMPLE),
    object=SIMPLE, message=SIMPLE, code=SIMPLE, token=objects(text=SIMPLE, special=st.booleans()),
    content=SIMPLE, stop=st.booleans(),
    details=objects(finish_reason=SIMPLE, generated_tokens=st.integers(0, 9)),
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(CHUNK, max_size=6))
def test_chunks_of_any_shape_leave_figures_that_agree(chunks: list[dict[str, Any]]) -> None:
    """With parts missing or of the wrong type, n token events still have n-1 gaps, which add up."""
    stream = Stream(keeps_text=True)
    for at_us, parts in enumerate(chunks):
        stream.feed(b"data: " + msgspec.json.encode(parts) + b"\n\n", at_us)
    stream.end(len(chunks))
    assert len(stream.gaps_us) == max(0, stream.events - 1)
    assert stream.events <= len(chunks)
    assert (stream.first_token_us is None) == (stream.events == 0)
    if stream.first_token_us is not None:
        assert stream.first_token_us + sum(stream.gaps_us) == stream.last_token_us
        assert stream.first_visible_us is None or stream.first_visible_us >= stream.first_token_us
    assert stream.error is None or isinstance(stream.error[1], str)
    assert stream.usage_tokens is None or stream.usage_tokens >= 0


FRAMES: list[Callable[[bytes], bytes]] = [
    lambda body: HEAD + (chunk(body) if body else b"") + LAST_CHUNK,
    lambda body: HEAD + b"".join(chunk(body[i : i + 40]) for i in range(0, len(body), 40)) + LAST_CHUNK,
    lambda body: head(f"content-length: {len(body)}") + body,
    lambda body: b"HTTP/1.1 100 Continue\r\n\r\n" + head(f"content-length: {len(body) + 9}") + body,
    lambda body: head("content-type: application/json", f"content-length: {len(body)}") + body,
    lambda body: head(f"content-length: {len(body)}", "retry-after: 1", status="429 Busy") + body,
    lambda body: head(version="1.0") + body,
    lambda body: body,
]


def damaged(chance: random.Random) -> bytes:
    """As `mutated`, by plain chance: faster, and without a search for the smallest example."""
    body = bytearray(b"".join(chance.choices(VOCABULARY, k=chance.randrange(9))))
    for _ in range(chance.randrange(6) if body else 0):
        at = chance.randrange(len(body) + 1)
        body[at : at + chance.randrange(4)] = chance.choice(NOISE) or bytes([chance.randrange(256)])
    return bytes(body).replace(b"\n", chance.choice(ENDS))


def anywhere(chance: random.Random, body: bytes) -> list[bytes]:
    return cut(body, [chance.randrange(len(body) + 1) for _ in range(chance.randrange(9))])


def test_reads_change_no_record() -> None:
    """Any split of any answer leaves the record of the unsplit one, however its body is framed."""
    chance = random.Random(3)
    wholes = [chance.choice(FRAMES)(damaged(chance)) or b"?" for _ in range(400)]
    one_read: list[tuple[Writes, str]] = [([(0, whole)], "finish") for whole in wholes]
    many: list[tuple[Writes, str]] = [
        ([(0, read) for read in anywhere(chance, whole) if read], "finish") for whole in wholes
    ]
    assert asked(*many, apart_s=0.01) == asked(*one_read, apart_s=0.01)


@pytest.mark.slow
def test_two_hundred_thousand_damaged_events() -> None:
    """Random damage to real streams: figures agree split and unsplit, and nothing raises."""
    chance = random.Random(5)
    for _ in range(50_000):
        body = damaged(chance)
        assert figures(anywhere(chance, body)) == figures([body])


def test_what_is_fuzzed_is_near_enough_to_real_streams() -> None:
    """Undamaged, an answer in each frame of an event stream is ok."""
    body = say("a") + say("b", "stop") + bill(2) + DONE
    records = asked(*(([(0, frame(body))], "finish") for frame in FRAMES[:4]))
    assert {record.outcome for record in records} == {Outcome.OK}
