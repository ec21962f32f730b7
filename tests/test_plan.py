"""The Plan as a value: its columns, shards and digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.plan import Phase, Plan, PromptRecipe, Window

COLUMNS = ("index", "due_ns", "prompt_tokens", "output_tokens", "phase", "priority")


def rows(n: int, start: int = 0, phase: Phase = Phase.MEASURED, **changed: Any) -> Plan:
    """A plan whose every cell tells its row: due 10 i, prompt i + 1, output i + 2, priority -i."""
    i = np.arange(start, start + n)
    plan = {
        "index": i,
        "due_ns": 10 * i,
        "prompt_tokens": (i + 1).astype(np.int32),
        "output_tokens": (i + 2).astype(np.int32),
        "phase": np.full(n, phase, np.uint8),
        "priority": (-i).astype(np.int32),
        "window": Window(0, 10 * n, "duration"),
        "prompts": PromptRecipe(seed=1),
    }
    return Plan(**(plan | changed))


def tail(start: int, sizes: Iterable[int]) -> Iterator[Plan]:
    for size in sizes:
        yield rows(size, start, Phase.TAIL)
        start += size


def cells(blocks: Iterator[Plan] | list[Plan]) -> list[tuple[int, ...]]:
    """All rows of `blocks`, by index."""
    return sorted(row for b in blocks for row in zip(*(getattr(b, c).tolist() for c in COLUMNS), strict=True))


@given(n=st.integers(0, 40), of=st.integers(1, 9), sizes=st.lists(st.integers(0, 20), max_size=6))
def test_all_shards_together_are_the_plan_and_its_tail(n: int, of: int, sizes: list[int]) -> None:
    """Every row once, with its own due time, in the plan and in the tail, for uneven blocks too."""
    plan = rows(n, more=partial(tail, n, sizes))
    shards = [plan.shard(k, of) for k in range(of)]
    assert cells(shards) == cells([plan])
    assert cells([block for shard in shards for block in shard.tail()]) == cells(plan.tail())


@pytest.mark.parametrize("of", [2, 3, 8])
def test_a_shard_takes_every_kth_row_across_the_seam_to_the_tail(of: int) -> None:
    """Its indices stay k modulo the number of shards, and rise."""
    plan = rows(50, more=partial(tail, 50, [16, 16, 16]))
    for k in range(of):
        shard = plan.shard(k, of)
        indices = [i for block in (shard, *shard.tail()) for i in block.index.tolist()]
        assert indices == list(range(k, 98, of))


def test_a_shard_of_a_shard_is_a_shard() -> None:
    """The odd rows, and of these every third from the second on, are every sixth row from the fourth on."""
    plan = rows(50, more=partial(tail, 50, [16] * 9))
    nested, direct = plan.shard(1, 2).shard(1, 3), plan.shard(3, 6)
    assert cells([nested, *nested.tail()]) == cells([direct, *direct.tail()])


def test_a_shard_keeps_window_and_prompts_and_takes_its_ids_along() -> None:
    """Texts are found by row index, so the recipe stays whole; ids go by position."""
    recipe = PromptRecipe(seed=1, texts=("a", None, "b"))
    shard = rows(3, ids=("x", None, "z"), prompts=recipe).shard(0, 2)
    assert shard.ids == ("x", "z")
    assert shard.index.tolist() == [0, 2]
    assert shard.prompts is recipe
    assert shard.window == Window(0, 30, "duration")


def test_one_shard_of_one_is_the_plan() -> None:
    """The digest says so; a shard of two has another."""
    plan = rows(9)
    assert plan.shard(0, 1).digest() == plan.digest() != plan.shard(0, 2).digest()


@pytest.mark.parametrize(("k", "of"), [(-1, 2), (2, 2), (0, 0)])
def test_there_is_no_shard_outside_the_split(k: int, of: int) -> None:
    """Shards are numbered from 0."""
    with pytest.raises(ValueError, match=f"no shard {k} of {of}"):
        rows(3).shard(k, of)


def test_a_tail_without_end_is_split_as_it_is_read() -> None:
    """Only as much of it is drawn as the shard asks for."""
    plan = rows(3, more=partial(tail, 3, repeat(4)))
    assert [b.index.tolist() for b in islice(plan.shard(1, 2).tail(), 2)] == [[3, 5], [7, 9]]


def test_no_column_can_be_written_to() -> None:
    """Neither in the plan nor in a shard."""
    for plan in (rows(4), rows(4).shard(1, 2)):
        for column in COLUMNS:
            with pytest.raises(ValueError, match="read-only"):
                getattr(plan, column)[0] = 0


def test_unsorted_rows_and_uneven_columns_are_refused() -> None:
    """What every reader of a plan relies on is checked once."""
    with pytest.raises(ValueError, match="sorted"):
        rows(2, due_ns=np.array([2, 1]))
    with pytest.raises(ValueError, match="length"):
        rows(2, index=np.array([1]))


@pytest.mark.parametrize(
    "change",
    [
        *(lambda plan, c=c: replace(plan, **{c: getattr(plan, c) + 1}) for c in COLUMNS if c != "phase"),
        lambda plan: replace(plan, phase=plan.phase - 1),
        lambda plan: replace(plan, window=Window(0, 31, "duration")),
        lambda plan: replace(plan, window=Window(0, 30, "count")),
        lambda plan: replace(plan, prompts=PromptRecipe(seed=2)),
        lambda plan: replace(plan, prompts=PromptRecipe(seed=1, kind="other")),
        lambda plan: replace(plan, prompts=PromptRecipe(seed=1, texts=("a", None, None))),
        lambda plan: replace(plan, ids=("a", None, None)),
        lambda plan: rows(2),
    ],
)
def test_any_change_of_the_plan_changes_its_digest(change: Callable[[Plan], Plan]) -> None:
    """Each column, the window, the recipe and the ids."""
    assert change(rows(3)).digest() != rows(3).digest()


def test_texts_that_run_together_alike_have_different_digests() -> None:
    """Lengths stand between them, an absent text is no empty one, and line ends prove nothing."""
    recipes = [("ab", "c"), ("a", "bc"), ("a", None), (None, "a"), ("a", ""), ("a\n1\nb", ""), ("a", "b")]
    digests = {rows(2, prompts=PromptRecipe(seed=1, texts=texts)).digest() for texts in recipes}
    assert len(digests) == len(recipes)


def test_the_digest_does_not_depend_on_how_the_columns_lie_in_memory() -> None:
    """Big-endian, wider or strided columns of the same numbers are the same plan."""
    plan = rows(5)
    odd = replace(
        plan,
        due_ns=plan.due_ns.astype(">i8"),
        priority=plan.priority.astype(np.int64),
        index=np.arange(10)[:5],
    )
    assert odd.digest() == plan.digest()
