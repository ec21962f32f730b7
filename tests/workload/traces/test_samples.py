"""The made samples that are shipped, one in each format."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import get_args

import pytest

from loadgen.trace_source import TraceFormat, TraceSource
from loadgen.workload.traces import read

SAMPLES = Path(__file__).parents[3] / "workloads" / "samples"
FORMS = {
    "azure-code.csv": "azure",
    "burstgpt.csv": "burstgpt",
    "mooncake-conversation.jsonl": "mooncake",
    "timed-trace.jsonl": "timed_trace",
    "bailian.jsonl": "bailian",
    "servegen": "servegen",
    "sharegpt.json": "sharegpt",
    "vllm-custom.jsonl": "vllm_custom",
    "openai-batch.jsonl": "openai_batch",
    "prompts.csv": "csv",
    "prompts.jsonl": "jsonl",
    "prompts.txt": "text",
}


@pytest.mark.parametrize(("name", "form"), FORMS.items())
def test_each_sample_is_read_without_an_error(name: str, form: str) -> None:
    """And has enough rows to try things with."""
    found = read(TraceSource.model_validate({"file": str(SAMPLES / name), "format": form}))
    assert len(found) >= 24
    assert "unreadable" not in found.facts.dropped


def test_every_format_has_a_sample() -> None:
    """And every file in the folder belongs to one."""
    assert sorted(FORMS.values()) == sorted(get_args(TraceFormat))
    assert {path.name for path in SAMPLES.iterdir()} == set(FORMS)


@pytest.mark.parametrize(
    "name", ["mooncake-conversation.jsonl", "timed-trace.jsonl", "bailian.jsonl", "sharegpt.json"]
)
def test_samples_with_conversations_have_several_turns(name: str) -> None:
    """So that sessions can be tried on them."""
    found = read(
        TraceSource.model_validate({"file": str(SAMPLES / name), "format": FORMS[name], "sessions": True})
    )
    assert found.turn is not None
    assert found.turn.max() >= 3


def test_what_is_drawn_from_laws_is_the_same_everywhere() -> None:
    """On any machine and with any version of the libraries: a hash of every instant and length."""
    found = read(TraceSource.model_validate({"file": str(SAMPLES / "servegen"), "format": "servegen"}), 0)
    assert found.due_ns is not None
    columns = (found.due_ns, found.prompt_tokens, found.output_tokens)
    raw = b"".join(column.astype("<i8").tobytes() for column in columns)
    assert (
        hashlib.sha256(raw).hexdigest() == "d1387900f5f3bd9dd595cc025c2946dfa990cca76360a632065e16ed79b251af"
    )
