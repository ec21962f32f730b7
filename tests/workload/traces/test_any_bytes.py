"""What holds of every file."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadgen.scenario import ScenarioError
from loadgen.trace_source import TraceFormat, TraceSource
from loadgen.workload.traces import Trace, read
from tests.workload.traces.files import AZURE, BURSTGPT

FORMATS = sorted(set(get_args(TraceFormat)) - {"servegen"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        *("timestamp", "input_length", "output_length", "hash_ids", "chat_id", "parent_chat_id"),
        *("prompt", "output_tokens", "request_id", "body", "custom_id", "conversations"),
        *("due", "prompt_tokens", "id"),
    ]
)
CELLS = st.sampled_from(
    [
        "",
        "0",
        "7",
        "7.0",
        "-1",
        "1e9",
        "nan",
        '"',
        '"a\nb"',
        "\r",
        "2031-01-02 03:04:05.1",
        "x",
        "\u0663",
        "9" * 5000,
    ]
)


def tables(header: str) -> st.SearchStrategy[bytes]:
    row = st.lists(CELLS, max_size=7).map(",".join)
    return st.lists(row, max_size=6).map(lambda rows: (header + "\n".join(rows)).encode())


JSONL = st.lists(st.dictionaries(KEYS, VALUES, max_size=6), max_size=5).map(
    lambda rows: "\n".join(map(json.dumps, rows)).encode()
)
ARRAYS = st.lists(st.dictionaries(KEYS, VALUES, max_size=3), max_size=4).map(
    lambda it: json.dumps(it).encode()
)
FILES = st.one_of(
    st.binary(max_size=200),
    tables(AZURE),
    tables(BURSTGPT),
    tables("due,prompt,prompt_tokens,id\n"),
    JSONL,
    ARRAYS,
)


def read_bytes(form: str, raw: bytes, *, drop: bool = False, sessions: bool = False) -> Trace:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(raw)
        asked = {
            "file": file.name,
            "format": form,
            "sessions": sessions,
            "bad_rows": "drop" if drop else "error",
        }
        return read(TraceSource.model_validate(asked))


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(FORMATS), FILES, st.booleans(), st.booleans())
@example("mooncake", b'{"timestamp": ' + b"9" * 6000 + b"}", False, False)
@example("mooncake", b"[" * 100_000, False, False)
@example("vllm_custom", b'{"prompt": "\\ud800"}', False, False)
def test_any_file_gives_rows_or_one_plain_error(form: str, raw: bytes, drop: bool, sessions: bool) -> None:
    """Never another exception; columns are as long as one another, and every row was counted."""
    try:
        found = read_bytes(form, raw, drop=drop, sessions=sessions)
    except ScenarioError as problem:
        said = str(problem)
    else:
        said = found.facts.describe()
        _check(found)
    assert said.isprintable()


def _check(found: Trace) -> None:
    facts, n = found.facts, len(found)
    assert n == facts.kept > 0
    assert facts.read == n + facts.outside + sum(facts.dropped.values())
    for column in (found.due_ns, found.texts, found.ids, found.bodies, found.session, found.turn):
        assert column is None or len(column) == n
    assert min(found.prompt_tokens) > 0


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["azure", "burstgpt", "mooncake", "bailian"]),
    st.lists(
        st.tuples(st.integers(0, 10**9), st.integers(1, 60), st.integers(1, 9)),
        min_size=1,
        unique_by=lambda r: r[0],
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_of_rows_in_a_file_does_not_matter(
    form: str, rows: list[tuple[int, int, int]], order: random.Random
) -> None:
    """Where no two are due together, a shuffled file is the same trace."""
    header, lines = _spelled(form, rows)
    shuffled = order.sample(lines, len(lines))
    sessions = form == "bailian"
    one, other = (
        read_bytes(form, (header + "".join(some)).encode(), sessions=sessions) for some in (lines, shuffled)
    )
    assert one.due_ns is not None
    assert other.due_ns is not None
    assert one.due_ns.tolist() == other.due_ns.tolist()
    assert one.prompt_tokens.tolist() == other.prompt_tokens.tolist()
    assert one.output_tokens.tolist() == other.output_tokens.tolist()
    if one.blocks is not None and other.blocks is not None:
        assert [one.blocks.of(i) for i in range(len(one))] == [other.blocks.of(i) for i in range(len(one))]
    if one.session is not None and other.session is not None:
        assert one.session.tolist() == other.session.tolist()


def _spelled(form: str, rows: list[tuple[int, int, int]]) -> tuple[str, list[str]]:
    """A header and lines; the first number is microseconds, or milliseconds."""
    if form == "azure":
        return AZURE, [
            f"2031-01-01 00:{us // 60_000_000:02d}:{us % 60_000_000 / 1e6:09.6f},{a},{b}\n"
            for us, a, b in rows
        ]
    if form == "burstgpt":
        return BURSTGPT, [f"{us / 1e6:.6f},GPT-4,{a},{b},,x\n" for us, a, b in rows]
    plain = [
        {
            "timestamp": ms,
            "input_length": a,
            "output_length": b,
            "hash_ids": list(range(-(-a // 16))),
            "chat_id": i,
            "parent_chat_id": i - b,
        }
        for i, (ms, a, b) in enumerate(rows)
    ]
    return "", [json.dumps(row) + "\n" for row in plain]


@pytest.mark.parametrize("form", FORMATS)
def test_an_empty_file_is_refused(form: str) -> None:
    """In every format."""
    with pytest.raises(ScenarioError):
        read_bytes(form, b"")
