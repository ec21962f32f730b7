"""What real servers said, read back: CITATIONS.md tells where each file is from."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.backends import DialectName
from loadgen.client.answer import Answer
from loadgen.client.dialects import dialect
from loadgen.records import Outcome

HERE = Path(__file__).parent
TYPES = {
    ".sse": b"text/event-stream",
    ".ndjson": b"application/x-ndjson",
    ".json": b"application/json",
}
NO_DONE = "missing_done"
NO_REASON = "missing_finish_reason"
NO_USAGE = "no_usage"
MERGED = "multi_token_chunks"


@dataclass(frozen=True)
class Told:
    """What is to be read in a file.

    `tokens`: by the server's word, None where it counts none; `events` those that bear a token. `first`: in
    the event of the first visible token. `says`: in the error.
    """

    outcome: Outcome = Outcome.OK
    events: int = 0
    tokens: int | None = None
    prompt: int | None = None
    cached: int | None = None
    reason: str | None = None
    first: str | None = None
    text: str = ""
    warnings: tuple[str, ...] = ()
    says: str = ""
    status: int = 200


def failed(outcome: Outcome, says: str, *, status: int = 200) -> Told:
    return Told(outcome, says=says, status=status)


FILES: dict[str, tuple[DialectName, Told]] = {
    "litellm-no-finish-key.sse": (
        "chat",
        Told(events=1, first="?", text="?", warnings=(NO_REASON, NO_USAGE)),
    ),
    "litellm-usage-with-a-choice.sse": (
        "chat",
        Told(events=1, tokens=1, prompt=65, cached=64, reason="stop", first="a", text="a"),
    ),
    "llama-cpp-chat.sse": (
        "chat",
        Told(events=4, tokens=4, prompt=9, cached=0, reason="length", first=" sure", text=" suredirsFFERype"),
    ),
    "llama-cpp-completions.sse": (
        "completions",
        Told(events=4, tokens=4, prompt=6, cached=0, reason="length", first=" back", text=" back prCTher"),
    ),
    "llama-cpp-half-character.sse": (
        "chat",
        Told(events=1, reason="length", first="\ufffdfinite", text="\ufffdfinite", warnings=(NO_USAGE,)),
    ),
    "llama-cpp-native.sse": (
        "llama.cpp",
        Told(
            events=12,
            tokens=12,
            prompt=7,
            cached=0,
            reason="length",
            first="run",
            text="runSygthmmandversionstincebackluserverdataclass reields",
        ),
    ),
    "llama-cpp-native-cached.sse": (
        "llama.cpp",
        Told(
            events=11,
            tokens=12,
            prompt=7,
            cached=6,
            reason="length",
            first="signal",
            text='signal requires tmp Noormalund host\ufffdffe">%closed DE',
        ),
    ),
    "llama-cpp-one-token.sse": (
        "completions",
        Told(events=1, tokens=1, prompt=1, cached=0, reason="length", first="th", text="th"),
    ),
    "llama-cpp-responses.sse": (
        "responses",
        Told(
            events=12,
            tokens=12,
            prompt=7,
            cached=0,
            reason="stop",
            first="argument",
            text="argumentinternpack continue" + 33 * " " + "\ufffdRLParinuxfiles" + 35 * " " + "cre",
        ),
    ),
    "llama-cpp-too-long.json": (
        "completions",
        failed(Outcome.HTTP_ERROR, "exceeds the available context size", status=400),
    ),
    "ollama-chat.ndjson": (
        "ollama",
        Told(events=1, tokens=282, prompt=26, first="The", text="The", warnings=(NO_REASON, MERGED)),
    ),
    "ollama-thinking.ndjson": ("ollama", Told(events=2, tokens=2, prompt=1, warnings=(NO_REASON,))),
    "openai-responses-error.sse": (
        "responses",
        failed(Outcome.STREAM_ERROR, "You exceeded your current quota"),
    ),
    "openai-responses-failed.sse": ("responses", failed(Outcome.REJECTED, "Request too large")),
    "openai-responses-text.sse": (
        "responses",
        Told(
            events=1, tokens=2, prompt=12, cached=0, reason="stop", first="OK", text="OK", warnings=(MERGED,)
        ),
    ),
    "openai-responses-tool-call.sse": (
        "responses",
        Told(events=7, tokens=25, prompt=45, cached=0, reason="stop", warnings=(MERGED,)),
    ),
    "sglang-abort.sse": ("sglang", failed(Outcome.REJECTED, "The request queue is full.")),
    "sglang-chat.sse": (
        "chat",
        Told(events=1, tokens=1, prompt=5, reason="length", first=" on", text=" on", warnings=(NO_DONE,)),
    ),
    "sglang-cumulative.sse": (
        "sglang",
        Told(events=2, tokens=2, first="one", text="one two", warnings=(NO_REASON,)),
    ),
    "sglang-error.sse": (
        "sglang",
        failed(Outcome.STREAM_ERROR, "The input is longer than the model's context length."),
    ),
    "sglang-incremental.sse": ("sglang", Told(events=3, tokens=3, reason="stop", first="a", text="abc")),
    "sglang-whole.sse": (
        "sglang",
        Told(events=1, tokens=8, reason="length", first="done", text="done", warnings=(NO_DONE,)),
    ),
    "tgi-cut.sse": (
        "tgi",
        Told(Outcome.BROKEN, events=3, first=" a", text=" a great way", says="without a finish reason"),
    ),
    "tgi-details.sse": (
        "tgi",
        Told(
            events=2,
            tokens=10,
            reason="length",
            first="the mocked ",
            text="the mocked model response",
            warnings=(MERGED,),
        ),
    ),
    "tgi-one-token.sse": ("tgi", Told(events=1, tokens=1, reason="length", first=" ", text=" ")),
    "tgi-overloaded.sse": ("tgi", failed(Outcome.REJECTED, "Model is overloaded")),
    "transformers-broken-json.json": ("chat", failed(Outcome.HTTP_ERROR, "JSON decode error", status=422)),
    "transformers-chat.sse": (
        "chat",
        Told(
            events=3,
            tokens=4,
            prompt=9,
            reason="length",
            first=" sure",
            text=" suredirsFFER",
            warnings=(NO_DONE, MERGED),
        ),
    ),
    "transformers-completions.sse": (
        "completions",
        Told(
            events=3,
            tokens=4,
            prompt=6,
            reason="length",
            first=" back",
            text=" back prCT",
            warnings=(NO_DONE, MERGED),
        ),
    ),
    "transformers-error.sse": (
        "chat",
        failed(Outcome.STREAM_ERROR, "`max_new_tokens` must be greater than 0, but is 0."),
    ),
    "transformers-half-character.sse": (
        "chat",
        Told(
            events=1,
            tokens=2,
            prompt=4,
            reason="length",
            first="\ufffdfinite",
            text="\ufffdfinite",
            warnings=(NO_DONE, MERGED),
        ),
    ),
    "transformers-responses.sse": (
        "responses",
        Told(
            events=11,
            tokens=12,
            prompt=10,
            cached=0,
            reason="stop",
            first="non",
            text="non variables specifyPRO regular stderrspec labelsdocEE async",
            warnings=(MERGED,),
        ),
    ),
    "transformers-responses-failed.sse": (
        "responses",
        failed(Outcome.STREAM_ERROR, "`max_new_tokens` must be greater than 0, but is 0."),
    ),
    "transformers-unknown-model.json": (
        "chat",
        failed(Outcome.HTTP_ERROR, "requested 'no-such-model'", status=400),
    ),
    "triton-ensemble.sse": (
        "triton",
        Told(events=5, first="I", text="I am an AI assistant", warnings=(NO_REASON, NO_USAGE)),
    ),
    "triton-error.sse": ("triton", failed(Outcome.STREAM_ERROR, "error message")),
    "triton-gpt2.sse": ("triton", Told(events=2, first=" a", text=" a very", warnings=(NO_REASON, NO_USAGE))),
    "trtllm-serve-chat.sse": (
        "chat",
        Told(
            events=3,
            tokens=4,
            prompt=7,
            cached=1,
            reason="length",
            first="Paris",
            text="Paris is",
            warnings=(MERGED,),
        ),
    ),
    "trtllm-serve-completions.sse": (
        "completions",
        Told(events=2, tokens=2, prompt=7, cached=1, reason="length", first="The", text="The capital"),
    ),
    "vllm-chat.sse": (
        "chat",
        Told(
            events=3,
            tokens=4,
            prompt=9,
            reason="length",
            first=" sure",
            text=" suredirsFFER",
            warnings=(MERGED,),
        ),
    ),
    "vllm-completions.sse": (
        "completions",
        Told(events=4, tokens=4, prompt=6, reason="length", first=" back", text=" back prCTlake"),
    ),
    "vllm-continuous-usage.sse": (
        "chat",
        Told(
            events=4, tokens=4, prompt=4, reason="length", first=" get", text=" getobj representationInfinity"
        ),
    ),
    "vllm-not-streamed.json": (
        "completions",
        failed(Outcome.MALFORMED, "content-type application/json where an event stream was asked for"),
    ),
    "vllm-responses.sse": (
        "responses",
        Told(
            events=9,
            tokens=12,
            prompt=10,
            cached=0,
            reason="length",
            first="Process",
            text="ProcessONG Yremainder target containsek\x1eso en},ices",
            warnings=(MERGED,),
        ),
    ),
    "vllm-too-long.json": (
        "completions",
        failed(Outcome.HTTP_ERROR, "maximum context length is 2048 tokens", status=400),
    ),
    "vllm-two-answers.sse": (
        "completions",
        Told(events=4, reason="length", first=" input", text=" input doesn", warnings=(NO_USAGE,)),
    ),
}


def replay(file: str, *reads: bytes) -> Answer:
    """Read at 1 us after so many bytes as had come by then."""
    name, told = FILES[file]
    answer = Answer(0, lambda: None, dialect=dialect(name), keeps_text=True)
    answer.head(told.status, {b"content-type": TYPES[Path(file).suffix]}, 0)
    came = 0
    for data in reads:
        came += len(data)
        answer.body(data, came * 1000)
    answer.end(came * 1000)
    return answer


def read_from(answer: Answer) -> tuple[object, ...]:
    stream, usage = answer.stream, answer.stream.usage
    prompt = usage and (usage.prompt_tokens, usage.prompt_tokens_details)
    return (
        *(answer.outcome, stream.events, stream.output_tokens(), prompt),
        *(answer.finish_reason, answer.text, answer.error),
        [name for name in answer.warnings() if name != "buffered_stream_suspected"],
    )


@pytest.mark.parametrize("file", FILES)
def test_what_a_server_said_is_understood(file: str) -> None:
    """Outcome, tokens, usage, finish reason, text and oddities, of an answer that came byte by byte."""
    told, data = FILES[file][1], (HERE / file).read_bytes()
    answer = replay(file, *(data[at : at + 1] for at in range(len(data))))
    stream, usage = answer.stream, answer.stream.usage
    assert answer.outcome is told.outcome
    assert (stream.events, stream.usage_tokens) == (told.events, told.tokens)
    assert (usage and usage.prompt_tokens) == told.prompt
    cached = usage and usage.prompt_tokens_details
    assert (cached and cached.cached_tokens) == told.cached
    assert (answer.finish_reason, answer.text) == (told.reason, told.text)
    assert tuple(answer.warnings()) == told.warnings
    assert told.says in (answer.error or "")


@pytest.mark.parametrize("file", FILES)
def test_the_first_visible_token_counts_from_its_event(file: str) -> None:
    """Roles, reasoning and tool calls before it do not."""
    told, data = FILES[file][1], (HERE / file).read_bytes()
    answer = replay(file, *(data[at : at + 1] for at in range(len(data))))
    if (at := answer.stream.first_visible_us) is None:
        assert told.first is None
    else:
        event = data[:at].decode().strip().splitlines()[-1]
        assert json.dumps(told.first, ensure_ascii=False) in event


@pytest.mark.parametrize("file", FILES)
def test_it_does_not_matter_how_the_bytes_fall(file: str) -> None:
    """The same is read from one piece, and from two, wherever they part."""
    data = (HERE / file).read_bytes()
    whole = read_from(replay(file, data))
    for at in range(1, len(data)):
        assert read_from(replay(file, data[:at], data[at:])) == whole


ODD = [None, True, -1, 1.5, 10**20, "", "x", [], {}, [1], ["a"], {"text": 1}, [{"text": "a"}], [None]]


def bent(value: Any, data: st.DataObject) -> Any:
    """`value` with something odd in one place, at any depth."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    if not keys or data.draw(st.booleans()):
        return data.draw(st.sampled_from(ODD))
    at = data.draw(st.sampled_from(keys))
    other = value.copy()
    other[at] = bent(value[at], data)
    return other


@given(st.sampled_from(sorted(FILES)), st.data())
def test_odd_values_anywhere_raise_nothing(file: str, data: st.DataObject) -> None:
    """What is not as it should be is left out, or no event."""
    lines = (HERE / file).read_bytes().splitlines(keepends=True)
    at = data.draw(st.sampled_from([at for at, line in enumerate(lines) if b"{" in line]))
    start = lines[at].index(b"{")
    event = bent(json.loads(lines[at][start:]), data)
    lines[at] = lines[at][:start] + json.dumps(event).encode() + b"\n"
    answer = replay(file, b"".join(lines))
    assert answer.outcome is not None
    assert isinstance(answer.text, str)
    assert all(isinstance(name, str) for name in answer.warnings())


def test_every_file_is_read_and_cited() -> None:
    """No file without a test, and none without a source."""
    files = {path.name for path in HERE.iterdir() if path.suffix in TYPES}
    cited = re.findall(r"^\| `(.+?)` \|", (HERE / "CITATIONS.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert files == set(FILES)
    assert sorted(cited) == sorted(files)
