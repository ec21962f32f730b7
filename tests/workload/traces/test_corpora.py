"""Prompts that are written out: ShareGPT, vLLM's custom sets, OpenAI's batches, the user's own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workload.traces.files import refusal, trace

ESTIMATED = "prompt tokens are estimated: a token per 4 bytes of UTF-8"


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    """Other separators of lines are text; CRLF and a last line without an end are fine."""
    text = '{"prompt": "one\x85two"}\r\n{"prompt": "three\u2029four\u2028"}'
    assert trace(tmp_path, "vllm_custom", text).texts == ("one\x85two", "three\u2029four\u2028")


def test_vllms_custom_set_keeps_ids_and_lengths_where_they_are_given(tmp_path: Path) -> None:
    """Broken rows are named by line; lengths may be in quotes; a blank line is none."""
    text = (
        '\ufeff{"prompt": "north", "output_tokens": 21}\n\n'
        '{"prompt": "south \u2028 pole", "request_id": "s-1"}\n'
        '{"question": "where?"}\n{"prompt": "west", "output_tokens": "9"}\n{"prompt": "ea'
    )
    assert refusal(tmp_path, "vllm_custom", text).startswith("it:4: has no prompt")
    found = trace(tmp_path, "vllm_custom", text, bad_rows="drop")
    assert found.due_ns is None
    assert found.texts == ("north", "south \u2028 pole", "west")
    assert found.output_tokens.tolist() == [21, 0, 9]
    assert found.ids == (None, "s-1", None)
    assert found.prompt_tokens.tolist() == [2, 4, 1]  # of 5, 16 and 4 bytes
    assert found.facts.dropped == {"unreadable": 2}
    assert found.facts.warnings[:2] == (ESTIMATED, "line 4 dropped: has no prompt")
    assert found.facts.warnings[2].startswith("line 6 dropped: not JSON")


def test_ids_that_cannot_be_sent_are_left_out_and_counted(tmp_path: Path) -> None:
    """A header carries printable ASCII; digits alone would be another row's number."""
    ids = ["a b", "17", 17, "r\u00e9", "", "fine"]
    text = "".join(json.dumps({"prompt": "x", "request_id": one}) + "\n" for one in ids)
    found = trace(tmp_path, "vllm_custom", text)
    assert found.ids == (None, None, None, None, None, "fine")
    assert found.facts.warnings[1].startswith("4 ids left out")


def talk(*values: str, first: str = "human") -> dict[str, Any]:
    people = ("human", "gpt") if first == "human" else ("gpt", "human")
    return {"conversations": [{"from": people[i % 2], "value": value} for i, value in enumerate(values)]}


def test_sharegpt_takes_the_first_two_messages_of_each_conversation(tmp_path: Path) -> None:
    """Both lengths are estimated; an empty message or none leaves the conversation out, counted."""
    talks = [
        talk("hello you", "hi"),
        talk(),
        talk("alone"),
        talk("", "what?"),
        talk("why", ""),
        talk("a", "b", "c"),
    ]
    found = trace(tmp_path, "sharegpt", json.dumps(talks))
    assert found.texts == ("hello you", "a")
    assert found.prompt_tokens.tolist() == [3, 1]
    assert found.output_tokens.tolist() == [1, 1]
    assert found.facts.dropped == {"missing_input": 1, "missing_output": 1, "zero_input": 1, "zero_output": 1}
    assert found.session is None


def test_sharegpts_sessions_are_its_pairs_of_question_and_answer(tmp_path: Path) -> None:
    """Turns are numbered from 1 in each conversation; what no human asked begins none."""
    talks = [talk("a", "b", "c", "dddd dddd", "e"), talk("greeting", "q", "r", first="gpt"), talk("x", "y")]
    found = trace(tmp_path, "sharegpt", json.dumps(talks), sessions=True)
    assert found.texts == ("a", "c", "q", "x")
    assert found.output_tokens.tolist() == [1, 3, 1, 1]
    assert found.session is not None
    assert found.turn is not None
    assert found.session.tolist() == [0, 0, 1, 2]
    assert found.turn.tolist() == [1, 2, 1, 1]
    assert not found.with_history


def test_an_openai_batch_keeps_what_else_a_body_asks(tmp_path: Path) -> None:
    """Messages or a prompt, either name of the limit; the rest goes with the row, but for streaming."""
    messages = [
        {"role": "user", "content": "abcdefgh"},
        {"role": "user", "content": [{"type": "text", "text": "ijk"}]},
    ]
    rows = [
        {
            "custom_id": "one",
            "body": {"messages": messages, "max_tokens": 7, "temperature": 0, "stream": False},
        },
        {"custom_id": "two", "body": {"prompt": "plain", "max_completion_tokens": 8}},
        {"custom_id": "three", "body": {"prompt": "free"}},
    ]
    found = trace(tmp_path, "openai_batch", "\n".join(map(json.dumps, rows)))
    assert found.texts == (messages, "plain", "free")
    assert found.prompt_tokens.tolist() == [3, 2, 1]
    assert found.output_tokens.tolist() == [7, 8, 0]
    assert found.ids == ("one", "two", "three")
    assert found.bodies == ({"temperature": 0}, None, None)


def test_a_csv_of_the_users_own_has_the_columns_it_is_said_to_have(tmp_path: Path) -> None:
    """Instants in seconds, exact; prompts may hold commas, quotes and line breaks."""
    text = 'when,q,out\n0.1,"a ""b"",\n\nc",3\n0.300000001,d,\n'
    found = trace(tmp_path, "csv", text, columns={"due": "when", "prompt": "q", "output_tokens": "OUT"})
    assert found.due_ns is not None
    assert found.due_ns.tolist() == [0, 200_000_001]
    assert found.texts == ('a "b",\n\nc', "d")
    assert found.output_tokens.tolist() == [3, 0]


def test_a_csv_may_give_lengths_alone(tmp_path: Path) -> None:
    """Then there are no instants and no texts, and nothing is estimated."""
    found = trace(tmp_path, "csv", "prompt_tokens,output_tokens\n12,3\n9.0, 4\n")
    assert found.due_ns is None
    assert found.texts is None
    assert found.prompt_tokens.tolist() == [12, 9]
    assert found.facts.warnings == ()


def test_a_jsonl_of_the_users_own_may_hold_messages(tmp_path: Path) -> None:
    """A prompt is text or the messages of a chat; its tokens may be counted by the user."""
    messages = [{"role": "user", "content": "hello"}]
    rows = [{"due": 4, "m": messages, "prompt_tokens": 11}, {"due": 4.25, "m": "bye"}]
    found = trace(tmp_path, "jsonl", "\n".join(map(json.dumps, rows)), columns={"prompt": "m"})
    assert found.due_ns is not None
    assert found.due_ns.tolist() == [0, 250_000_000]
    assert found.texts == (messages, "bye")
    assert found.prompt_tokens.tolist() == [11, 1]


def test_plain_text_is_a_prompt_a_line(tmp_path: Path) -> None:
    """Spaces at a line's begin are part of it, blank lines are not prompts."""
    assert trace(tmp_path, "text", "  first\r\n\n \nsecond").texts == ("  first", "second")


@pytest.mark.parametrize(
    ("form", "text", "asked", "said"),
    [
        ("csv", "a,b\n1,2\n", {}, "it:1: has no column 'prompt_tokens': its first line has a, b"),
        ("csv", "prompt\nx\n", {"columns": {"due": "at"}}, "it:1: has no column 'at'"),
        ("csv", b"prompt\n\xff\n", {}, "it:2: prompt is not UTF-8 text"),
        ("jsonl", '{"prompt": "x"}', {"columns": {"id": "name"}}, "it:1: has no name, which was to be id"),
        ("jsonl", '{"prompt": "x"}\n{"prompt": "y", "due": 1}', {}, "it:2: has a due, which others have not"),
        ("jsonl", '{"prompt": 7}', {}, "it:1: prompt is 7: it must be text"),
        ("text", b"\xe9\n", {}, "it:1: not UTF-8 text"),
        ("openai_batch", '{"body": {"max_tokens": 1}}', {}, "it:1: has neither messages nor a prompt"),
        ("sharegpt", "{}", {}, "it: not a JSON array of conversations"),
        ("sharegpt", '[{"conversations": [1]}]', {}, "it:1: has no list of conversations"),
        ("text", "x", {"start": "1s"}, "it: its rows have no instants: leave start and duration out"),
        (
            "text",
            "x",
            {"sessions": True},
            "it: the format text has no sessions: leave load.trace.sessions out",
        ),
        ("text", "x", {"columns": {"id": "a"}}, "it: the format text has no columns"),
        ("text", "x", {"block_tokens": 16}, "it: the format text has no block_tokens"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, form: str, text: str, asked: dict[str, Any], said: str
) -> None:
    """One line: where, and which rule."""
    assert refusal(tmp_path, form, text, **asked).startswith(said)
