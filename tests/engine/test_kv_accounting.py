"""How many run at once where memory is the bound."""

from __future__ import annotations

import pytest

from loadgen.engine.batching import Scheduler
from loadgen.engine.sequence import Sequence, Step
from loadgen.knobs import Engine
from loadgen.studies.anyscale import KV_TOKENS, on_a100
from loadgen.studies.simulated import engine


def test_opt_13b_leaves_about_15_700_slots_of_an_a100() -> None:
    """The paper's 15.7K. By hand: 0.9 x 40 GiB less 2 x 12.853e9 bytes of weights, at 800 KiB a token."""
    memory = Scheduler(engine(on_a100({"kv": {"block_tokens": 1}, "preempt": "memory"}))).memory
    assert memory is not None
    assert memory.total_blocks == (36 * 2**30 - 2 * 12_853_473_280) // (800 * 1024)
    assert memory.total_blocks == pytest.approx(KV_TOKENS, rel=0.01)


def admitted(kv: dict[str, object], *sizes: tuple[int, int], **knobs: object) -> int:
    """How many of these (prompt, answer) the first step takes in, prompts whole."""
    continuous = {"order": "hybrid", "token_budget": None, "prefill_chunk": None}
    scheduler = Scheduler(Engine.model_validate(continuous | {"kv": {"block_tokens": 1} | kv} | knobs))
    for i, size in enumerate(sizes):
        scheduler.add(Sequence(i, *size), 0.0)
    step = scheduler.next_step(0.0)
    assert isinstance(step, Step)
    return len(step.admitted)


def test_a_buddy_allocator_gives_powers_of_two() -> None:
    """Of 6 + 3 tokens each, 16 a piece: two in 47 where five would fit, and three in 48."""
    sizes = [(6, 3)] * 6
    assert admitted({"reserve": "exact", "tokens": 47}, *sizes) == 5
    assert admitted({"reserve": "exact", "tokens": 47, "buddy": True}, *sizes) == 2
    assert admitted({"reserve": "exact", "tokens": 48, "buddy": True}, *sizes) == 3


def test_a_padded_batch_has_less_room_for_a_newcomer() -> None:
    """12 and 4 tokens fit into 20. Padded, the shorter prompt is filled up from 2 to 10: it needs 24."""
    sizes = [(10, 2), (2, 2)]
    assert admitted({"reserve": "exact", "tokens": 20}, *sizes) == 2
    assert admitted({"reserve": "exact", "tokens": 23}, *sizes, padded_context=True) == 1
    assert admitted({"reserve": "exact", "tokens": 24}, *sizes, padded_context=True) == 2
