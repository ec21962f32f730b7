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
    ids = [(a.ids or ())[i : i + 1] for i in of_a], [(b.ids or ())[i : i + 1] for i in of_b]
    if different := sum(mine != others for mine, others in zip(*ids, strict=True)):
        yield f"ids: differ in {different:,} of {len(both):,} rows"


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
