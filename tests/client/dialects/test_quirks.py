"""What servers do that a reader must know, a test for each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadgen.backends import DialectName
from loadgen.client.answer import Answer
from loadgen.client.dialects import dialect
from loadgen.records import Outcome
from tests.client.streams import DONE, delta
from tests.fakes import event

START: dict[str, Any] = {"type": "response.created", "response": {"id": "r", "status": "in_progress"}}


def heard(name: DialectName, *said: Any, lost: bool = False) -> Answer:
    """A 200 that says all this, bytes as they are and anything else as events of JSON; an event each ms."""
    speaks = dialect(name)
    answer = Answer(0, lambda: None, dialect=speaks, keeps_text=True)
    answer.head(200, {}, 0)
    for ms, one in enumerate(said, 1):
        if not isinstance(one, bytes):
            one = json.dumps(one).encode() + b"\n" if speaks.is_lines else event(one)
        answer.body(one, ms * 1_000_000)
    at_ns = (len(said) + 1) * 1_000_000
    if lost:
        answer.lost("gone", at_ns)
    else:
        answer.end(at_ns)
    return answer


def visible_us(answer: Answer) -> tuple[int | None, int | None]:
    """When the first token came, and the first visible one."""
    return answer.stream.first_token_us, answer.stream.first_visible_us


def counted(answer: Answer) -> tuple[int, int | None, tuple[int, str]]:
    """Token events, what the server counts, and what holds."""
    return answer.stream.events, answer.stream.usage_tokens, answer.stream.output_tokens()


# --- OpenAI's chat completions and completions --------------------------------------------------------------


def test_chat_a_role_with_content_null_is_no_token() -> None:
    """llama.cpp's first event."""
    answer = heard("chat", delta(role="assistant", content=None), delta(content="a"), delta("stop"), DONE)
    assert (answer.stream.events, visible_us(answer)) == (1, (2000, 2000))


def test_chat_usage_may_stand_on_the_chunk_that_finishes() -> None:
    """transformers serve and SGLang send no chunk of its own for it."""
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}
    assert counted(heard("chat", delta(content="a"), last)) == (1, 1, (1, "usage"))


def test_chat_a_finish_reason_ends_it_without_done() -> None:
    """The end of the body then is no break."""
    answer = heard("chat", delta("stop", content="a"))
    assert (answer.outcome, answer.warnings()) == (Outcome.OK, ["missing_done", "no_usage"])


def test_chat_an_empty_finish_reason_is_none() -> None:
    """Some servers write "" until there is one."""
    answer = heard("chat", delta("", content="a"), lost=True)
    assert (answer.outcome, answer.finish_reason) == (Outcome.BROKEN, None)


def test_chat_an_error_inside_a_200_is_no_answer() -> None:
    """Refused where it says so before anything else, failed where tokens came."""
    busy = {"error": {"message": "busy", "code": 503}}
    assert heard("chat", busy).outcome is Outcome.REJECTED
    assert heard("chat", delta(content="a"), busy).outcome is Outcome.STREAM_ERROR


def test_chat_tokens_merged_in_a_chunk_are_counted_by_usage() -> None:
    """Two events may be three tokens."""
    chunk = {"choices": [], "usage": {"completion_tokens": 3}}
    answer = heard("chat", delta(content="a"), delta("stop", content="bc"), chunk, DONE)
    assert counted(answer) == (2, 3, (3, "usage"))
    assert answer.warnings() == ["multi_token_chunks"]


def test_chat_usage_on_every_chunk_tells_the_tokens_of_each() -> None:
    """`continuous_usage_stats`; the role's chunk comes with a zero."""
    said = [(["", 0], None), (["a", 1], None), (["bc", 3], None), (["", 3], "stop")]
    chunks = [
        {
            "choices": [{"delta": {"content": text}, "finish_reason": finish}],
            "usage": {"completion_tokens": n},
        }
        for (text, n), finish in said
    ]
    answer = heard("chat", *chunks, DONE)
    assert (answer.stream.event_tokens(), answer.warnings()) == ([1, 2], [])


def test_chat_a_gateway_may_pass_a_native_event_on() -> None:
    """text-generation-inference's and llama.cpp's own are read in a chat, too."""
    tgi = {"token": {"text": "a", "special": False}, "generated_text": None, "details": None}
    last = {"content": "b", "stop": True, "stop_type": "limit", "tokens_predicted": 2}
    assert heard("chat", tgi, last, DONE).text == "ab"


# --- /v1/responses ------------------------------------------------------------------------------------------


def test_responses_only_text_deltas_are_visible() -> None:
    """Reasoning and the arguments of a tool are tokens beside it; what is said again at the end is none."""
    answer = heard(
        "responses",
        START,
        {"type": "response.reasoning_text.delta", "delta": "hm"},
        {"type": "response.function_call_arguments.delta", "delta": "{"},
        {"type": "response.output_text.delta", "delta": "a"},
        {"type": "response.output_text.done", "text": "a"},
        {"type": "response.completed", "response": {"usage": {"input_tokens": 5, "output_tokens": 3}}},
    )
    assert (answer.outcome, answer.text, visible_us(answer)) == (Outcome.OK, "a", (2000, 4000))
    assert (counted(answer), answer.warnings()) == ((3, 3, (3, "usage")), [])


def test_responses_a_refusal_is_what_a_user_reads() -> None:
    """It stands where the text would."""
    answer = heard("responses", START, {"type": "response.refusal.delta", "delta": "no"})
    assert (answer.text, visible_us(answer)) == ("no", (2000, 2000))


@pytest.mark.parametrize("kind", ["response.incomplete", "response.completed"])
def test_responses_incomplete_says_why_and_vllm_calls_it_completed(kind: str) -> None:
    """`max_output_tokens` is what others call a finish by length."""
    last = {"type": kind, "response": {"incomplete_details": {"reason": "max_output_tokens"}}}
    answer = heard("responses", START, {"type": "response.output_text.delta", "delta": "a"}, last)
    assert (answer.outcome, answer.finish_reason) == (Outcome.OK, "length")


def failures(message: str, code: Any) -> list[dict[str, Any]]:
    """The events in which an error may stand."""
    words = {"message": message, "code": code}
    failed = {"type": "response.failed", "response": {"error": words}}
    return [failed, {"type": "error"} | words, {"type": "error", "error": words}]


def test_responses_a_failed_one_ends_with_an_event() -> None:
    """Of type `error` with its words beside or in it, or `response.failed`."""
    for error in failures("no memory", "server_error"):
        answer = heard("responses", START, error)
        assert (answer.outcome, answer.error) == (Outcome.STREAM_ERROR, "no memory")


@pytest.mark.parametrize("code", [429, 503, "429", "rate_limit_exceeded"])
def test_responses_a_refusal_of_the_request_follows_events_that_bear_nothing(code: Any) -> None:
    """`response.created` is said to whoever asks; after a token the same words are a failure."""
    before = [START, {"type": "response.in_progress", "response": {"id": "r"}}]
    for error in failures("too many", code):
        answer = heard("responses", *before, error)
        assert (answer.outcome, answer.error) == (Outcome.REJECTED, "too many")
        late = heard("responses", START, {"type": "response.output_text.delta", "delta": "a"}, error)
        assert (late.outcome, late.error) == (Outcome.STREAM_ERROR, "too many")


def test_responses_cut_before_its_last_event_is_broken() -> None:
    """There is no [DONE] and no finish reason but the last event's."""
    answer = heard("responses", START, {"type": "response.output_text.delta", "delta": "a"})
    assert answer.outcome is Outcome.BROKEN


# --- vLLM ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "outcome"), [(429, Outcome.REJECTED), (503, Outcome.REJECTED), (400, Outcome.STREAM_ERROR)]
)
def test_vllm_refuses_in_the_first_event_of_a_200(code: int, outcome: Outcome) -> None:
    """Its words are kept; what it finds wrong with a request is no refusal of load."""
    words = {"error": {"message": "no room", "type": "ServerError", "param": None, "code": code}}
    for name in ("chat", "completions", "responses"):
        answer = heard(name, words, DONE)
        assert (answer.outcome, answer.error) == (outcome, "no room")


# --- text-generation-inference ------------------------------------------------------------------------------


def token(text: str, *, special: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "token": {"id": 1, "text": text, "special": special},
        "generated_text": None,
        "details": None,
    } | more


def test_tgi_a_special_token_counts_but_is_no_text() -> None:
    """The mark of the end is one of the tokens generated."""
    details = {"finish_reason": "eos_token", "generated_tokens": 2, "input_length": 4}
    answer = heard("tgi", token("a"), token("</s>", special=True, generated_text="a", details=details))
    assert (answer.text, answer.finish_reason, counted(answer)) == ("a", "eos_token", (2, 2, (2, "usage")))
    assert answer.stream.usage is not None
    assert (answer.stream.usage.prompt_tokens, answer.warnings()) == (4, [])


def test_tgi_the_whole_text_at_the_end_is_an_end_without_details_too() -> None:
    """And is not read as text again."""
    answer = heard("tgi", token("a"), token("b", generated_text="ab"))
    assert (answer.outcome, answer.text) == (Outcome.OK, "ab")
    assert answer.warnings() == ["missing_finish_reason", "no_usage"]


def test_tgi_overloaded_inside_a_200_is_a_refusal() -> None:
    """Other errors are failures."""
    assert heard("tgi", {"error": "full", "error_type": "overloaded"}).outcome is Outcome.REJECTED
    answer = heard("tgi", {"error": "no memory", "error_type": "generation"})
    assert (answer.outcome, answer.error) == (Outcome.STREAM_ERROR, "no memory")


# --- SGLang -------------------------------------------------------------------------------------------------


def piece(text: str, n: int, finish: Any = None, **meta: Any) -> dict[str, Any]:
    return {"text": text, "meta_info": {"completion_tokens": n, "finish_reason": finish} | meta}


LENGTH = {"type": "length", "length": 2}


def test_sglang_cumulative_text_is_no_text_twice() -> None:
    """Each event says everything so far; one that adds nothing is no token."""
    answer = heard("sglang", piece("a", 1), piece("a", 1), piece("a b", 2, LENGTH), DONE)
    assert (answer.text, answer.finish_reason, counted(answer)) == ("a b", "length", (2, 2, (2, "usage")))


def test_sglang_incremental_text_is_joined() -> None:
    """As a server sends it that is started with `--incremental-streaming-output`."""
    answer = heard("sglang", piece("a", 1), piece(" b", 2), piece(" b", 3, LENGTH), DONE)
    assert (answer.text, counted(answer)) == ("a b b", (3, 3, (3, "usage")))


def ids(n: int) -> dict[str, Any]:
    return {"output_ids": list(range(n))}


@pytest.mark.parametrize("own", [ids(1), {}])
def test_sglang_a_piece_may_begin_with_the_piece_before(own: dict[str, Any]) -> None:
    """Three tokens came, and what was said is a piece each, to the end; old servers send no ids."""
    said = [piece("0", 1) | own, piece("0", 2) | own, piece("0 a", 3) | own, piece("b", 4) | own]
    answer = heard("sglang", *said, piece("b c", 5, LENGTH) | own, DONE)
    assert (answer.text, counted(answer)) == ("000 abb c", (5, 5, (5, "usage")))


def test_sglang_once_a_piece_always_a_piece() -> None:
    """One that does not begin with the one before tells of all that follow."""
    answer = heard("sglang", piece("a", 1), piece("b", 2), piece("b", 3), piece("bc", 4, LENGTH), DONE)
    assert (answer.text, counted(answer)) == ("abbbc", (4, 4, (4, "usage")))


@pytest.mark.parametrize(
    ("texts", "sends_ids"),
    [
        (("a", "a", "aé"), True),
        (("", "a", "a b", "a b", "a b é"), True),
        (("", "", "a", "a b", "a b", "a b é"), False),
    ],
)
def test_sglang_half_a_character_held_back_is_no_piece(texts: tuple[str, ...], *, sends_ids: bool) -> None:
    """The same whole text comes with one more token: with all ids, or from an old server that sends none."""
    said = [piece(text, n) | (ids(n) if sends_ids else {}) for n, text in enumerate(texts, 1)]
    answer = heard("sglang", *said, DONE)
    assert (answer.text, answer.stream.events) == (texts[-1], len(set(texts) - {""}))


def test_sglang_cached_tokens_are_told() -> None:
    """In `meta_info`, with the prompt's."""
    usage = heard("sglang", piece("a", 1, LENGTH, prompt_tokens=9, cached_tokens=8), DONE).stream.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens) == (9, 8)


def test_sglang_an_abort_with_503_inside_a_200_is_a_refusal() -> None:
    """Its finish reason bears the status that there is no more."""
    full = {"type": "abort", "message": "full", "status_code": 503}
    assert heard("sglang", piece("", 0, full), DONE).outcome is Outcome.REJECTED
    answer = heard("sglang", piece("a", 1), piece("a", 1, full), DONE)
    assert (answer.outcome, answer.error) == (Outcome.STREAM_ERROR, "full")


def test_sglang_two_streams_do_not_share_what_was_said() -> None:
    """A reader for each."""
    assert [heard("sglang", piece("a", 1, LENGTH), DONE).text for _ in range(2)] == ["a", "a"]


# --- Triton -------------------------------------------------------------------------------------------------


def test_triton_a_bare_end_is_an_end() -> None:
    """Nothing says so but the body's own end."""
    answer = heard("triton", {"text_output": "a"}, {"text_output": " b"}, {"text_output": ""})
    assert (answer.outcome, answer.text, counted(answer)) == (Outcome.OK, "a b", (2, None, (2, "events")))
    assert answer.warnings() == ["missing_finish_reason", "no_usage"]


def test_triton_a_torn_end_is_none() -> None:
    """The connection was lost, or the last event is half an event."""
    assert heard("triton", {"text_output": "a"}, lost=True).outcome is Outcome.BROKEN
    answer = heard("triton", {"text_output": "a"}, b'data: {"text_out')
    assert (answer.outcome, answer.stream.done) == (Outcome.BROKEN, False)


def test_triton_nothing_at_all_is_no_answer() -> None:
    """An end after no event."""
    assert heard("triton").outcome is Outcome.EMPTY


def test_triton_an_error_of_bare_words_inside_a_200_is_no_answer() -> None:
    """Even after tokens, and with a bare end."""
    answer = heard("triton", {"text_output": "a"}, {"error": "out of blocks"})
    assert (answer.outcome, answer.error) == (Outcome.STREAM_ERROR, "out of blocks")


def test_a_bare_end_is_none_elsewhere() -> None:
    """It is a chat that was cut."""
    assert heard("chat", delta(content="a")).outcome is Outcome.BROKEN


# --- Ollama -------------------------------------------------------------------------------------------------


def told(*, done: bool = False, more: Any = None, **message: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant"} | message, "done": done} | (more or {})


def test_ollama_an_event_is_a_line_of_json() -> None:
    """The last counts, and says why it is the last."""
    last = told(
        done=True, content="", more={"done_reason": "length", "eval_count": 2, "prompt_eval_count": 5}
    )
    answer = heard("ollama", told(content="a"), told(content="b"), last)
    assert (answer.outcome, answer.text, answer.finish_reason) == (Outcome.OK, "ab", "length")
    assert (counted(answer), answer.warnings()) == ((2, 2, (2, "usage")), [])


def test_ollama_thinking_is_not_visible() -> None:
    """Neither is a tool call."""
    call = {"function": {"name": "f", "arguments": {"x": 1}}}
    said = [told(content="", thinking="hm"), told(content="", tool_calls=[call]), told(content="a")]
    answer = heard("ollama", *said, told(done=True))
    assert (answer.stream.events, visible_us(answer)) == (3, (1000, 3000))


def test_ollama_cut_before_done_is_broken() -> None:
    """A line that was begun is none."""
    assert heard("ollama", told(content="a")).outcome is Outcome.BROKEN
    assert heard("ollama", told(content="a"), b'{"done": tr').outcome is Outcome.BROKEN


def test_ollama_an_error_inside_a_200_is_no_answer() -> None:
    """A line like the others."""
    answer = heard("ollama", told(content="a"), {"error": "out of memory"})
    assert (answer.outcome, answer.error) == (Outcome.STREAM_ERROR, "out of memory")


# --- llama.cpp ----------------------------------------------------------------------------------------------


def test_llama_cpp_stop_ends_it_and_says_why() -> None:
    """In today's words and in those of old."""
    for why, reason in (
        ({"stop_type": "limit"}, "length"),
        ({"stop_type": "eos"}, "stop"),
        ({"stopped_limit": True}, "length"),
        ({"stopped_limit": False, "stopped_eos": True}, "stop"),
    ):
        last = {"content": "", "stop": True, "tokens_predicted": 1, "tokens_evaluated": 3} | why
        answer = heard("llama.cpp", {"content": "a", "stop": False}, last)
        assert (answer.outcome, answer.finish_reason, answer.warnings()) == (Outcome.OK, reason, [])


def test_llama_cpp_counts_with_every_event() -> None:
    """So that half a character, which waits for the rest, is told from one token."""
    said = [{"content": text, "stop": False, "tokens_predicted": n} for text, n in (("a", 1), ("é", 3))]
    answer = heard("llama.cpp", *said, {"content": "", "stop": True, "tokens_predicted": 3})
    assert (answer.stream.event_tokens(), answer.warnings()) == ([1, 2], [])


def test_llama_cpp_tokens_cached_is_not_what_was_reused() -> None:
    """It is the size of the cache after the answer; `timings.cache_n` says what was spared."""
    last = {
        "content": "a",
        "stop": True,
        "tokens_evaluated": 7,
        "tokens_cached": 18,
        "timings": {"cache_n": 6},
    }
    usage = heard("llama.cpp", last).stream.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 6


def test_events_of_no_known_shape_are_odd_in_every_dialect() -> None:
    """They end nothing and count for nothing."""
    for name in ("chat", "tgi", "sglang", "triton", "llama.cpp"):
        answer = heard(name, {"what": "ever"})
        assert (answer.outcome, answer.stream.events) == (Outcome.MALFORMED, 0), name
