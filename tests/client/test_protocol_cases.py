"""Event streams as servers really send them: each oddity by name, read by the whole client.

What is expected was told from the definitions by hand, never by running the client.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from loadgen.records import Outcome, RequestRecord
from tests.client.streams import DONE, HEAD, LAST_CHUNK, bill, chunk, delta, event, fault, say, text
from tests.client.told import Told, Writes, asked, check


def stream(*writes: tuple[float, bytes]) -> Writes:
    """Each write is one chunk of HTTP; the headers come at once, and the body ends with the last write."""
    whole = [(ms, chunk(data)) for ms, data in writes]
    whole[-1] = (whole[-1][0], whole[-1][1] + LAST_CHUNK)
    return [(0.0, HEAD), *whole]


def two(usage: bytes = b"", end: bytes = DONE) -> Writes:
    """Tokens at 30 and 40 ms, the last with a finish reason."""
    return [(0.0, HEAD), (30, chunk(say("a"))), (40, chunk(say("b", "stop") + usage + end) + LAST_CHUNK)]


NO_BILL = ["no_usage"]
PAIR = Told(first=30, gaps=[10], tokens=(2, "events"), finish="stop", warnings=NO_BILL)
BILLED = Told(first=30, gaps=[10], tokens=(2, "usage"), finish="stop", each=1)


def tgi(text: str, *, special: bool = False, details: dict[str, Any] | None = None) -> bytes:
    """An event of text-generation-inference's native stream, which has no blank after `data:`."""
    token = {"id": 5, "text": text, "logprob": -0.5, "special": special}
    return event({"index": 1, "token": token, "details": details}).replace(b"data: ", b"data:")


def tool(**function: Any) -> bytes:
    return delta(tool_calls=[{"index": 0, "id": "call_1", "function": function}])


def with_usage(usage: Any, content: str = "a", finish: Any = None) -> bytes:
    return event({"choices": [{"delta": {"content": content}, "finish_reason": finish}], "usage": usage})


EVENTS: dict[str, tuple[Writes, Told]] = {
    "every line ends in CR LF": (
        stream(
            (30, say("a").replace(b"\n", b"\r\n")), (40, (say("b", "stop") + DONE).replace(b"\n", b"\r\n"))
        ),
        PAIR,
    ),
    "every line ends in CR": (
        stream((30, say("a").replace(b"\n", b"\r")), (40, (say("b", "stop") + DONE).replace(b"\n", b"\r"))),
        PAIR,
    ),
    "CR LF CR LF is cut after its third character, which ends the event": (
        stream((30, say("a")[:-2] + b"\r\n\r"), (35, b"\n"), (40, say("b", "stop") + DONE)),
        PAIR,
    ),
    "line ends of all three kinds are mixed": (
        stream(
            (30, say("a")[:-2] + b"\r\n\n"), (40, say("b", "stop")[:-2] + b"\r\n\r" + DONE[:-2] + b"\n\r")
        ),
        PAIR,
    ),
    "there is no space after the colon": (
        stream((30, say("a").replace(b"data: ", b"data:")), (40, say("b", "stop") + b"data:[DONE]\n\n")),
        PAIR,
    ),
    "pings and comments come before, between and within events": (
        stream(
            (10, b":\n\n"),
            (20, b": ping - 2031\r\n\r\n"),
            (30, b": c\n" + say("a")),
            (35, b":\n\n"),
            (40, say("b", "stop") + b": bye\n\n" + DONE),
        ),
        PAIR,
    ),
    "one event's JSON is spread over several data lines": (
        stream(
            (30, b'data: {"choices":\ndata: [{"delta":\ndata:{"content":"a"}}]}\n\n'),
            (40, say("b", "stop") + DONE),
        ),
        PAIR,
    ),
    "events have ids, names and a retry line": (
        stream(
            (5, b"retry: 3000\n\n"),
            (30, b"id: 1\nevent: message\n" + say("a")),
            (35, b": ping\n\n"),
            (40, b"id: 2\n" + say("b", "stop") + b"event: done\n" + DONE),
        ),
        PAIR,
    ),
    "events without data lie between": (
        stream(
            (5, b"data:\n\n"),
            (6, b"data: \n\n"),
            (7, b"event: ping\n\n"),
            (30, say("a")),
            (40, say("b", "stop") + DONE),
        ),
        PAIR,
    ),
    "text holds separators that other readers take for line ends": (
        stream(
            (30, b'data: {"choices":[{"delta":{"content":"x\xe2\x80\xa8y\xe2\x80\xa9\xc2\x85z\x0c"}}]}\n\n'),
            (40, say("b", "stop") + DONE),
        ),
        PAIR,
    ),
    "a read ends inside a character": (
        stream(
            (20, '{"choices":[{"delta":{"content":"猫'.encode().join([b"data: ", b""])[:-1]),
            (30, "猫".encode()[-1:] + b'"}}]}\n\n'),
            (40, say("b", "stop") + DONE),
        ),
        PAIR,
    ),
    "the stream begins with a byte order mark": (
        stream((30, b"\xef\xbb\xbf" + say("a")), (40, say("b", "stop") + DONE)),
        PAIR,
    ),
    "a line is more than a megabyte long": (
        stream((30, say("x" * 1_200_000)), (40, say("b", "stop") + DONE)),
        PAIR,
    ),
    "an event's instant is that of the read that completed it": (
        stream(
            (20, say("a")[:20]), (25, say("a")[20:40]), (30, say("a")[40:]), (40, say("b", "stop") + DONE)
        ),
        PAIR,
    ),
    "several events came in one read": (
        stream((30, say("a")), (60, say("b") * 3), (90, say("c", "stop") + bill(5) + DONE)),
        Told(first=30, gaps=[30, 0, 0, 30], tokens=(5, "usage"), finish="stop", each=1),
    ),
    "all events came in one read, long after the role": (
        stream((10, delta(role="assistant")), (900, say("a") * 3 + say("b", "stop") + bill(4) + DONE)),
        Told(
            first=900,
            gaps=[0, 0, 0],
            tokens=(4, "usage"),
            finish="stop",
            each=1,
            warnings=["buffered_stream_suspected"],
        ),
    ),
    # --- ends ---------------------------------------------------------------------------------------------
    "[DONE] is padded with blanks": (two(end=b"data:   [DONE]  \n\n"), PAIR),
    "[DONE] is followed by more, which is not read": (
        two(end=DONE + say("late") + fault(500) + bill(99) + DONE),
        PAIR,
    ),
    "[DONE] lacks its blank line": (two(end=b"data: [DONE]"), PAIR),
    "there is no [DONE]": (
        two(end=b""),
        Told(first=30, gaps=[10], tokens=(2, "events"), finish="stop", warnings=["missing_done", "no_usage"]),
    ),
    "there is [DONE] and no finish reason": (
        stream((30, say("a")), (40, say("b") + delta() + DONE)),
        Told(first=30, gaps=[10], tokens=(2, "events"), warnings=["missing_finish_reason", "no_usage"]),
    ),
    "there is neither finish reason nor [DONE]": (
        stream((30, say("a")), (40, say("b"))),
        Told(Outcome.BROKEN, first=30, gaps=[10], tokens=(2, "events"), words="without a finish reason"),
    ),
    "an empty finish reason on every event is none": (
        stream((30, say("a", "")), (40, say("b", "stop")), (41, say("", "") + DONE)),
        PAIR,
    ),
    "the finish reason is a boolean": (
        stream(
            (30, event({"choices": [{"delta": {"content": "a"}, "finish_reason": False}]})),
            (40, say("b", "stop") + DONE),
        ),
        PAIR,
    ),
    "a chunk of no known kind lies between": (
        stream((30, say("a")), (35, event({"object": None})), (40, say("b", "stop") + DONE)),
        Told(first=30, gaps=[10], tokens=(2, "events"), finish="stop", warnings=["no_usage", "odd_chunk"]),
    ),
    "an event that is no JSON lies between": (
        stream((30, say("a")), (35, b"data: <pulse>\n\n"), (40, say("b", "stop") + DONE)),
        Told(first=30, gaps=[10], tokens=(2, "events"), finish="stop", warnings=["no_usage", "odd_chunk"]),
    ),
    # --- deltas -------------------------------------------------------------------------------------------
    "the role comes first, and again in every delta": (
        stream(
            (10, delta(role="assistant", content="")),
            (20, delta(role="assistant")),
            (30, delta(role="assistant", content="a")),
            (40, delta("stop", role="assistant", content="b") + DONE),
        ),
        PAIR,
    ),
    "the content is null until it is not": (
        stream((10, delta(role="assistant", content=None)), (30, say("a")), (40, say("b", "stop") + DONE)),
        PAIR,
    ),
    "an empty delta is an empty list": (
        stream(
            (30, say("a")),
            (40, say("b")),
            (41, event({"choices": [{"delta": [], "finish_reason": "stop"}]}) + DONE),
        ),
        PAIR,
    ),
    "reasoning comes under both names, then text": (
        stream(
            (30, delta(reasoning_content="hm", content=None)),
            (40, delta(reasoning="so", content="")),
            (55, say("42", "stop") + DONE),
        ),
        Told(first=30, gaps=[10, 15], tokens=(3, "events"), finish="stop", warnings=NO_BILL, visible=55),
    ),
    "reasoning is all there is": (
        stream((30, delta("length", reasoning_content="hm") + bill(1) + DONE)),
        Told(first=30, tokens=(1, "usage"), finish="length", each=1, visible=None),
    ),
    "the content is a list of parts": (
        stream(
            (10, delta(content=[{"type": "text", "text": ""}])),
            (12, delta(content=[])),
            (20, delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}])),
            (30, delta(content=[{"type": "text", "text": "a"}])),
            (31, delta("stop") + DONE),
        ),
        Told(first=20, gaps=[10], tokens=(2, "events"), finish="stop", warnings=NO_BILL, visible=30),
    ),
    "a tool call comes as a name, then as fragments of its arguments": (
        stream(
            (10, tool(arguments="")),
            (30, tool(name="f", arguments="")),
            (40, tool(arguments='{"x":')),
            (50, tool(name=None, arguments="1}")),
            (51, delta("tool_calls") + DONE),
        ),
        Told(
            first=30, gaps=[10, 10], tokens=(3, "events"), finish="tool_calls", warnings=NO_BILL, visible=None
        ),
    ),
    "a function call in the older words": (
        stream(
            (30, delta(function_call={"name": "f"})),
            (40, delta(function_call={"arguments": "{}"})),
            (41, delta("function_call") + DONE),
        ),
        Told(
            first=30, gaps=[10], tokens=(2, "events"), finish="function_call", warnings=NO_BILL, visible=None
        ),
    ),
    "two answers share the stream": (
        stream(
            (30, event({"choices": [{"index": 0, "delta": {"content": "a"}}]})),
            (40, event({"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}]})),
            (
                50,
                event({"choices": [{"index": 0, "delta": {"content": "c"}, "finish_reason": "length"}]})
                + DONE,
            ),
        ),
        Told(first=30, gaps=[10, 10], tokens=(3, "events"), finish="length", warnings=NO_BILL),
    ),
    "two answers share an event, whose token may be the second's": (
        stream(
            (30, event({"choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {"content": "b"}}]})),
            (40, say("c", "stop") + DONE),
        ),
        PAIR,
    ),
    "two answers share an event, of which only the first has a token": (
        stream(
            (30, event({"choices": [{"index": 0, "delta": {"reasoning": "hm"}}, {"index": 1, "delta": {}}]})),
            (40, say("c", "stop") + DONE),
        ),
        Told(first=30, gaps=[10], tokens=(2, "events"), finish="stop", warnings=NO_BILL, visible=40),
    ),
    "the text is sent whole again with every event": (
        stream((30, text("a")), (40, text("ab")), (50, text("abc", "stop") + bill(3) + DONE)),
        Told(first=30, gaps=[10, 10], tokens=(3, "usage"), finish="stop", each=1),
    ),
    "the answer so far stands beside every delta": (
        stream(
            (10, event({"choices": [{"delta": {"role": "assistant"}, "message": {"content": ""}}]})),
            (30, event({"choices": [{"delta": {"content": "a"}, "message": {"content": "a"}}]})),
            (40, say("b", "stop") + DONE),
        ),
        PAIR,
    ),
    "tool calls are an object, beside text": (
        stream((30, delta(content="a", tool_calls={})), (40, say("b", "stop") + DONE)),
        PAIR,
    ),
    "a character in halves is a token each": (
        stream(
            (30, b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n'),
            (40, b'data: {"choices":[{"delta":{"content":"\xf0\x9f"},"finish_reason":"stop"}]}\n\n' + DONE),
        ),
        PAIR,
    ),
    "a log probability is not a number": (
        stream(
            (30, b'data: {"choices":[{"delta":{"content":"a"},"logprobs":[NaN,-Infinity]}]}\n\n'),
            (40, say("b", "stop") + DONE),
        ),
        PAIR,
    ),
    # --- usage --------------------------------------------------------------------------------------------
    "usage comes with no choices": (two(bill(2)), BILLED),
    "usage comes alone, without the key `choices`": (
        two(event({"usage": {"prompt_tokens": 7, "completion_tokens": 2}})),
        BILLED,
    ),
    "usage comes with an empty delta": (
        stream((30, say("a")), (40, say("b", "stop")), (41, say("", usage=2) + DONE)),
        BILLED,
    ),
    "usage comes with an empty text": (
        stream(
            (30, text("a")), (40, text("b")), (41, with_usage({"completion_tokens": 2}, "", "stop") + DONE)
        ),
        BILLED,
    ),
    "usage is null in all events but its own": (
        stream((30, with_usage(None)), (40, with_usage(None, "b", "stop")), (41, bill(2) + DONE)),
        BILLED,
    ),
    "usage grows with every event": (
        stream(
            (30, say("a", usage=1)),
            (40, say("bcd", usage=4)),
            (50, say("e", "stop", usage=5) + bill(5) + DONE),
        ),
        Told(first=30, gaps=[10, 10], tokens=(5, "usage"), finish="stop", each=[1, 3, 1]),
    ),
    "usage counts the prompt at first and the answer only at the end": (
        stream((10, bill(0)), (30, say("a")), (40, say("b", "stop") + bill(2) + DONE)),
        BILLED,
    ),
    "usage counts the prompt at first and nothing ever after": (
        stream((10, bill(0)), (30, say("a")), (40, say("b", "stop") + DONE)),
        PAIR,
    ),
    "usage told the total before the tokens came": (
        stream((10, bill(2)), (30, say("a")), (40, say("b", "stop") + DONE)),
        BILLED,
    ),
    "an empty usage after the true one takes nothing back": (
        two(bill(2) + event({"choices": [], "usage": {}})),
        BILLED,
    ),
    "a usage of negative and broken counts is none": (
        stream(
            (30, with_usage({"completion_tokens": -1})),
            (40, with_usage({"completion_tokens": "2"}, "b", "stop") + DONE),
        ),
        PAIR,
    ),
    "usage has more tokens than events": (
        two(bill(9)),
        Told(first=30, gaps=[10], tokens=(9, "usage"), finish="stop", warnings=["multi_token_chunks"]),
    ),
    "nothing was said, and counted": (
        stream((30, delta("stop") + bill(0) + DONE)),
        Told(tokens=(0, "usage"), finish="stop", warnings=["empty_output"]),
    ),
    "usage has fewer tokens than events": (
        two(bill(1)),
        Told(first=30, gaps=[10], tokens=(1, "usage"), finish="stop", warnings=["fewer_tokens_than_chunks"]),
    ),
    "usage has details larger than its total": (
        two(bill(2, completion_tokens_details={"reasoning_tokens": 900})),
        BILLED,
    ),
    "usage has null for choices": (
        two(event({"choices": None, "usage": {"completion_tokens": 2}})),
        BILLED,
    ),
    "an early usage is followed by one that counts nothing": (
        stream(
            (10, bill(0)), (30, say("a")), (40, say("b", "stop") + event({"choices": [], "usage": {}}) + DONE)
        ),
        PAIR,
    ),
    "something was counted that never came": (
        stream((30, delta("stop") + bill(5) + DONE)),
        Told(tokens=(5, "usage"), finish="stop", warnings=["no_visible_token"]),
    ),
    # --- errors -------------------------------------------------------------------------------------------
    "an error follows tokens": (
        stream((30, say("a")), (40, fault(500, "worker gone") + DONE)),
        Told(Outcome.STREAM_ERROR, first=30, tokens=(1, "events"), words="worker gone"),
    ),
    "an error has `choices` beside it": (
        stream(
            (
                30,
                event(
                    {
                        "error": {"message": "cut off"},
                        "choices": [{"delta": {"content": ""}, "finish_reason": "error"}],
                    }
                ),
            )
        ),
        Told(Outcome.STREAM_ERROR, words="cut off"),
    ),
    "an error is a string": (
        stream((30, event({"error": "no room"}))),
        Told(Outcome.STREAM_ERROR, words="no room"),
    ),
    "an error is a list": (
        stream((30, event({"error": [{"message": "no room", "code": 400}]}))),
        Told(Outcome.STREAM_ERROR, words="no room"),
    ),
    "an error has a raw tab in its message": (
        stream((30, b'data: {"error":{"message":"no\troom"}}\n\n')),
        Told(Outcome.STREAM_ERROR, words="no\troom"),
    ),
    "an error is an object without a message": (
        stream((30, event({"error": {"detail": "no room"}}))),
        Told(Outcome.STREAM_ERROR, words="no room"),
    ),
    "an error names itself by `object`": (
        stream((30, event({"object": "error", "message": "no room", "code": 400}))),
        Told(Outcome.STREAM_ERROR, words="no room"),
    ),
    "an event is named an error": (
        stream((30, b'event: error\ndata: {"message":"no room"}\n\n')),
        Told(Outcome.STREAM_ERROR, words="no room"),
    ),
    "an event named an error holds plain words": (
        stream((30, say("a")), (40, b"event: error\ndata: out of memory\n\n")),
        Told(Outcome.STREAM_ERROR, first=30, tokens=(1, "events"), words="out of memory"),
    ),
    "an `error:` field stands where data should": (
        stream((30, b'error: {"code":400,"message":"no room"}\n\n' + DONE)),
        Told(Outcome.STREAM_ERROR, words="no room"),
    ),
    "the first event says 429": (stream((30, fault(429))), Told(Outcome.REJECTED, words="too busy")),
    "the first event says 503 as text": (
        stream((30, fault("503"))),
        Told(Outcome.REJECTED, words="too busy"),
    ),
    "the first event says 429 beside the error": (
        stream((30, event({"error": "too busy", "code": 429}))),
        Told(Outcome.REJECTED, words="too busy"),
    ),
    "the first event after pings says 429": (
        stream((10, b": ping\n\n"), (30, b"event: error\n" + fault(429))),
        Told(Outcome.REJECTED, words="too busy"),
    ),
    "the second event says 429": (
        stream((10, delta(role="assistant")), (30, fault(429))),
        Told(Outcome.STREAM_ERROR, words="too busy"),
    ),
    "`error` is null in every event": (
        stream(
            (30, event({"error": None, "choices": [{"delta": {"content": "a"}}]})),
            (40, say("b", "stop") + DONE),
        ),
        PAIR,
    ),
    "`error` is empty in every event": (
        stream(
            (30, event({"error": "", "choices": [{"delta": {"content": "a"}}]})),
            (
                40,
                event({"error": {}, "choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]})
                + DONE,
            ),
        ),
        PAIR,
    ),
    # --- no stream of chunks ------------------------------------------------------------------------------
    "the body is empty": ([(0, HEAD + LAST_CHUNK)], Told(Outcome.EMPTY, words="without a token")),
    "there are only pings": (stream((5, b": ping\n\n"), (9, b":\n\n")), Told(Outcome.EMPTY)),
    "there is only [DONE]": (stream((5, DONE)), Told(Outcome.EMPTY)),
    "there is only a byte order mark and [DONE]": (
        stream((5, b"\xef\xbb\xbf" + DONE)),
        Told(Outcome.EMPTY),
    ),
    "there is only a role": (
        stream((5, delta(role="assistant"))),
        Told(Outcome.EMPTY),
    ),
    "a whole answer comes as one event": (
        stream(
            (
                30,
                event(
                    {
                        "object": "chat.completion",
                        "choices": [
                            {"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
                        ],
                    }
                )
                + DONE,
            )
        ),
        Told(Outcome.MALFORMED, words="chat.completion", warnings=["odd_chunk"]),
    ),
    "a whole answer comes as the body of an event stream": (
        stream((30, b'{"object":"chat.completion","choices":[{"message":{"content":"hi"}}]}')),
        Told(Outcome.MALFORMED, words="chat.completion"),
    ),
    "a page comes as the body of an event stream": (
        stream((30, b"<!doctype html><html>gateway</html>")),
        Told(Outcome.MALFORMED, words="gateway"),
    ),
    "events are of another interface": (
        stream((30, b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n')),
        Told(Outcome.MALFORMED, words="content_block_delta", warnings=["odd_chunk"]),
    ),
    # --- native streams -----------------------------------------------------------------------------------
    "text-generation-inference's own stream": (
        stream(
            (
                30,
                tgi("a"),
            ),
            (
                40,
                tgi("</s>", special=True, details={"finish_reason": "eos_token", "generated_tokens": 2}),
            ),
        ),
        Told(first=30, gaps=[10], tokens=(2, "usage"), finish="eos_token", each=1, warnings=["missing_done"]),
    ),
    "text-generation-inference's own error": (
        stream((30, b'data:{"error":"Request failed during generation","error_type":"generation"}\n\n')),
        Told(Outcome.STREAM_ERROR, words="failed during generation"),
    ),
    "llama.cpp's own stream": (
        stream(
            (30, event({"content": "a", "stop": False})),
            (40, event({"content": "b", "stop": False})),
            (
                41,
                event(
                    {
                        "content": "",
                        "stop": True,
                        "stop_type": "limit",
                        "tokens_predicted": 2,
                        "tokens_evaluated": 7,
                    }
                ),
            ),
        ),
        Told(first=30, gaps=[10], tokens=(2, "usage"), finish="length", each=1, warnings=["missing_done"]),
    ),
}


@pytest.mark.parametrize("name", EVENTS)
def test_events(name: str) -> None:
    """A stream like this leaves a record like that."""
    check(_of_events()[name], EVENTS[name][1])


@cache
def _of_events() -> dict[str, RequestRecord]:
    return dict(zip(EVENTS, asked(*((writes, "keep") for writes, _ in EVENTS.values())), strict=True))
