"""A Plan kept in a file: every column, and all else that a replay needs. Parquet, CSV or JSON lines.

Before the rows stands a Head: in CSV as lines `# key: JSON`, in JSON lines as `loadgen` in the first object,
in parquet as `loadgen` in the schema's metadata.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from loadgen.fields import RowId
from loadgen.plan import COLUMNS, NONE, Blocks, Phase, Plan, PromptRecipe, Row, Text, Window
from loadgen.prompts import Prompts
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.units import told
from loadgen.whole_file import whole

FORMAT = 1
MAX_METADATA_BYTES = 2**31 - 1  # of parquet, where prompts stand that were written out
_ROWS_A_TIME = 65_536
_ASKED = ("name", "seed", "load", "timeouts", "goodput", "fluidity", "slos", "policy")
_TYPES: dict[str, type[np.integer[Any]]] = dict.fromkeys(COLUMNS, np.int32) | {
    **dict.fromkeys(("index", "due_ns", "session", "after", "think_ns"), np.int64),
    **dict.fromkeys(("phase", "class_id"), np.uint8),
}
_BROKEN = (
    ValueError,
    OverflowError,
    RecursionError,
    MemoryError,
    NotImplementedError,
    csv.Error,
    msgspec.DecodeError,
)  # a file's fault; ValueError: pydantic's; those of memory and what is not implemented: pyarrow's

Ints = NDArray[np.int64]
Ids = tuple[str | None, ...]


class _Blocks(msgspec.Struct):
    tokens: int
    ids: list[int]
    start: list[int]


class Head(msgspec.Struct, kw_only=True):
    """What a plan file says before its rows. `scenario`: what was asked, masked, less target and engine."""

    format: int
    digest: str
    scenario: dict[str, Any]
    window: Window
    classes: list[str]
    users: int | None
    law_hash: str | None
    notes: list[str]
    seed: int
    kind: str
    styles: list[dict[str, Any]]
    blocks: _Blocks | None
    texts: list[Text | None] | None
    bodies: list[dict[str, Any] | None] | None


Read = tuple[Head, dict[str, Ints], Ids]


@dataclass(frozen=True, slots=True)
class Kept:
    """What stands in a plan file: the plan, without a tail; the scenario it was drawn from, as far as kept.

    `is_edited`: the plan is no longer the one that was written, as its digest tells.
    """

    plan: Plan
    scenario: Scenario
    is_edited: bool

    def to_replay(self, draw: Callable[[Scenario], Plan]) -> Plan:
        """The plan, with a tail where its scenario still draws this very plan; where not, a note says so."""
        if self.is_edited:
            return self._ending("it was edited since it was written")
        if not (self.scenario.load.tail or self.plan.goes_on):
            return self.plan
        try:
            drawn = draw(self.scenario)
        except ScenarioError as trouble:
            return self._ending(str(trouble))
        if drawn.digest() != self.plan.digest():
            return self._ending("its scenario draws another plan here")
        return drawn

    def _ending(self, why: str) -> Plan:
        note = f"replayed from a plan file, and no load goes on after its rows: {why}"
        return replace(self.plan, notes=(*self.plan.notes, note))


def is_plan_file(name: str) -> bool:
    """Whether a file of this name is a plan, by its ending."""
    return Path(name).suffix in _FORMATS


# --- writing ------------------------------------------------------------------------------------------------


def write(plan: Plan, scenario: Scenario, path: Path) -> None:
    """Keep `plan`, drawn from `scenario`, in `path`, whole or not at all. Its tail can be drawn anew.

    Raises ScenarioError for another ending, where pyarrow is missing for parquet, and for what the operating
    system refuses.
    """
    write_rows, _ = _format(path)
    try:
        write_rows(plan, _head(plan, scenario), path)
    except OSError as problem:
        raise ScenarioError(f"{path}: cannot be written: {problem.strerror}") from None


def _head(plan: Plan, scenario: Scenario) -> Head:
    recipe, blocks, asked = plan.prompts, plan.prompts.blocks, scenario.as_asked()
    return Head(
        format=FORMAT,
        digest=plan.digest(),
        scenario={key: asked[key] for key in _ASKED},
        window=plan.window,
        classes=list(plan.classes),
        users=plan.users,
        law_hash=plan.law_hash,
        notes=list(plan.notes),
        seed=recipe.seed,
        kind=recipe.kind,
        styles=[style.model_dump(mode="json", by_alias=True) for style in recipe.styles],
        blocks=None if blocks is None else _Blocks(blocks.tokens, blocks.ids.tolist(), blocks.start.tolist()),
        texts=None if recipe.texts is None else list(recipe.texts),
        bodies=None if recipe.bodies is None else list(recipe.bodies),
    )


def _write_jsonl(plan: Plan, head: Head, path: Path) -> None:
    encode = msgspec.json.Encoder().encode
    with whole(path) as half, half.open("wb") as file:
        file.write(encode({"loadgen": head}) + b"\n")
        file.writelines(encode(row) + b"\n" for row in plan.rows())


def _write_csv(plan: Plan, head: Head, path: Path) -> None:
    with whole(path) as half, half.open("w", encoding="utf-8", newline="") as file:
        file.writelines(f"# {key}: {json.dumps(value)}\n" for key, value in msgspec.to_builtins(head).items())
        table = csv.writer(file, lineterminator="\n")
        table.writerow(cells := (*COLUMNS, "id"))
        table.writerows(map(attrgetter(*cells), plan.rows()))


def _write_parquet(plan: Plan, head: Head, path: Path) -> None:
    arrow, parquet = _pyarrow(path)
    columns = {name: arrow.array(getattr(plan, name)) for name in COLUMNS}
    columns["id"] = arrow.array(plan.ids or [None] * len(plan), arrow.string())
    with whole(path) as half:
        parquet.write_table(arrow.table(columns, metadata={"loadgen": msgspec.json.encode(head)}), half)


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ScenarioError(
            f"{path}: parquet needs pyarrow: pip install 'loadgen[parquet]', or choose .csv or .jsonl"
        ) from None
    return pa, pq


# --- reading ------------------------------------------------------------------------------------------------


def read(path: Path) -> Kept:
    """The plan in `path`, as it stands there. Raises ScenarioError, which says where, for what is no plan."""
    _, read_rows = _format(path)
    try:
        head, columns, ids = read_rows(path)
    except OSError as problem:
        raise ScenarioError(f"{path}: cannot be read: {told(problem.strerror or problem)}") from None
    for rule, wrong in _contradictions(head, columns):
        if wrong.any():
            raise ScenarioError(f"{path}: row {wrong.argmax() + 1}: {rule}")
    with _told(path):
        plan = _plan(head, columns, ids)
    scenario = build(head.scenario, f"{path}: scenario", unknown="ignore")
    return Kept(plan, scenario, plan.digest() != head.digest)


def _read_jsonl(path: Path) -> Read:
    with path.open("rb") as file:
        with _told(f"{path}:1"):
            head = _checked(msgspec.json.decode(file.readline(), type=dict[str, Any]).get("loadgen"))
        with _told(path):
            return head, *_columns(_parsed(path, 2, file, msgspec.json.Decoder(Row).decode))


def _read_csv(path: Path) -> Read:
    def row(cells: list[str]) -> Row:
        if len(cells) != len(names):
            raise ValueError(f"{len(cells)} cells, not {len(names)}")
        said = {name: cell for name, cell in zip(names, cells, strict=True) if cell}
        return msgspec.convert(said, Row, strict=False)

    said: dict[str, Any] = {}
    with _told(path), path.open(encoding="utf-8", newline="") as file:
        while (line := file.readline()).startswith("# "):
            key, _, value = line[2:].partition(": ")
            said[key] = msgspec.json.decode(value)
        head, names = _checked(said), line.strip().split(",")
        _refuse_lacking(names)
        return head, *_columns(_parsed(path, len(said) + 2, csv.reader(file), row))


def _read_parquet(path: Path) -> Read:
    _, parquet = _pyarrow(path)
    with _told(path), path.open("rb") as file:
        table = parquet.read_table(file, thrift_string_size_limit=MAX_METADATA_BYTES)
        head = _checked(msgspec.json.decode((table.schema.metadata or {}).get(b"loadgen", b"null")))
        _refuse_lacking(table.column_names)
        columns = {name: _whole(name, table.column(name).to_numpy()) for name in COLUMNS}
        return head, columns, tuple(table.column("id").to_pylist())


def _refuse_lacking(names: list[str]) -> None:
    if lacking := {*COLUMNS, "id"} - {*names}:
        raise ValueError(f"column {min(lacking)} is missing")


def _whole(name: str, column: NDArray[Any]) -> Ints:
    if column.dtype.kind not in "iu":
        raise ValueError(f"column {name} must hold whole numbers alone")
    if column.dtype == np.uint64 and (column > np.iinfo(np.int64).max).any():
        raise ValueError(f"column {name} must be of 64-bit numbers with a sign")
    return column.astype(np.int64)


def _checked(said: Any) -> Head:
    if not isinstance(said, dict) or "digest" not in said:
        raise ValueError("not a plan that loadgen wrote: it lacks the head with a digest")
    if said.get("format") != FORMAT:
        raise ValueError(f"plan format {said.get('format')} is not {FORMAT}, the one this version reads")
    return msgspec.convert(said, Head)


@contextmanager
def _told(where: object) -> Iterator[None]:
    try:
        yield
    except _BROKEN as problem:
        raise ScenarioError(f"{where}: {told(problem)}") from None


def _parsed(path: Path, first: int, lines: Iterable[Any], parse: Callable[[Any], Row]) -> Iterator[Row]:
    done = 0
    try:
        for line in lines:
            yield parse(line)
            done += 1
    except _BROKEN as problem:
        raise ScenarioError(f"{path}:{first + done}: {told(problem)}") from None


def _columns(rows: Iterator[Row]) -> tuple[dict[str, Ints], Ids]:
    numbers = attrgetter(*COLUMNS)
    blocks, ids = [np.empty((0, len(COLUMNS)), np.int64)], []
    while part := list(islice(rows, _ROWS_A_TIME)):
        try:
            blocks.append(np.array(list(map(numbers, part)), np.int64))
        except OverflowError:
            raise ValueError("a whole number of more than 64 bits") from None
        ids += [row.id for row in part]
    return dict(zip(COLUMNS, np.concatenate(blocks).T, strict=True)), tuple(ids)


def _contradictions(head: Head, columns: dict[str, Ints]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Each rule, and the rows that break it."""
    for name, column in columns.items():
        least = {"prompt_tokens": 1, "output_tokens": 1, "priority": np.iinfo(np.int32).min}.get(name, 0)
        least = NONE if name in ("session", "after", "group", "source") else least
        most = np.iinfo(_TYPES[name]).max
        yield f"{name} must be from {least} to {most}", (column < least) | (column > most)
    index, due_ns, after = columns["index"], columns["due_ns"], columns["after"]
    yield "due_ns is before the row before it", np.r_[False, due_ns[1:] < due_ns[:-1]]
    yield (
        "its index is that of an earlier row",
        ~np.isin(np.arange(len(index)), np.unique(index, return_index=True)[1]),
    )
    yield "after is no row before it", (after != NONE) & ~(np.isin(after, index) & (after < index))
    yield "phase must be 0, a warm-up, or 1, measured", columns["phase"] > Phase.MEASURED
    yield "class_id is no place in classes", columns["class_id"] >= max(1, len(head.classes))
    yield "history_tokens must be below prompt_tokens", columns["history_tokens"] >= columns["prompt_tokens"]
    lengths = [len(head.blocks.start) - 1] if head.blocks is not None else []
    lengths += [len(column) for column in (head.texts, head.bodies) if column is not None]
    yield "source is no place in texts, bodies or blocks", columns["source"] >= min(lengths, default=2**31)


def _plan(head: Head, columns: dict[str, Ints], ids: Ids) -> Plan:
    if not len(columns["index"]):
        raise ValueError("it holds no row")
    if head.kind != (known := PromptRecipe(seed=head.seed).kind):
        raise ValueError(f"kind: prompts are of {head.kind!r:.60}, and this version makes {known}")
    if has_ids := any(row_id is not None for row_id in ids):
        _refuse_ids(ids)
    recipe = PromptRecipe(
        seed=head.seed,
        kind=head.kind,
        texts=None if head.texts is None else tuple(head.texts),
        bodies=None if head.bodies is None else tuple(head.bodies),
        blocks=None if head.blocks is None else _blocks(head.blocks),
        styles=tuple(Prompts.model_validate(style, by_name=False) for style in head.styles),
    )
    typed: dict[str, Any] = {name: column.astype(_TYPES[name]) for name, column in columns.items()}
    return Plan(
        **typed,
        window=head.window,
        prompts=recipe,
        ids=ids if has_ids else None,
        classes=tuple(head.classes),
        users=head.users,
        law_hash=head.law_hash,
        notes=tuple(head.notes),
    )


def _refuse_ids(ids: Ids) -> None:
    one: TypeAdapter[str | None] = TypeAdapter(RowId | None)
    for place, row_id in enumerate(ids):
        try:
            one.validate_python(row_id, strict=True)
        except ValidationError as problem:
            raise ValueError(f"row {place + 1}: id: {problem.errors()[0]['msg']}") from None


def _blocks(said: _Blocks) -> Blocks:
    return Blocks(said.tokens, np.array(said.ids, np.int64), np.array(said.start, np.int64))


_FORMATS: dict[str, tuple[Callable[[Plan, Head, Path], None], Callable[[Path], Read]]] = {
    ".parquet": (_write_parquet, _read_parquet),
    ".csv": (_write_csv, _read_csv),
    ".jsonl": (_write_jsonl, _read_jsonl),
}
ENDINGS = tuple(_FORMATS)


def _format(path: Path) -> tuple[Callable[[Plan, Head, Path], None], Callable[[Path], Read]]:
    if path.suffix not in _FORMATS:
        raise ScenarioError(f"{path}: a plan file's name ends in {', '.join(_FORMATS)}")
    return _FORMATS[path.suffix]
