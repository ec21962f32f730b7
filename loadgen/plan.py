"""What is drawn: a Plan, the rows to send sorted by due time. Columns, so that a million rows are cheap."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from pathlib import PurePath
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadgen.prompts import Prompts

NONE = -1


class Phase(IntEnum):
    """Which part of the run a row belongs to. Latencies and attainment count `MEASURED` rows only."""

    WARMUP = 0
    MEASURED = 1
    TAIL = 2


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of a run, [start, end) in nanoseconds from the run's start.

    by `duration`: as the scenario says. by `count`: from the first measured due to the last, both included.
    by `burst`: every measured row is due at one instant, start and end, so there is no rate.
    """

    start_ns: int
    end_ns: int
    by: Literal["duration", "count", "burst"]


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a plan, as plain numbers; what the columns of the Plan say of it, and its own id."""

    index: int
    due_ns: int
    prompt_tokens: int
    output_tokens: int
    phase: int
    priority: int
    class_id: int = 0
    session: int = NONE
    turn: int = 0
    after: int = NONE
    think_ns: int = 0
    history_tokens: int = 0
    group: int = NONE
    source: int = NONE
    id: str | None = None


Text = str | list[dict[str, Any]]  # a prompt, or the messages of a chat
Prompt = Text | list[int]  # or token ids


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Prompts as blocks of `tokens` tokens, the last maybe shorter; equal ids are equal text.

    Source row i has the ids `ids[start[i] : start[i + 1]]` (int64; `start` int64, one longer than the rows).
    """

    tokens: int
    ids: NDArray[np.int64]
    start: NDArray[np.int64]

    def of(self, source: int) -> list[int]:
        ids: list[int] = self.ids[self.start[source] : self.start[source + 1]].tolist()
        return ids


@dataclass(frozen=True, slots=True)
class PromptRecipe:
    """How to make the prompts: with the plan's columns, `kind` and `seed` fix them, the salt apart.

    `styles`: how each class makes its own, by class id; without any, words without a common prefix. `texts`:
    prompts that were written out, by the rows' `source`; where there is none, the prompt is synthetic.
    `bodies`: what else a request's body holds, by `source`.
    """

    seed: int
    kind: str = "synthetic-words/1"
    texts: tuple[Text | None, ...] | None = None
    blocks: Blocks | None = None
    bodies: tuple[dict[str, Any] | None, ...] | None = None
    styles: tuple[Prompts, ...] = ()


# The columns and how each is spelled in a digest; further ones are in it only where they say something.
_COLUMNS = {
    "index": "<i8",
    "due_ns": "<i8",
    "prompt_tokens": "<i4",
    "output_tokens": "<i4",
    "phase": "<u1",
    "priority": "<i4",
}
_FURTHER = {
    "class_id": ("<u1", 0),
    "session": ("<i8", NONE),
    "turn": ("<i4", 0),
    "after": ("<i8", NONE),
    "think_ns": ("<i8", 0),
    "history_tokens": ("<i4", 0),
    "group": ("<i4", NONE),
    "source": ("<i4", NONE),
}
COLUMNS = (*_COLUMNS, *_FURTHER)
_ROWS_A_TIME = 4096


def _unsaid() -> Any:
    """Stands for a column that says nothing of any row."""
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Rows sorted by due time: warm-up, then measured. Tail rows come from `tail()` as they are needed.

    Columns, all of length n and read-only: `index` int64; `due_ns` int64, from the run's start;
    `prompt_tokens` (history included) and `output_tokens` int32, as asked; `phase` uint8 (Phase); `priority`
    int32. `ids`, where given, are by position.

    Further columns, NONE (-1) or 0 where they say nothing: `class_id` uint8, a place in `classes`; `session`
    int64 and `turn` int32 (from 1); `after` int64: the index of the row whose answer this one waits for, and
    then falls due `think_ns` int64 later, though never before `due_ns`; `history_tokens` int32: tokens of the
    prompt that are earlier turns and their answers; `group` int32: the prefix that prompts share; `source`
    int32: the row of the trace it came from.

    `users`: a closed loop of so many; row by row, whoever is free takes the next, which falls due `think_ns`
    after its last answer ended. Their `due_ns` is 0. Whether such a row is measured in a window
    by duration is told by when it did fall due.

    `law_hash`: of the source of a law of the user's own. `notes`: what to know of it, for people.

    Raises ValueError where the columns differ in length or the rows are not sorted.
    """

    index: NDArray[np.int64]
    due_ns: NDArray[np.int64]
    prompt_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    phase: NDArray[np.uint8]
    priority: NDArray[np.int32]
    window: Window
    prompts: PromptRecipe
    class_id: NDArray[np.uint8] = field(default_factory=_unsaid)
    session: NDArray[np.int64] = field(default_factory=_unsaid)
    turn: NDArray[np.int32] = field(default_factory=_unsaid)
    after: NDArray[np.int64] = field(default_factory=_unsaid)
    think_ns: NDArray[np.int64] = field(default_factory=_unsaid)
    history_tokens: NDArray[np.int32] = field(default_factory=_unsaid)
    group: NDArray[np.int32] = field(default_factory=_unsaid)
    source: NDArray[np.int32] = field(default_factory=_unsaid)
    ids: tuple[str | None, ...] | None = None
    classes: tuple[str, ...] = ()
    users: int | None = None
    law_hash: str | None = None
    notes: tuple[str, ...] = ()
    more: Callable[[], Iterator[Plan]] | None = None

    def __post_init__(self) -> None:
        for name, (spelling, nothing) in _FURTHER.items():
            if getattr(self, name) is None:
                unsaid = np.broadcast_to(np.array(nothing, spelling), len(self))
                object.__setattr__(self, name, unsaid)
        if {len(getattr(self, name)) for name in COLUMNS} != {len(self)}:
            raise ValueError("the columns of a plan differ in length")
        if np.any(self.due_ns[1:] < self.due_ns[:-1]):
            raise ValueError("the rows of a plan are not sorted by due time")
        for name in COLUMNS:
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.due_ns)

    @property
    def goes_on(self) -> bool:
        """Whether more rows than it has are measured: a closed loop's in a window by duration."""
        return self.users is not None and self.window.by == "duration"

    @property
    def has_chains(self) -> bool:
        """Whether any row waits for another's answer."""
        return self._says("after", NONE)

    def rows(self) -> Iterator[Row]:
        """Its rows, one by one; the tail's are not among them."""
        for start in range(0, len(self), _ROWS_A_TIME):
            part = slice(start, start + _ROWS_A_TIME)
            ids = (None,) * len(self.index[part]) if self.ids is None else self.ids[part]
            yield from map(Row, *(getattr(self, c)[part].tolist() for c in COLUMNS), ids)

    def tail(self) -> Iterator[Plan]:
        """Blocks of further rows from the same streams, phase TAIL, without end.

        Each call starts anew with the row after the plan's last. Nothing where arrivals have an end.
        """
        return iter(()) if self.more is None else self.more()

    def digest(self) -> str:
        """SHA-256 over the columns, the window, the ids and the prompt recipe.

        Whole numbers and UTF-8 text only: no float and no salt enters it, so it is the same everywhere. A
        tokenizer enters by its path's last part.
        """
        h = hashlib.sha256(b"loadgen plan 1\n")
        spellings = _COLUMNS | {
            c: spelling for c, (spelling, nothing) in _FURTHER.items() if self._says(c, nothing)
        }
        for name, spelling in spellings.items():
            h.update(f"{name} {len(self)}\n".encode())
            h.update(getattr(self, name).astype(spelling).tobytes())
        h.update(f"window {self.window.start_ns} {self.window.end_ns} {self.window.by}\n".encode())
        h.update(f"prompts {self.prompts.kind} {self.prompts.seed}\n".encode())
        h.update(b"texts " + _spelled(self.prompts.texts))
        h.update(b"ids " + _spelled(self.ids))
        for further in self._further():
            h.update(further)
        return h.hexdigest()

    def _says(self, column: str, nothing: int) -> bool:
        return bool(np.any(getattr(self, column) != nothing))

    def _further(self) -> Iterator[bytes]:
        """What only some plans have, for the digest."""
        if any(self.classes):
            yield b"classes " + _spelled(self.classes)
        if self.users is not None:
            yield f"users {self.users}\n".encode()
        if self.law_hash is not None:
            yield f"law {self.law_hash}\n".encode()
        if self.prompts.bodies is not None:
            yield b"bodies " + json.dumps(self.prompts.bodies, sort_keys=True).encode() + b"\n"
        if (blocks := self.prompts.blocks) is not None:
            yield f"blocks {blocks.tokens}\n".encode()
            yield blocks.ids.astype("<i8").tobytes() + blocks.start.astype("<i8").tobytes()
        if any(style != Prompts() for style in self.prompts.styles):
            yield b"styles " + _spelled(tuple(map(_style, self.prompts.styles)))

    def shard(self, k: int, of: int) -> Plan:
        """Every `of`-th row from the k-th on, with its absolute due time: the plan is split, never the rate.

        Sessions stay whole, and are split instead of their rows where there are any; so are a closed loop's
        users, and a shard beyond the last user is empty. The tail is split alike; all `of` shards together
        hold every row once. Raises ValueError unless 0 <= k < of.
        """
        if not 0 <= k < of:
            raise ValueError(f"there is no shard {k} of {of}")
        users = None
        if self.users is not None:
            users, of = len(range(k, self.users, of)), min(of, self.users)
            if not users:  # nobody would ever take a row
                return replace(self._only(slice(0)), more=None, users=0)
        if np.any(self.session != NONE):
            more = None if self.more is None else partial(_tail_of_sessions, self.more, k, of)
            return replace(self._of_sessions(k, of), more=more)
        more = None if self.more is None else partial(_tail_shard, self.more, (k - len(self)) % of, of)
        return replace(self._only(slice(k, None, of)), more=more, users=users)

    def _of_sessions(self, k: int, of: int) -> Plan:
        whose = np.where(self.session == NONE, self.index, self.session)
        return self._only(np.flatnonzero(whose % of == k))

    def _only(self, picked: slice | NDArray[np.intp]) -> Plan:
        columns: dict[str, Any] = {name: getattr(self, name)[picked] for name in COLUMNS}
        places = range(len(self))[picked] if isinstance(picked, slice) else picked
        ids = None if self.ids is None else tuple(self.ids[place] for place in places)
        return replace(self, **columns, ids=ids, more=None)


def _tail_shard(more: Callable[[], Iterator[Plan]], first: int, of: int) -> Iterator[Plan]:
    """Every `of`-th row of the tail from its `first` on, across the borders of its blocks."""
    for block in more():
        mine = block._only(slice(first, None, of))
        first = (first - len(block)) % of
        if len(mine):
            yield mine


def _tail_of_sessions(more: Callable[[], Iterator[Plan]], k: int, of: int) -> Iterator[Plan]:
    for block in more():
        if len(mine := block._of_sessions(k, of)):
            yield mine


def _style(prompts: Prompts) -> str:
    plain = prompts.model_dump(mode="json", by_alias=True)
    if prompts.tokenizer is not None:
        plain["tokenizer"] = PurePath(prompts.tokenizer).name
    return json.dumps(plain, sort_keys=True)


def _spelled(texts: Sequence[Text | None] | None) -> bytes:
    """Each text after its length, so that no two lists are spelled alike; -1 stands for an absent one."""
    if texts is None:
        return b"none\n"
    plain = [text if text is None or isinstance(text, str) else json.dumps(text) for text in texts]
    raws = [b"-1\n" if text is None else b"%d\n%b" % (len(text.encode()), text.encode()) for text in plain]
    return b"%d\n" % len(raws) + b"".join(raws)
