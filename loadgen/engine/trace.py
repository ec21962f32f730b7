"""What each iteration of the engine did: one Iteration a step, with names in place of sequences."""

from __future__ import annotations

import msgspec


class Iteration(msgspec.Struct, frozen=True, kw_only=True):
    """One step, and what happened from the end of the one before to its own end. A line of iterations.jsonl.

    Requests go by their names in the plan. `decode`: one token each. `prefill`: tokens of prompt computed.
    `emitted`: whose prompt was finished in it, which gives its next token too. `rejected`: refused as it came,
    or dropped from the queue. `queue` and `active`: as they stand after the step. `unused_tokens`: of the
    token budget (None: no budget). `decode_waited`: somebody could have decoded and did not, since prompts
    took the step. `slots` of which `used_slots` emitted a token or computed a prompt of their own.
    """

    iteration: int
    start_s: float
    step_s: float
    decode: list[str]
    prefill: list[tuple[str, int]]
    emitted: list[str]
    preempted: list[str]
    rejected: list[str]
    admitted: list[str]
    completed: list[str]
    queue: list[str]
    active: list[str]
    unused_tokens: int | None
    decode_waited: bool
    kv_blocks: int
    slots: int
    used_slots: int
