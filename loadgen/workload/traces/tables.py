"""CSV files: Azure's and BurstGPT's, and the user's own; columns are found by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loadgen.workload.traces.columns import Columns
from loadgen.workload.traces.lines import RowError, mistake, table
from loadgen.workload.traces.prompts import sendable
from loadgen.workload.traces.values import decimal_ns, stamp_ns, tokens


def azure(into: Columns) -> None:
    """Azure's LLM inference traces of 2023 and 2024: `TIMESTAMP,ContextTokens,GeneratedTokens`."""
    _timed(into, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), stamp_ns)


def burstgpt(into: Columns) -> None:
    """BurstGPT, with or without session columns; seconds. A failure is a row of 0 response tokens."""
    _timed(into, ("Timestamp", "Request tokens", "Response tokens"), decimal_ns)


def _timed(into: Columns, names: Sequence[str], instant: Callable[[str], int]) -> None:
    rows = table(into.asked.file, into.bad)
    header = next(rows, (1, []))[1]
    due, prompt, output = (_place(into, header, name) for name in names)
    width = len(header)
    for line, cells in rows:
        try:
            if len(cells) != width:
                raise RowError(f"has {len(cells)} columns, not {width}")
            into.row(
                line, instant(cells[due]), tokens(cells[prompt], names[1]), tokens(cells[output], names[2])
            )
        except RowError as problem:
            into.bad(line, problem)


def _place(into: Columns, header: list[str], name: str) -> int:
    for place, found in enumerate(header):
        if found.strip().casefold() == name.casefold():
            return place
    has = ", ".join(header) or "nothing"
    raise mistake(into.asked.file, f"has no column {name!r}: its first line has {has[:200]}", 1)


def own(into: Columns) -> None:
    """A CSV file of the user's: columns due (seconds), prompt_tokens, output_tokens, prompt and id.

    `columns` gives them other names. Only one of prompt and prompt_tokens is needed.
    """
    rows = table(into.asked.file, into.bad)
    header = next(rows, (1, []))[1]
    places = _own_places(into, header)
    for line, cells in rows:
        try:
            if len(cells) != len(header):
                raise RowError(f"has {len(cells)} columns, not {len(header)}")
            _own_row(into, line, {key: cells[place] for key, place in places.items()})
        except RowError as problem:
            into.bad(line, problem)


def _own_places(into: Columns, header: list[str]) -> dict[str, int]:
    named = into.asked.columns
    known = [found.strip().casefold() for found in header]
    places: dict[str, int] = {
        key: _place(into, header, named.get(key, key))
        for key in ("due", "prompt_tokens", "output_tokens", "prompt", "id")
        if key in named or key in known
    }
    if not places.keys() & {"prompt", "prompt_tokens"}:
        _place(into, header, "prompt_tokens")
    return places


def _own_row(into: Columns, line: int, row: dict[str, str]) -> None:
    due = decimal_ns(row["due"]) if "due" in row else None
    text = sendable(row["prompt"]) if "prompt" in row else None
    prompt = None if text == "" else tokens(row.get("prompt_tokens"), "prompt_tokens")
    if prompt is None and text:
        prompt = into.estimate(text)
    if into.row(line, due, prompt, tokens(row.get("output_tokens"), "output_tokens")):
        into.says(text, row.get("id"))
