"""The bytes of an answer, without sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadgen.engine.answer import Answer
from loadgen.engine.choice import Choice, choices, know_prefix
from loadgen.engine.dialect import Ask
from loadgen.knobs import Engine
from tests.engine.test_dialect import chat, completion

HEADER: dict[str, Any] = {"model": 'a "model"', "answer_id": "x1", "created": 17}


def answered(ask: Ask, engine: Engine | None = None, **more: Any) -> tuple[Answer, list[Choice]]:
    chosen = choices(ask, engine or Engine(), first_id=0)
    return Answer(ask, chosen, **HEADER, **more), chosen


def said(ask: Ask, **more: Any) -> list[Any]:
    """The stream of an answer, decoded: its choices take turns, a token each."""
    answer, chosen = answered(ask, **more)
    parts = [
        event
        for tokens in range(1, ask.max_tokens + 1)
        for choice in chosen
        if tokens <= choice.sequence.output_tokens
        and (tokens % answer.tokens_per_event == 0 or tokens == choice.sequence.output_tokens)
        for event in answer.events(choice, tokens)
    ]
    *events, done, rest = b"".join(parts).split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


def whole(ask: Ask, **more: Any) -> Any:
    return json.loads(answered(ask, **more)[0].whole())


def test_a_chat_stream_is_role_then_tokens_then_usage() -> None:
    """The finish reason is on the last token's event; the usage event has no choices."""
    events = said(chat(max_tokens=2, stream=True, stream_options={"include_usage": True}))
    header = {"id": "chatcmpl-x1", "object": "chat.completion.chunk", "created": 17, "model": 'a "model"'}
    assert [{key: event[key] for key in header} for event in events] == [header] * 4
    assert [[(c["delta"], c["finish_reason"]) for c in event["choices"]] for event in events] == [
        [({"role": "assistant", "content": ""}, None)],
        [({"content": " 000"}, None)],
        [({"content": " 001"}, "length")],
        [],
    ]
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert [event.get("usage") for event in events] == [None, None, None, usage]


def test_a_completion_stream_is_tokens_alone_where_no_usage_was_asked() -> None:
    """No role, and [DONE] right after the last token."""
    events = said(completion(max_tokens=3, stream=True))
    assert [event["choices"][0]["text"] for event in events] == [" 000", " 001", " 002"]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, None, "length"]
    assert {(event["object"], event["id"]) for event in events} == {("text_completion", "cmpl-x1")}


def test_usage_can_go_along_with_every_event() -> None:
    """continuous_usage_stats counts up from 0 at the role event."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = said(chat(max_tokens=2, stream=True, stream_options=options))
    assert [event["usage"]["completion_tokens"] for event in events] == [0, 1, 2, 2]
    alone = said(chat(max_tokens=2, stream=True, stream_options={"continuous_usage_stats": True}))
    assert not any("usage" in event for event in alone), "usage has to be asked for"


def test_a_whole_answer_has_text_and_usage() -> None:
    """The same words as the stream's, in one object."""
    answer = whole(chat(max_tokens=3))
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": " 000 001 002"}
    assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
    answer = whole(completion(max_tokens=2))
    assert (answer["object"], answer["choices"][0]["text"]) == ("text_completion", " 000 001")
    assert answer["choices"][0]["finish_reason"] == "length"


def texts(events: list[Any], index: int = 0) -> list[str]:
    """What each event adds to a completion's choice."""
    of_choice = [c for event in events for c in event["choices"] if c["index"] == index]
    return [choice["text"] for choice in of_choice]


def test_an_event_may_bear_several_tokens() -> None:
    """Three at a time, seven in all; the finish reason is on the last event, with what is left."""
    events = said(completion(max_tokens=7, stream=True), tokens_per_event=3)
    assert texts(events) == [" 000 001 002", " 003 004 005", " 006"]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, None, "length"]


def test_tokens_that_are_told_late_come_event_by_event() -> None:
    """Five tokens at once, two to an event: as if each had been told in time."""
    ask = completion(max_tokens=5, stream=True)
    answer, [choice] = answered(ask, tokens_per_event=2)
    at_once = answer.events(choice, 5)
    answer, [choice] = answered(ask, tokens_per_event=2)
    assert at_once == [event for tokens in (2, 4, 5) for event in answer.events(choice, tokens)]


def test_each_choice_has_its_index_role_and_end_and_the_answer_one_usage() -> None:
    """Three of a chat; the usage adds up their tokens and counts the prompt once."""
    events = said(chat(max_tokens=2, n=3, stream=True, stream_options={"include_usage": True}))
    for index in range(3):
        mine = [c for event in events for c in event["choices"] if c["index"] == index]
        assert [choice["delta"].get("role") for choice in mine] == ["assistant", None, None]
        assert [choice["finish_reason"] for choice in mine] == [None, None, "length"]
    assert events[-1]["usage"] == {"prompt_tokens": 1, "completion_tokens": 6, "total_tokens": 7}
    answer = whole(completion(max_tokens=2, n=2))
    assert [(c["index"], c["text"]) for c in answer["choices"]] == [(0, " 000 001"), (1, " 000 001")]
    assert answer["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("stop", [" 003", ["\n", " 003"]])
def test_a_stop_string_ends_the_text_before_it(stop: object) -> None:
    """Its token was computed and counts, but is not shown."""
    ask = completion(max_tokens=9, stop=stop, stream=True, stream_options={"include_usage": True})
    events = said(ask)
    assert texts(events) == [" 000", " 001", " 002", ""]
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["usage"]["completion_tokens"] == 4
    answer = whole(completion(max_tokens=9, stop=stop))
    assert answer["choices"][0]["text"] == " 000 001 002"
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_stop_string_beyond_the_answer_does_nothing() -> None:
    """One that the last token completes does."""
    assert whole(completion(max_tokens=3, stop=" 003"))["choices"][0]["finish_reason"] == "length"
    assert whole(completion(max_tokens=3, stop=" 002"))["choices"][0]["finish_reason"] == "stop"


ENDS = Engine.model_validate({"eos": {"kind": "uniform", "min": 2, "max": 40}})


def test_an_answer_ends_by_itself_where_that_is_not_ignored() -> None:
    """A law from 2 to 40: some of 50 choices end before 20 tokens and say stop, the others are cut there."""
    chosen = choices(chat(max_tokens=20, n=50, seed=1), ENDS, first_id=0)
    ends = {(c.sequence.output_tokens < 20, c.finish_reason) for c in chosen}
    assert ends == {(True, "stop"), (False, "length")}
    assert min(c.sequence.output_tokens for c in chosen) < 6
    forced = choices(chat(max_tokens=20, n=50, seed=1, ignore_eos=True), ENDS, first_id=0)
    assert {(c.sequence.output_tokens, c.finish_reason) for c in forced} == {(20, "length")}
    least = choices(chat(max_tokens=20, n=50, seed=1, min_tokens=12), ENDS, first_id=0)
    assert min(c.sequence.output_tokens for c in least) == 12


def test_a_seed_repeats_an_answer_and_its_absence_does_not() -> None:
    """Whatever was answered in between."""
    ask, other = chat(max_tokens=40, n=9, seed=5), chat(max_tokens=40, n=9)

    def lengths(ask: Ask, first_id: int) -> list[int]:
        return [c.sequence.output_tokens for c in choices(ask, ENDS, first_id)]

    assert lengths(ask, 0) == lengths(ask, 100)
    assert lengths(other, 0) != lengths(other, 100)
    assert lengths(other, 100) == lengths(other, 100)


def test_a_sequence_knows_what_the_scheduler_needs() -> None:
    """Ids in a row; prompt, most tokens, priority; the prompt's blocks only where a cache compares them."""
    cached = Engine.model_validate({"preset": "vllm-v1", "kv": {"tokens": 4096, "prefix_cache": True}})
    ask = completion(prompt="x" * 256, max_tokens=9, stop=" 003", n=2, priority=4)
    chosen, plain = choices(ask, cached, first_id=7), choices(ask, Engine(), first_id=7)
    know_prefix(chosen, ask, cached)
    know_prefix(plain, ask, Engine())
    sequence = chosen[1].sequence
    assert (sequence.id, sequence.prompt_tokens, sequence.output_tokens) == (8, 64, 4)
    assert (sequence.max_tokens, sequence.priority) == (9, 4)
    assert len(sequence.prefix) == 4
    assert plain[0].sequence.prefix == ()


def test_cached_tokens_are_told_where_there_is_a_cache() -> None:
    """As OpenAI does, in the details of the prompt's tokens."""
    answer, [choice] = answered(completion(max_tokens=1), tells_cached=True)
    choice.sequence.cached_tokens = 16
    assert json.loads(answer.whole())["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}
