"""The requests of a run folder with what each of them measured, some at a time, however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isnan
from pathlib import Path
from typing import Any, Literal

import msgspec

from loadgen.plan import Phase
from loadgen.records import Floats, Records, RequestRecord
from loadgen.run import RunHeader
from loadgen.run_folder import each, load
from loadgen.scenario import ScenarioError
from loadgen.stats.metrics import per_request, span_s
from loadgen.stats.warmup import settled

BLOCK = 4096

Kind = Literal["text", "count", "number", "bool"]


@dataclass(frozen=True, slots=True)
class Column:
    """A value that each record has: its key in records.jsonl, and the attribute that holds it."""

    key: str
    attribute: str
    kind: Kind

    def of(self, records: Iterable[RequestRecord]) -> list[Any]:
        return [getattr(record, self.attribute) for record in records]


@dataclass(frozen=True, slots=True)
class Block:
    """Some requests, one after the other; seconds by metric, None where one is not defined."""

    records: Sequence[RequestRecord]
    metrics: dict[str, list[float | None]]


def requests(folder: Path) -> tuple[RunHeader, Iterator[Block]]:
    """All requests in the order of their records, in blocks. Raises ScenarioError, as `load` does.

    `phase` is that by which the summary counts: what `warmup: auto` or an early end made of it.
    """
    header, records = each(folder)
    return header, _blocks(folder, _as_counted(folder, header, records))


def _blocks(folder: Path, records: Iterator[RequestRecord]) -> Iterator[Block]:
    while some := list(islice(records, BLOCK)):
        try:
            found = measured(some)
        except ValueError as problem:
            raise ScenarioError(f"{folder / 'records.jsonl'}: {problem}") from None
        yield Block(some, {name: _listed(values) for name, values in found.items()})


def measured(records: Sequence[RequestRecord]) -> dict[str, Floats]:
    """Each request's latencies and its send lag, in seconds; NaN where not defined."""
    r = Records.from_records(records)
    return per_request(r) | {"send_lag_s": span_s(r.started_s, r.ready_s)}


METRICS = tuple(measured([]))


def _listed(values: Floats) -> list[float | None]:
    return [None if isnan(value) else value for value in values.tolist()]


def _as_counted(folder: Path, header: RunHeader, records: Iterator[RequestRecord]) -> Iterator[RequestRecord]:
    auto = header.scenario.get("load", {}).get("warmup") == "auto"
    if not auto and header.ended_early is None:
        yield from records
        return
    names: dict[int, Any] = {phase: phase.name.lower() for phase in Phase}
    for record, phase in zip(records, settled(load(folder)).records.phase.tolist(), strict=True):
        record.phase = names[phase]
        yield record


def _columns() -> Iterator[Column]:
    for field in msgspec.inspect.type_info(RequestRecord).fields:  # type: ignore[attr-defined]
        if (kind := _kind(field.type)) is not None:
            yield Column(field.encode_name, field.name, kind)


def _kind(of: msgspec.inspect.Type) -> Kind | None:
    """None of a list, which has no place in a table's cell."""
    match of:
        case msgspec.inspect.UnionType(types):
            kinds = {_kind(one) for one in types if not isinstance(one, msgspec.inspect.NoneType)}
            return kinds.pop() if len(kinds) == 1 else None
        case msgspec.inspect.IntType():
            return "count"
        case msgspec.inspect.FloatType():
            return "number"
        case msgspec.inspect.BoolType():
            return "bool"
        case msgspec.inspect.StrType() | msgspec.inspect.LiteralType() | msgspec.inspect.EnumType():
            return "text"
    return None


COLUMNS = tuple(_columns())
"""Those of a record that are one value, not a list."""
