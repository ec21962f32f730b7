"""Whatever a server sends, its request leaves a record that can be written and read back."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.client.preflight import Unreachable, preflight
from loadgen.records import Outcome, RequestRecord
from loadgen.run_folder import RunWriter, load
from loadgen.scenario import Timeouts
from loadgen.target import Target
from tests.client.runs import in_turn, plan_of, run_plan, scenario_of, writing
from tests.client.streams import DONE, HEAD, LAST_CHUNK, bill, chunk, delta, fault, plain, say
from tests.fakes import SSE, Reply, ScriptedServer, event, json_reply, models_reply
from tests.records import header


def read_back(*answers: bytes) -> list[RequestRecord]:
    """The records of a run whose n-th request gets the n-th answer, after a round through a run folder."""
    peers = [writing((0.0, answer), end="finish") for answer in answers]
    plan = plan_of([i / 100 for i in range(len(answers))])
    ran = run_plan(plan, in_turn(*peers), scenario_of(target={"connections": "fresh"}))
    with tempfile.TemporaryDirectory() as folder:
        with RunWriter(Path(folder)) as writer:
            writer.write_header(header(rows_due=len(answers)))
            for record in ran.records:
                writer.append(record)
        kept = load(Path(folder)).records
    assert kept.error == [record.error for record in ran.records]
    assert kept.finish_reason == [record.finish_reason for record in ran.records]
    assert sorted(kept.index.tolist()) == list(range(len(answers)))
    return ran.records


def streamed(*events: bytes) -> bytes:
    return HEAD + chunk(b"".join(events)) + LAST_CHUNK


HALF = b"\\ud800"
HOSTILE: dict[str, tuple[bytes, Outcome, str]] = {
    "a Retry-After beyond any calendar": (
        plain(429, b"full", retry_after="Mon, 01 Jan 99999999999999 00:00:00 GMT"),
        Outcome.REJECTED, "full",
    ),
    "a code of 5,000 digits": (streamed(fault("9" * 5000)), Outcome.STREAM_ERROR, "too busy"),
    "a code of 5,000 digits as a number": (
        streamed(b'data: {"error":{"message":"m","code":' + b"9" * 5000 + b"}}\n\n"),
        Outcome.MALFORMED, "no chunk in the stream",
    ),
    "an error of endless depth": (
        streamed(say("a"), b"event: error\ndata: " + b"[" * 50_000 + b"\n\n"),
        Outcome.STREAM_ERROR, "[[[[",
    ),
    "an error message of some depth": (
        streamed(b'data: {"error":{"message":' + b"[" * 900 + b"]" * 900 + b"}}\n\n"),
        Outcome.STREAM_ERROR, "[[[[",
    ),
    "half a character in an error object": (
        streamed(b'data: {"error":{"x":"' + HALF + b'"}}\n\n'),
        Outcome.STREAM_ERROR, '{"x":"\\ud800"}',
    ),
    "half a character in an error message": (
        streamed(b'event: error\ndata: {"message":"' + HALF + b' x"}\n\n'),
        Outcome.STREAM_ERROR, "\ufffd x",
    ),
    "half a character in a finish reason": (
        streamed(say("a"), b'data: {"choices":[{"finish_reason":"' + HALF + b'"}]}\n\n', DONE),
        Outcome.OK, "",
    ),
    "a finish reason of two megabytes": (streamed(say("a"), delta("F" * 2_000_000), DONE), Outcome.OK, ""),
    "an error message of two megabytes": (
        streamed(fault(500, "E" * 2_000_000)), Outcome.STREAM_ERROR, "E" * 2048,
    ),
    "a location of 100 kilobytes": (plain(302, location="L" * 100_000), Outcome.HTTP_ERROR, "redirects to L"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers(name: str) -> None:
    """Each leaves a record of bounded length, and its outcome is the server's doing."""
    answer, outcome, words = HOSTILE[name]
    (record,) = read_back(answer)
    assert record.outcome is outcome
    assert words in (record.error or "")
    assert len(record.error or "") <= 2048
    assert len(record.finish_reason or "") <= 64


PIECES = st.sampled_from(
    [
        say("a"), say("b", "stop"), bill(2), DONE, fault(429), fault("5"), delta(role="assistant"),
        event({"object": "error", "message": "m", "code": 5}), b"error: y\n\n", b": ping\n\n",
        b"event: error\n", b'data: {"message":"\\udfff"}\n\n', b'"finish_reason":"\\ud800"', b"\xff", b"null",
        b"[]", b"{}", b"1e999", b"-1", b'"', b"\n\n", b"\r", b"9" * 5000, b"[" * 2000, b"\\", b"data: ",
        b'{"choices":[{"delta":{"tool_calls":[{"function":{"name":"\\ud83d"}}]}}]}', b'"usage":{}',
    ]
)  # fmt: skip
BODIES = st.lists(PIECES | st.binary(max_size=8), max_size=12).map(b"".join)
LINES = st.sampled_from(
    [
        b"content-type: text/event-stream", b"content-type: application/json", b"content-type: \xff/\x80json",
        b"content-encoding: gzip", b"location: \xff", b"retry-after: 1", b"retry-after: Mon, 1 Jan 9 0:0:0 X",
        b"retry-after: Mon, 99 Jan 2031 99:99:99 GMT", b"date: Mon, 01 Jan 2031 00:00:00 -9999", b"date: 0",
        b"retry-after: 1 Jan 99999999999999 0:0", b"date: Mon, 01 Jan 2031 00:00:00 GMT", b"x: \x00", b": ",
        b"connection: close", b"content-length: 5", b"content-length: -5", b"transfer-encoding: gzip",
    ]
)  # fmt: skip
STATUSES = st.sampled_from(
    [b"200 OK"] * 4 + [b"429 No", b"503 No", b"500 No", b"302 Go", b"100 Wait", b"0", b""]
)
HEADS = st.tuples(STATUSES, st.lists(LINES, max_size=4)).map(
    lambda parts: b"HTTP/1.1 " + b"\r\n".join([parts[0], *parts[1], b"", b""])
)
CHUNKED = st.builds(lambda body: HEAD + chunk(body) + LAST_CHUNK, BODIES.filter(bool))
ANSWERS = CHUNKED | st.tuples(HEADS, BODIES).map(b"".join) | BODIES


@settings(max_examples=15)
@given(st.lists(ANSWERS, min_size=1, max_size=40))
def test_any_bytes_leave_a_record(answers: list[bytes]) -> None:
    """Mangled heads, streams and plain noise: one record each, and all can be read back."""
    assert len(read_back(*answers)) == len(answers)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(headers=SSE, writes=[(0, b"event: error\ndata: " + b"[" * 50_000 + b"\n\n")]),
        Reply(headers=SSE, writes=[(0, fault("9" * 5000))]),
        Reply(headers=SSE, writes=[(0, b'data: {"error":{"x":"' + HALF + b'"}}\n\n')]),
        Reply(headers=SSE, writes=[(0, b'data: {"error":{"message":"' + HALF + b'"}}\n\n')]),
        json_reply({"detail": [{"loc": [-(10**400)], "msg": "m"}]}, status=422),
    ],
)
async def test_a_hostile_answer_to_the_preflight_is_told(reply: Reply) -> None:
    """What would break a record breaks the preflight no more: it says what came."""
    script = {"/v1/models": models_reply("tiny"), "/v1/chat/completions": reply}
    async with ScriptedServer(script) as server:
        with pytest.raises(Unreachable) as told:
            await preflight(Target(base_url=server.url), None, Timeouts(), ignore_eos=False)
    str(told.value).encode()


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".test"])
async def test_a_host_name_that_no_name_server_takes_is_told(host: str) -> None:
    """An empty or too long part of the name is the target's fault, not a bug of ours."""
    with pytest.raises(Unreachable, match="does not resolve"):
        await preflight(Target(base_url=f"http://{host}:80"), None, Timeouts(), ignore_eos=False)
