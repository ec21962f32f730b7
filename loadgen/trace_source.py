"""A file of requests, as asked: its format, which part of it, what to do with its odd rows."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from loadgen.fields import Count, Duration, DurationOrZero, SentFile, Strict

TraceFormat = Literal[
    "azure",
    "burstgpt",
    "mooncake",
    "timed_trace",
    "bailian",
    "servegen",
    "sharegpt",
    "vllm_custom",
    "openai_batch",
    "csv",
    "jsonl",
    "text",
]


_TIMED = ("azure", "burstgpt", "mooncake", "timed_trace", "bailian", "servegen")


def has_instants(source: Any) -> bool:
    """Whether a source, as it is written, says when its requests were due."""
    if isinstance(source, TraceSource):
        source = {"format": source.format, "columns": source.columns}
    if not isinstance(source, dict):
        return False
    columns = source.get("columns")
    return source.get("format") in _TIMED or (isinstance(columns, dict) and "due" in columns)


class TraceSource(Strict):
    """A file of requests that happened, or of prompts: what `load` takes instants, lengths or texts from.

    Rows that cannot be read are an error with file and line (`bad_rows: error`), or dropped and counted
    (`drop`); rows without a prompt or an output are always dropped and counted.
    """

    file: SentFile = Field(description="path, relative to the scenario; for servegen a folder")
    format: TraceFormat = Field(description="how the file is laid out")
    start_s: DurationOrZero = Field(default=0.0, alias="start", description="leave out what is before")
    duration_s: Duration | None = Field(
        default=None, alias="duration", description="take so much from `start` on, its end excluded"
    )
    max_model_len: Count | None = Field(
        default=None, description="the model's context: what to do with longer rows is told by `overflow`"
    )
    overflow: Literal["skip", "clip", "error"] = Field(
        default="skip", description="skip counts them, clip shortens the output and then the prompt"
    )
    bad_rows: Literal["error", "drop"] = Field(default="error", description="for rows that cannot be read")
    order: Literal["file", "shuffle", "sample"] = Field(
        default="file",
        description="where another law gives the instants: rows in the file's order, shuffled, or drawn with "
        "replacement",
    )
    block_tokens: Count | None = Field(
        default=None, description="tokens of a hash block; 512 for mooncake, 16 for bailian and timed_trace"
    )
    columns: dict[Literal["due", "prompt_tokens", "output_tokens", "prompt", "id"], str] = Field(
        default={}, description="csv, jsonl: which column is what; due in seconds"
    )
    sessions: bool = Field(
        default=False, description="a turn waits for the answer before it; else each row is on its own"
    )
