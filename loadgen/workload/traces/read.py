"""From a source to a Trace: the reader of its format, then what is kept of the rows, and the facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loadgen.trace_source import TraceFormat, TraceSource
from loadgen.workload.traces import jsonlines, servegen, sharegpt, tables
from loadgen.workload.traces.columns import Columns
from loadgen.workload.traces.lines import mistake
from loadgen.workload.traces.select import selected
from loadgen.workload.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class _Format:
    fill: Callable[[Columns], None]
    needs_output: bool = True  # a row without one did not happen
    block_tokens: int | None = None
    sessions: bool = False


_FORMATS: dict[TraceFormat, _Format] = {
    "azure": _Format(tables.azure),
    "burstgpt": _Format(tables.burstgpt),
    "mooncake": _Format(jsonlines.mooncake, block_tokens=512, sessions=True),
    "timed_trace": _Format(jsonlines.timed_trace, block_tokens=16, sessions=True),
    "bailian": _Format(jsonlines.bailian, block_tokens=16, sessions=True),
    "servegen": _Format(servegen.servegen),
    "sharegpt": _Format(sharegpt.sharegpt, sessions=True),
    "vllm_custom": _Format(jsonlines.vllm_custom, needs_output=False),
    "openai_batch": _Format(jsonlines.openai_batch, needs_output=False),
    "csv": _Format(tables.own, needs_output=False),
    "jsonl": _Format(jsonlines.own, needs_output=False),
    "text": _Format(jsonlines.text, needs_output=False),
}


def read(source: TraceSource, seed: int = 0) -> Trace:
    """The requests of a file, sorted, cut and counted as `source` says; see each format's reader.

    Always dropped and counted are rows without a prompt or, in traces of requests that happened, without an
    output. A slice counts from the first row that can be used, and its first row is due at 0; rows that do
    not fit the model are left out afterwards, so the others keep their clock. `seed` matters to servegen
    alone, whose files are laws to draw from.

    Raises ScenarioError, one line with file and line: a row or a file that cannot be read, no usable row, or
    a wish that the format cannot meet.
    """
    form = _FORMATS[source.format]
    _refuse(source, form)
    columns = Columns(source, seed, needs_output=form.needs_output)
    form.fill(columns)
    return selected(columns, source.block_tokens or form.block_tokens)


def _refuse(source: TraceSource, form: _Format) -> None:
    wishes = {
        "columns": bool(source.columns) and source.format not in ("csv", "jsonl"),
        "block_tokens": source.block_tokens is not None and form.block_tokens is None,
        "sessions": source.sessions and not form.sessions,
    }
    if meant := [wish for wish, vain in wishes.items() if vain]:
        raise mistake(
            source.file, f"the format {source.format} has no {meant[0]}: leave load.trace.{meant[0]} out"
        )
