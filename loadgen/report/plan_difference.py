"""Two plans side by side: in what they differ, and where first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loadgen.plan import COLUMNS, Plan


def sentences(a: Plan, b: Plan) -> list[str]:
    """What tells `b` from `a`, a line each; that they are equal, where nothing does."""
    if a.digest() == b.digest():
        return [f"equal: {len(a):,} rows, digest {a.digest()}"]
    return [f"different: digests {a.digest()} and {b.digest()}", *_rows(a, b), *_columns(a, b), *_else(a, b)]


def _rows(a: Plan, b: Plan) -> Iterator[str]:
    """Rows are the same row by their index."""
    if len(a) != len(b):
        yield f"rows: {len(a):,} and {len(b):,}"
    for name, mine, others in (("the first", a, b), ("the second", b, a)):
        alone = np.setdiff1d(mine.index, others.index)
        if len(alone):
            yield f"rows of {name} alone: {len(alone):,}, the first of them {alone[0]}"


def _columns(a: Plan, b: Plan) -> Iterator[str]:
    both, of_a, of_b = np.intersect1d(a.index, b.index, return_indices=True)
    for name in COLUMNS:
        mine, others = getattr(a, name)[of_a], getattr(b, name)[of_b]
        differ = np.flatnonzero(mine != others)
        if len(differ):
            first = differ[0]
            yield (
                f"{name}: differs in {len(differ):,} of {len(both):,} rows, first in row {both[first]}: "
                f"{mine[first]} and {others[first]}"
            )
    ids = [(i, _id(a, x), _id(b, y)) for i, x, y in zip(both, of_a, of_b, strict=True)]
    if differing := [row for row in ids if row[1] != row[2]]:
        row, mine, others = differing[0]
        many = f"{len(differing):,} of {len(ids):,} rows"
        yield f"ids: differ in {many}, first in row {row}: {mine} and {others}"


def _id(plan: Plan, place: int) -> str | None:
    return None if plan.ids is None else plan.ids[place]


def _else(a: Plan, b: Plan) -> Iterator[str]:
    said = {
        "window": (a.window, b.window),
        "classes": (a.classes, b.classes),
        "users": (a.users, b.users),
        "source of the law": (a.law_hash, b.law_hash),
        "seed of the prompts": (a.prompts.seed, b.prompts.seed),
        "kind of prompts": (a.prompts.kind, b.prompts.kind),
    }
    for name, (mine, others) in said.items():
        if mine != others:
            yield f"{name}: {mine} and {others}"
    for name in ("styles", "texts", "bodies"):
        if getattr(a.prompts, name) != getattr(b.prompts, name):
            yield f"prompts: other {name}"
    if not _same_blocks(a, b):
        yield "prompts: other blocks"


def _same_blocks(a: Plan, b: Plan) -> bool:
    mine, others = a.prompts.blocks, b.prompts.blocks
    if mine is None or others is None:
        return mine is others
    same = np.array_equal(mine.ids, others.ids) and np.array_equal(mine.start, others.start)
    return same and mine.tokens == others.tokens
