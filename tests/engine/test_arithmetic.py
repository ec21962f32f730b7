"""What batching makes of slots, of a queue, and of a long prompt among decodes, worked out with a pencil."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import pytest

from loadgen.engine import simulate
from loadgen.engine.trace import Iteration, Totals, totals
from loadgen.knobs import Engine
from loadgen.records import RequestRecord
from tests.engine.driving import Row, fixed, plan


def ran(rows: Sequence[Row], **knobs: object) -> tuple[list[Iteration], dict[int, RequestRecord]]:
    """The iterations of `rows` on this engine, a second a step unless `cost` says otherwise; its records."""
    seen: list[Iteration] = []
    engine = Engine.model_validate({"cost": fixed("1s")} | knobs)
    records = {r.index: r for r in simulate(plan(rows), engine, run_id="r", observe=seen.append)}
    return seen, records


# --- slots that stay empty
# ---------------------------------------------------------------------------------------

EIGHT = (20, 45, 80, 120, 150, 90, 60, 200)
"""Answers of 765 tokens in all, the longest 200."""


def slots(outputs: Sequence[int], **knobs: object) -> Totals:
    return totals(ran([(0.0, 1, output) for output in outputs], **knobs)[0])


@pytest.mark.parametrize("batching", ["static", "dynamic"])
def test_a_held_batch_pays_for_its_longest_member_in_every_slot(batching: str) -> None:
    """Eight slots x 200 steps = 1,600, of which 765 emit: 835 are wasted, 52.19 %. To fix membership by the
    request and not by a timer changes nothing of it.
    """
    found = slots(EIGHT, batching=batching, max_sequences=8)
    assert (found.slots, found.used_slots) == (1600, 765)
    assert found.slots - found.used_slots == 835
    assert round(100 * 835 / 1600, 2) == 52.19


def test_four_slots_of_which_one_works_for_long_waste_more_than_half() -> None:
    """Answers of 4, 24, 6 and 8: 4 x 24 = 96 slots for 42 tokens, 43.75 %."""
    found = slots((4, 24, 6, 8), batching="static", max_sequences=4)
    assert (found.slots, found.used_slots) == (96, 42)
    assert found.used_slots / found.slots == 0.4375


@pytest.mark.parametrize(("batching", "steps", "empty"), [("static", 6, 4), ("continuous", 4, 0)])
def test_continuous_batching_fills_the_slot_that_a_static_batch_leaves_empty(
    batching: str, steps: int, empty: int
) -> None:
    """4, 2, 2 in two slots. Static: 4 steps, the second slot empty in two of them, then 2 steps for the third
    alone. Continuous: the third takes the slot of the second.
    """
    found = slots((4, 2, 2), batching=batching, max_sequences=2, max_wait=0)
    assert found.iterations == steps
    assert found.slots - found.used_slots == empty


# --- more arrivals than can be served
# ----------------------------------------------------------------------------

EIGHT_A_SECOND: list[Row] = [(float(second), 1, 1) for second in range(20) for _ in range(8)]
"""Each takes one of the two slots for one step of a second."""


@pytest.mark.parametrize("admit", ["tokens", "slot"])
def test_an_unbounded_queue_grows_by_what_cannot_be_served(admit: str) -> None:
    """Eight come in each iteration and two are served: six more wait after each."""
    iterations, _ = ran(EIGHT_A_SECOND, max_sequences=2, admit=admit)
    assert [len(each.queue) for each in iterations[:20]] == [6 * (n + 1) for n in range(20)]
    assert not totals(iterations).rejections


@pytest.mark.parametrize("admit", ["tokens", "slot"])
@pytest.mark.parametrize("bound", [0, 1, 5])
def test_a_bounded_queue_rejects_the_excess_in_the_iteration_in_which_it_comes(
    admit: str, bound: int
) -> None:
    """The first eight find two slots and `bound` places. From then on, of those waiting two start in each
    iteration, and two of the newcomers take their places: the other six are rejected, the last to come.
    """
    iterations, records = ran(EIGHT_A_SECOND, max_sequences=2, admit=admit, max_queue=bound)
    for n, each in enumerate(iterations[:20]):
        assert len(each.queue) == bound
        came = range(8 * n, 8 * (n + 1))
        assert each.rejected == [str(i) for i in came[-6 if n else bound - 6 :]]
    assert all(records[int(i)].ended_s == each.iteration for each in iterations for i in each.rejected)


# --- a prompt of 6,000 tokens joins eight decodes
# ----------------------------------------------------------------

# OPT-13B on an A100 of 40 GB, from its shape and the card's figures alone.
PARAMETERS = (50272 * 5120) + 40 * (12 * 5120**2 + 13 * 5120) + 2 * 5120
BYTES_PER_S = 0.75 * 1.555e12
FLOPS = 0.70 * 312e12
KV_BYTES = 2 * 40 * 5120 * 2
OVERHEAD_S = 0.005
PROMPT, JOINS_S = 6000, 0.5
LONG_AMONG_EIGHT: list[Row] = [(0.0, 100, 200)] * 8 + [(JOINS_S, PROMPT, 1)]


def step_s(decodes: int, contexts: int, chunk: int = 0, before: int = 0) -> float:
    """By the formula: weights and arithmetic, KV that is read, attention within the prompt, overhead."""
    weights_s = 2 * PARAMETERS / BYTES_PER_S
    arithmetic_s = 2 * PARAMETERS * (decodes + chunk) / FLOPS
    kv_s = contexts * KV_BYTES / BYTES_PER_S
    attention_s = 4 * 40 * 5120 * chunk * (before + chunk / 2) / FLOPS
    return hypot(weights_s, arithmetic_s) + kv_s + attention_s + OVERHEAD_S


def gaps_s(**knobs: object) -> tuple[list[float], list[tuple[int, int]]]:
    """Between tokens of the eight, which all get theirs together; (iteration, tokens) of the long prompt."""
    cost = {"kind": "roofline", "gpu": "a100-40gb", "model": "opt-13b"}
    iterations, records = ran(LONG_AMONG_EIGHT, cost=cost, token_budget=PROMPT + 8, **knobs)
    assert len({tuple(records[i].gaps_us) for i in range(8)}) == 1
    chunks = [(each.iteration, n) for each in iterations for name, n in each.prefill if name == "8"]
    return [gap_us / 1e6 for gap_us in records[0].gaps_us], chunks


def test_a_whole_prompt_is_one_stall_of_the_size_that_the_formula_says() -> None:
    """Unchunked: one gap of 780 ms, and no other above 29 ms."""
    found, [(at, chunk)] = gaps_s(prefill_chunk=None)
    assert chunk == PROMPT
    stall_s = found.pop(at - 1)  # the first gap ends with iteration 1
    assert stall_s == pytest.approx(step_s(8, 8 * (100 + at), PROMPT), abs=2e-6)
    assert stall_s == pytest.approx(0.780, abs=0.001)
    assert max(found) == pytest.approx(step_s(8, 8 * 299), abs=2e-6)
    assert max(found) < 0.029


def test_a_chunked_prompt_stalls_nobody_for_more_than_a_step_of_520_tokens() -> None:
    """Chunks of 512 beside eight decodes: twelve gaps, each as the formula says; the longest is that of the
    last whole chunk, which attends to all before it: 81 ms, a tenth of the stall above.
    """
    found, chunks = gaps_s(prefill_chunk=512)
    assert [n for _, n in chunks] == [512] * 11 + [PROMPT - 11 * 512]
    first = chunks[0][0]
    expected_s = [step_s(8, 8 * (100 + at), n, 512 * (at - first)) for at, n in chunks]
    assert found[first - 1 : first + 11] == pytest.approx(expected_s, abs=2e-6)
    assert max(found) == pytest.approx(expected_s[10], abs=2e-6)
    assert max(found) == pytest.approx(0.081, abs=0.001)
