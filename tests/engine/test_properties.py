"""Rules that hold for any knobs and any load, each held to what the scheduler was seen to do."""

from __future__ import annotations

from collections import Counter

import hypothesis
import msgspec

from loadgen.engine import simulate
from loadgen.engine.trace import Iteration
from loadgen.knobs import Engine
from loadgen.scenario import ScenarioError
from tests.engine.history import Cancel, History
from tests.engine.knobs import LOADS, Asked, continuous, engines, held, plan_of
from tests.engine.rules import counted, decodes, over

UNCACHED = continuous(memory="paged") | continuous(memory="reserved") | continuous(memory="none")


# --- requests
# ----------------------------------------------------------------------------------------------------


@over(examples=250)
def test_every_request_ends_exactly_once(history: History) -> None:
    """Answered, refused, cancelled or impossible here; only a batch that waits forever leaves some behind."""
    ended = [i for turn in history.turns for i in turn.ended]
    refused = [each.refused for each in history.arrivals if each.refused is not None]
    cancelled = [each.id for each in history.cancels]
    everyone = [*ended, *refused, *cancelled, *history.never, *history.left]
    assert sorted(everyone) == list(range(len(history.load)))
    assert not history.left or history.engine.max_wait_s == "forever"
    assert not history.end.running


@over()
def test_whoever_is_answered_has_every_token_and_nobody_has_one_too_many(history: History) -> None:
    """An answer is complete when its sequence ends; a cancelled one emits nothing afterwards."""
    emitted = Counter(i for turn in history.turns for i in turn.emits)
    for i in (i for turn in history.turns for i in turn.ended):
        assert emitted[i] == history.load[i].output
    assert all(emitted[i] <= each.output for i, each in enumerate(history.load))


@over()
def test_a_cancelled_request_takes_no_part_in_anything_that_follows(history: History) -> None:
    """Whether it waited, ran or was in mid-step; only a held batch goes on computing its slot."""
    is_held = history.engine.batching != "continuous"
    gone: set[int] = set()
    for turn in history.turns:
        gone |= {each.id for each in turn.told if isinstance(each, Cancel) and each.was_there}
        part = {*turn.emits, *turn.ended, *turn.admitted, *turn.preempted, *turn.before.queue}
        computed = {*turn.decode, *(piece.id for piece in turn.prefill)}
        assert not gone & (part if is_held else part | computed | set(turn.formed.running))


@over(continuous())
def test_a_cancel_frees_slot_and_blocks_at_once(history: History) -> None:
    """Between steps and in mid-step alike."""
    for each in history.cancels:
        assert each.id not in each.after.queue + each.after.running
        freed = each.before.used_blocks - each.after.used_blocks
        held_blocks = each.before.blocks.get(each.id, 0)
        assert freed <= held_blocks if shares_blocks(history.engine) else freed == held_blocks


# --- memory
# ------------------------------------------------------------------------------------------------------


def shares_blocks(engine: Engine) -> bool:
    return engine.kv is not None and engine.kv.prefix_cache


@over(continuous(memory="paged") | continuous(memory="cached") | continuous(memory="reserved") | held())
def test_blocks_never_leak_and_never_go_negative(history: History) -> None:
    """At every instant those in use are those that running sequences hold, shared ones counted once; at the
    end there are none.
    """
    scenes = [scene for turn in history.turns for scene in (turn.before, turn.formed, turn.after)]
    for scene in (*scenes, *(scene for each in history.told for scene in (each.before, each.after))):
        assert 0 <= scene.used_blocks <= scene.total_blocks
        assert all(blocks >= 0 for blocks in scene.blocks.values())
        held_blocks = sum(scene.blocks.values())
        if shares_blocks(history.engine):
            assert max(scene.blocks.values(), default=0) <= scene.used_blocks <= held_blocks
        else:
            assert scene.used_blocks == held_blocks
    assert len({scene.total_blocks for scene in scenes}) <= 1
    assert history.end.used_blocks == 0
    assert all(turn.kv_blocks == turn.formed.used_blocks for turn in history.turns)


@over(UNCACHED)
def test_each_step_goes_on_where_the_last_one_stopped(history: History) -> None:
    """Chunks start at the first position that is missing; who decodes lacks exactly one, and who emits none;
    contexts are what is known.
    """
    for turn, so_far in counted(history):
        known = [each.prompt + so_far.emitted[i] for i, each in enumerate(history.load)]
        for i, start, tokens, completes in turn.prefill:
            assert start == so_far.computed[i] < start + tokens <= known[i]
            assert completes == (start + tokens == known[i])
        assert all(decodes(i, history, so_far) for i in turn.decode)
        assert turn.emits == [*turn.decode, *(piece.id for piece in turn.prefill if piece.completes)]
        contexts = [known[i] for i in turn.decode]
        padded = len(contexts) * max(contexts, default=0)
        assert turn.context_tokens == (padded if history.engine.padded_context else sum(contexts))


@over(continuous(memory="cached"))
def test_a_prefix_is_found_only_where_it_was_computed(history: History) -> None:
    """A chunk that starts further on than its sequence had come starts after whole blocks, all of them
    computed before for a prompt that begins alike; and something is always left to compute.
    """
    size, load = history.engine.kv.block_tokens, history.load
    done = [0, 0]  # positions of each family's prompts
    for turn, so_far in counted(history):
        for i, start, tokens, _ in turn.prefill:
            assert tokens > 0
            if start != so_far.computed[i]:
                assert start % size == 0
                assert so_far.computed[i] < start <= done[load[i].family]
        for i, start, tokens, _ in turn.prefill:
            done[load[i].family] = max(done[load[i].family], min(start + tokens, load[i].prompt))


@over(continuous(memory="paged"))
def test_paged_memory_holds_what_is_computed_and_no_block_more(history: History) -> None:
    """While a step runs, every sequence holds blocks for its positions, those of the step included."""
    for turn, so_far in counted(history):
        ends = so_far.computed | {piece.id: piece.start + piece.tokens for piece in turn.prefill}
        ends |= {i: so_far.computed[i] + 1 for i in turn.decode}
        for i, blocks in turn.formed.blocks.items():
            assert blocks == -(-ends[i] // history.engine.kv.block_tokens)


@over(
    continuous(memory="paged", restore="swap")
    | continuous(memory="reserved", displaces=True, restore="swap")
    | continuous(memory="none", displaces=True, restore="swap")
)
def test_what_is_swapped_crosses_the_bus_out_and_in(history: History) -> None:
    """All positions of whoever loses its slot, and again when it comes back; nothing else."""
    again: set[int] = set()
    for turn, so_far in counted(history):
        again |= set(turn.preempted)
        crossing = [*turn.preempted, *(i for i in turn.admitted if i in again)]
        assert turn.swapped_tokens == sum(so_far.computed[i] for i in crossing)


def work(history: History) -> Counter[int]:
    """Positions that were computed for each sequence, in chunks and in decodes."""
    pieces: Counter[int] = Counter()
    for turn in history.turns:
        pieces.update(turn.decode)
        for piece in turn.prefill:
            pieces[piece.id] += piece.tokens
    return pieces


def answered(history: History) -> dict[int, int]:
    """Those answered in full, and the positions that each needs: all but its last token's."""
    ended = [i for turn in history.turns for i in turn.ended]
    return {i: history.load[i].prompt + history.load[i].output - 1 for i in ended}


@over(
    continuous(memory="paged", restore="keep")
    | continuous(memory="paged", restore="swap")
    | continuous(memory="none", displaces=True, restore="keep")
)
def test_what_is_kept_or_swapped_is_never_computed_again(history: History) -> None:
    """Every position of an answered request is computed once, however often it lost its slot."""
    done = work(history)
    assert all(done[i] == positions for i, positions in answered(history).items())


@over(continuous(memory="paged", restore="recompute") | continuous(memory="none", restore="recompute"))
def test_recompute_computes_all_that_was_known_anew(history: History) -> None:
    """The work on an answered request is its positions, and those that it had when it lost its slot."""
    lost: Counter[int] = Counter()
    for turn, so_far in counted(history):
        lost.update({i: so_far.had[i] for i in turn.preempted})
    done = work(history)
    assert all(done[i] == positions + lost[i] for i, positions in answered(history).items())


@over(continuous(memory="cached"))
def test_a_prefix_cache_only_saves_work(history: History) -> None:
    """No answered request takes more than without one, and none less than its answer."""
    lost: Counter[int] = Counter()
    for turn, so_far in counted(history):
        if history.engine.restore == "recompute":
            lost.update({i: so_far.had[i] for i in turn.preempted})
    done = work(history)
    for i, positions in answered(history).items():
        assert history.load[i].output <= done[i] <= positions + lost[i]


# --- steps
# -------------------------------------------------------------------------------------------------------


@over()
def test_no_step_is_above_the_budget_the_slots_or_the_chunk(history: History) -> None:
    """And what is left of the budget is what it says."""
    engine = history.engine
    for turn in history.turns:
        assert len(turn.decode) + len(turn.prefill) <= len(turn.formed.running) <= engine.max_sequences
        if engine.batching == "continuous":
            assert engine.token_budget is None or turn.tokens + turn.unused_tokens == engine.token_budget
            assert turn.unused_tokens is None or turn.unused_tokens >= 0
            assert all(piece.tokens <= (engine.prefill_chunk or piece.tokens) for piece in turn.prefill)


@over()
def test_every_step_computes_something(history: History) -> None:
    """No step is empty, and nobody has two parts in one."""
    for turn in history.turns:
        part = [*turn.decode, *(piece.id for piece in turn.prefill)]
        assert part
        assert len(set(part)) == len(part)
        assert set(part) <= set(turn.formed.running)


@over(continuous(order="hybrid") | continuous(order="prefill_first", prefill_chunk=None))
def test_whole_prompts_are_never_cut(history: History) -> None:
    """Every chunk is all that its sequence lacks."""
    assert all(piece.completes for turn in history.turns for piece in turn.prefill)


@over(continuous(order="prefill_first"))
def test_prefill_first_never_mixes_prompts_and_decodes(history: History) -> None:
    """A step has one or the other."""
    assert not any(turn.prefill and turn.decode for turn in history.turns)


@over(continuous(order="decode_first") | continuous(order="hybrid"))
def test_no_decode_waits_where_decodes_come_first(history: History) -> None:
    """Whoever could decode does, unless it lost its slot."""
    for turn, so_far in counted(history):
        able = {i for i in turn.before.running if decodes(i, history, so_far)}
        assert able - set(turn.preempted) <= set(turn.decode)
        assert turn.waited == 0


@over(
    continuous("paged", order="prefill_first", admit="tokens", displaces=False, waiting_served_ratio=1.2)
    | continuous("paged", order="prefill_first", admit="tokens", displaces=False, max_waiting_tokens=3)
    | continuous(order="prefill_first", admit="tokens", displaces=False, max_waiting_tokens=3),
)
def test_prompts_interrupt_decodes_by_the_ratio_or_by_the_time_and_not_otherwise(history: History) -> None:
    """A step of prompts while somebody decodes, and does not have to go: enough wait for those who run, or
    enough steps of decodes went before.
    """
    ratio, most = history.engine.waiting_served_ratio, history.engine.max_waiting_tokens
    decode_steps = 0
    for turn, so_far in counted(history):
        staying = [i for i in turn.before.running if i not in turn.preempted]
        if turn.prefill and any(decodes(i, history, so_far) for i in staying):
            by_ratio = ratio is not None and len(turn.before.queue) >= ratio * len(turn.before.running)
            assert by_ratio or (most is not None and decode_steps >= most)
        decode_steps = 0 if turn.prefill else decode_steps + 1


# --- again
# -------------------------------------------------------------------------------------------------------


@hypothesis.seed(5)
@hypothesis.settings(max_examples=60, database=None)
@hypothesis.given(engines(), LOADS)
def test_the_same_seed_gives_the_same_trace(engine: Engine, load: list[Asked]) -> None:
    """Every iteration and every record, byte for byte, noise and answers' lengths included."""

    def told() -> bytes:
        seen: list[Iteration] = []
        try:
            records = list(simulate(plan_of(load), engine, run_id="r", ignore_eos=False, observe=seen.append))
        except ScenarioError as nothing_fits:
            return str(nothing_fits).encode()
        return msgspec.json.encode([seen, records])

    assert told() == told()
