"""Traces of requests that happened: Azure, BurstGPT, Mooncake, vLLM's timed traces, Bailian."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadgen.scenario import ScenarioError
from loadgen.trace_source import TraceSource
from loadgen.workload.traces import read
from tests.workload.traces.files import AZURE, BURSTGPT, azure_rows, refusal, trace


def lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def mooncake(ms: float, tokens: float, output: int, *ids: int) -> dict[str, object]:
    return {"timestamp": ms, "input_length": tokens, "output_length": output, "hash_ids": list(ids)}


def test_an_odd_azure_file_is_read_and_what_is_dropped_is_counted(tmp_path: Path) -> None:
    """A byte order mark, CRLF, a blank line, rows out of order and rows without tokens do no harm."""
    text = azure_rows(("08:00:07.2500000", 64, 0), ("08:00:05.0000000", 31, 4)).replace("\n", "\r\n")
    text += "\r\n2031-05-04 08:00:05.0000000,32,5\r\n2031-05-04 08:00:09.0000000,0,6\r\n"
    found = trace(tmp_path, "azure", b"\xef\xbb\xbf" + text.encode())
    assert found.due_ns is not None
    assert found.due_ns.tolist() == [0, 0]
    assert found.prompt_tokens.tolist() == [31, 32]
    assert found.output_tokens.tolist() == [4, 5]
    assert found.facts.dropped == {"zero_input": 1, "zero_output": 1}
    assert (found.facts.read, found.facts.kept) == (4, 2)
    assert found.facts.warnings == ("unsorted",)


def test_azure_stamps_are_read_to_the_nanosecond_with_or_without_fraction_and_zone(tmp_path: Path) -> None:
    """Seven digits, nine, none; UTC said as +00:00, as Z, or by an hour ahead."""
    stamps = [
        "2031-02-28 23:59:59+00:00",
        "2031-02-28 23:59:59.0000001",
        "2031-03-01T01:00:00.25+01:00",
        "2031-03-01 00:00:00.123456789Z",
        "2031-02-28 19:00:01-0500",
    ]
    found = trace(tmp_path, "azure", AZURE + "".join(f"{stamp},{n},1\n" for n, stamp in enumerate(stamps, 1)))
    assert found.due_ns is not None
    assert found.due_ns.tolist() == [0, 100, 1_123_456_789, 1_250_000_000, 2_000_000_000]
    assert found.prompt_tokens.tolist() == [1, 2, 4, 3, 5]


@pytest.mark.parametrize(
    "header",
    [
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
    ],
)
def test_burstgpt_is_read_by_name_and_its_failures_are_dropped(tmp_path: Path, header: str) -> None:
    """Both sets of columns give the same rows, from 0 on; a failure is a row without response tokens."""
    between = ",7,0.5" if "Session" in header else ""
    rows = [("81.5", "90", "12"), ("82", "90", "0"), ("82.0", "", "11"), ("84", "30", "2")]
    body = "".join(f"{at}{between},GPT-4,{a},{b},,API log\n" for at, a, b in rows)
    found = trace(tmp_path, "burstgpt", f"{header}\n{body}")
    assert found.due_ns is not None
    assert found.due_ns.tolist() == [0, 2_500_000_000]
    assert found.prompt_tokens.tolist() == [90, 30]
    assert found.facts.dropped == {"missing_input": 1, "zero_output": 1}


def test_mooncake_counts_milliseconds_and_blocks_of_512_tokens(tmp_path: Path) -> None:
    """Equal ids stand for equal text; the last block of a row holds what is left of its prompt."""
    rows = (mooncake(1000, 1300, 9, 4, 5, 6), mooncake(1000, 512, 3, 4), mooncake(19_500, 1536, 8, 4, 5, 7))
    found = trace(tmp_path, "mooncake", lines(*rows))
    assert found.due_ns is not None
    assert found.due_ns.tolist() == [0, 0, 18_500_000_000]
    assert found.blocks is not None
    assert found.blocks.tokens == 512
    assert [found.blocks.of(row) for row in range(3)] == [[4, 5, 6], [4], [4, 5, 7]]
    assert found.session is None
    assert not found.facts.warnings


def test_a_timed_trace_counts_seconds_and_blocks_of_16_tokens_unless_told_otherwise(tmp_path: Path) -> None:
    """These are vLLM's defaults. Hashes of 64 bits stay apart from one another."""
    text = lines(mooncake(2.5, 20, 1, 2**64 - 1, 2**63 - 1), mooncake(4, 40.0, 1, -2, 8, 9))
    found = trace(tmp_path, "timed_trace", text)
    assert found.due_ns is not None
    assert found.due_ns.tolist() == [0, 1_500_000_000]
    assert found.blocks is not None
    assert found.blocks.tokens == 16
    assert found.blocks.ids.tolist() == [-1, 2**63 - 1, -2, 8, 9]
    other = trace(tmp_path, "timed_trace", text, block_tokens=64)
    assert other.blocks is not None
    assert other.blocks.tokens == 64


def test_hashes_beyond_the_prompt_are_left_out_and_said(tmp_path: Path) -> None:
    """A row with too many or too few hashes is kept; the facts count such rows."""
    found = trace(tmp_path, "mooncake", lines(mooncake(0, 600, 1, 1, 2, 3), mooncake(1, 900, 1, 1)))
    assert found.blocks is not None
    assert [found.blocks.of(row) for row in range(2)] == [[1, 2], [1]]
    assert found.facts.warnings == ("2 rows have not one hash for each block of their prompt",)


def test_coarse_instants_are_said(tmp_path: Path) -> None:
    """Where stamps fall on a grid, bursts are the clock's and not the users'."""
    found = trace(tmp_path, "mooncake", lines(*(mooncake(i // 5 * 3000, 9, 9) for i in range(20))))
    assert found.facts.warnings == ("coarse instants: 4 for 20 rows",)


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("azure", AZURE + "yesterday,1,1\n", "it:2: the instant is 'yesterday': it must be as 2023-"),
        ("azure", AZURE + "2031-02-30 00:00:00,1,1\n", "it:2: the instant is '2031-02-30 00:00:00': day"),
        ("azure", AZURE + "\n2031-02-03 00:00:00,1\n", "it:3: has 2 columns, not 3"),
        ("azure", azure_rows(("00:00:01", 1, -1)), "it:2: GeneratedTokens is '-1': it must be a whole"),
        ("azure", "TIMESTAMP,Context,GeneratedTokens\n", "it:1: has no column 'ContextTokens'"),
        ("azure", "", "it:1: has no column 'TIMESTAMP'"),
        ("burstgpt", BURSTGPT + "nan,GPT-4,1,1,2,x\n", "it:2: the instant is 'nan': it must be a number"),
        ("burstgpt", BURSTGPT + "1e30,GPT-4,1,1,2,x\n", "it:2: the instant is more than 126 years from 0"),
        ("burstgpt", BURSTGPT + '1,"GPT,1,1,2,x\n', "it:2: not CSV: unexpected end of data"),
        ("mooncake", '{"timestamp": 1}\n[]\n', "it:2: not a JSON object"),
        ("mooncake", '\n{"timestamp": tru', "it:2: not JSON: "),
        ("mooncake", lines({"input_length": 1}), "it:1: has no timestamp"),
        ("mooncake", lines({"timestamp": "noon"}), "it:1: the instant is 'noon'"),
        ("mooncake", lines(mooncake(0, 1.5, 1)), "it:1: input_length is 1.5: it must be"),
        ("mooncake", lines(mooncake(0, 1, 1, 2**64)), "it:1: hash_ids must be numbers of 64 bits"),
        ("mooncake", lines(mooncake(0, 17_000_000, 1)), "it:1: a prompt has at most 16,000,000 tokens"),
        ("bailian", lines(mooncake(0, 1, 1)), "it:1: chat_id is null: it must be a whole number"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_by_its_line(
    tmp_path: Path, form: str, text: str, said: str
) -> None:
    """The first one ends the reading, with file, line and rule."""
    assert refusal(tmp_path, form, text).startswith(said)


def test_rows_that_cannot_be_read_may_be_dropped_and_are_counted(tmp_path: Path) -> None:
    """With bad_rows: drop the rest is used, and the facts say how many there were and name the first."""
    text = azure_rows(("00:00:01", 7, 1)) + "x,1,1\n" * 5 + "2031-05-04 00:00:02,8,\xff\n"
    found = trace(tmp_path, "azure", text.encode("latin-1"), bad_rows="drop")
    assert found.facts.dropped == {"unreadable": 6}
    assert found.facts.read == 7
    assert len(found.facts.warnings) == 3
    assert found.facts.warnings[0].startswith("line 3 dropped: the instant is 'x'")


def test_a_header_alone_is_refused(tmp_path: Path) -> None:
    """There is nothing to send; where rows were dropped it says why."""
    assert refusal(tmp_path, "azure", AZURE) == "it: no usable rows: there are none"
    failed = BURSTGPT + "1,GPT-4,10,0,10,API log\n"
    assert refusal(tmp_path, "burstgpt", failed) == "it: no usable rows: 1 zero_output"


@pytest.mark.parametrize(("name", "why"), [("", "Is a directory"), ("gone", "No such file or directory")])
def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path, name: str, why: str) -> None:
    """In one line, like every mistake."""
    with pytest.raises(ScenarioError, match=f"cannot be read: {why}$"):
        read(TraceSource.model_validate({"file": str(tmp_path / name), "format": "azure"}))
