"""Which rows of a trace are kept, on which clock, and what the facts say of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workload.traces.files import BURSTGPT, azure_rows, refusal, trace


def bursts(*at: float) -> str:
    return BURSTGPT + "".join(f"{one},GPT-4,10,5,15,API log\n" for one in at)


def test_a_slice_counts_from_the_first_row_and_leaves_its_end_out(tmp_path: Path) -> None:
    """Its own first row is due at 0."""
    found = trace(
        tmp_path, "burstgpt", bursts(50, 450, 2050, 2051.5, 2054, 2055), start="2000s", duration="4s"
    )
    assert found.due_ns is not None
    assert found.due_ns.tolist() == [0, 1_500_000_000]
    assert (found.facts.read, found.facts.kept, found.facts.outside) == (6, 2, 4)


def test_an_empty_slice_is_refused(tmp_path: Path) -> None:
    """It says how long the trace is."""
    said = refusal(tmp_path, "burstgpt", bursts(0, 60), start="2m")
    assert said == "it: no usable rows between start and its end: the trace lasts 1m"


LONG = azure_rows(("00:00:00", 9000, 50), ("00:00:01", 3000, 2000), ("00:00:02", 100, 10))


def test_rows_over_the_context_are_skipped_and_the_others_keep_their_clock(tmp_path: Path) -> None:
    """Skipping moves nobody in time."""
    found = trace(tmp_path, "azure", LONG, max_model_len=4096)
    assert found.due_ns is not None
    assert found.due_ns.tolist() == [2_000_000_000]
    assert found.facts.dropped == {"over_context": 2}


def test_rows_over_the_context_may_be_clipped(tmp_path: Path) -> None:
    """The output gives way first, to a token at least; then the prompt."""
    found = trace(tmp_path, "azure", LONG, max_model_len=4096, overflow="clip")
    assert found.prompt_tokens.tolist() == [4095, 3000, 100]
    assert found.output_tokens.tolist() == [1, 1096, 10]
    assert found.facts.dropped == {}


def test_rows_over_the_context_may_be_an_error(tmp_path: Path) -> None:
    """The first one is named by its line."""
    said = refusal(tmp_path, "azure", LONG, max_model_len=4096, overflow="error")
    assert said.startswith("it:2: 9000 + 50 tokens are more than max_model_len 4096")


def test_a_prompt_that_is_written_out_is_not_clipped(tmp_path: Path) -> None:
    """It is skipped instead, and counted."""
    found = trace(tmp_path, "text", "x" * 40 + "\nshort\n", max_model_len=8, overflow="clip")
    assert found.texts == ("short",)
    assert found.facts.dropped == {"over_context": 1}


def test_clipped_prompts_have_fewer_blocks(tmp_path: Path) -> None:
    """No more than their tokens fill."""
    row = '{"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": [7, 8, 9]}'
    found = trace(tmp_path, "timed_trace", row, max_model_len=33, overflow="clip")
    assert found.blocks is not None
    assert found.blocks.of(0) == [7, 8]


@pytest.mark.parametrize("overflow", ["skip", "clip"])
def test_no_row_left_is_an_error(tmp_path: Path, overflow: str) -> None:
    """Whichever way they went."""
    said = refusal(tmp_path, "azure", LONG, max_model_len=1, overflow=overflow)
    assert said == "it: no usable rows: 3 over_context"


def test_the_facts_are_said_in_one_line(tmp_path: Path) -> None:
    """Rate and CV of gaps by hand: gaps of 1, 1, 4 s have mean 2 and standard deviation sqrt(2)."""
    rows = azure_rows(("00:00:00", 10, 1), ("00:00:01", 20, 3), ("00:00:02", 30, 2), ("00:00:06", 40, 2))
    facts = trace(tmp_path, "azure", rows + "2031-05-04 00:00:07,1,0\n").facts
    assert facts.span_s == 6
    assert facts.rate_rps == pytest.approx(0.5)
    assert facts.gap_cv == pytest.approx(2**0.5 / 2)
    assert facts.describe() == (
        f"{tmp_path}/it (azure): 4 of 5 rows; 6s, 0.5/s, CV of gaps 0.707; prompt 25 in the mean, p50 25, "
        "p99 40; output 2 in the mean, p50 2, p99 3; left out: 1 zero_output"
    )
