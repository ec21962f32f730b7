"""Rules that hold for any knobs and any load, each held to what the scheduler was seen to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple
from zlib import crc32

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from loadgen.engine import simulate
from loadgen.engine.trace import Iteration
from loadgen.knobs import Engine
from loadgen.scenario import ScenarioError
from tests.engine.driving import fixed
from tests.engine.history import Arrival, Cancel, History, Turn, followed
from tests.engine.knobs import LOADS, Asked, continuous, engines, held, plan_of

KINDS = ("preempted", "rejected", "cancelled", "skipped ahead")
CANCELS = st.dictionaries(st.integers(0, 13), st.integers(0, 60).map(lambda half: half / 2), max_size=3)

UNCACHED = continuous(memory="paged") | continuous(memory="reserved") | continuous(memory="none")

Rule = Callable[[History], None]


def over(
    knobs: st.SearchStrategy[Engine] | None = None, *, seen: tuple[str, ...] = KINDS, examples: int = 100
) -> Callable[[Rule], Callable[[], None]]:
    """A test that holds a rule to what engines of these `knobs` do with any load.

    It prints in what share of the examples somebody was preempted, rejected, cancelled or skipped ahead, and
    fails where one of those in `seen` happened in less than a twentieth of them: the rule would then have
    been held to too little. The examples are the same each time.
    """

    def made(rule: Rule) -> Callable[[], None]:
        def test() -> None:
            happened: Counter[str] = Counter()

            @hypothesis.seed(crc32(rule.__name__.encode()))
            @hypothesis.settings(max_examples=examples, database=None)
            @hypothesis.given(engines() if knobs is None else knobs, LOADS, CANCELS)
            def holds(engine: Engine, load: list, cancels: dict[int, float]) -> None:
                history = followed(engine, load, cancels)
                happened.update(history.kinds | {"example"})
                rule(history)

            holds()
            shares = {kind: happened[kind] / happened["example"] for kind in KINDS}
            print(", ".join(f"{kind} {share:.0%}" for kind, share in shares.items()))  # noqa: T201 - pytest -s
            assert happened["example"] >= examples
            assert all(shares[kind] > 0.05 for kind in seen), shares

        test.__name__, test.__doc__ = rule.__name__, rule.__doc__
        return test

    return made


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


class SoFar(NamedTuple):
    """Of each sequence before a step: the positions it `had`, those `computed` that the step's preemptions
    left of them, and the tokens that it has emitted.
    """

    had: dict[int, int]
    computed: dict[int, int]
    emitted: dict[int, int]


def counted(history: History) -> Iterator[tuple[Turn, SoFar]]:
    """Each turn with what chunks and decodes before it add up to."""
    none = dict.fromkeys(range(len(history.load)), 0)
    so_far = SoFar(dict(none), dict(none), dict(none))
    for turn in history.turns:
        so_far.had.update(so_far.computed)
        if history.engine.restore == "recompute":
            so_far.computed.update(dict.fromkeys(turn.preempted, 0))
        yield turn, so_far
        for piece in turn.prefill:
            so_far.computed[piece.id] = piece.start + piece.tokens
        for i in turn.decode:
            so_far.computed[i] += 1
        for i in turn.emits:
            so_far.emitted[i] += 1


def decodes(i: int, history: History, so_far: SoFar) -> bool:
    """It has its first token, and lacks one position to the next."""
    return so_far.emitted[i] > 0 and so_far.computed[i] == history.load[i].prompt + so_far.emitted[i] - 1


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


# --- the queue
# ---------------------------------------------------------------------------------------------------

IN_ORDER = (
    held(policy="fcfs")
    | continuous("paged", policy="fcfs", admit="tokens", displaces=False)
    | continuous("paged", policy="fcfs", admit="tokens", displaces=False, max_sequences=4)
    | continuous(policy="fcfs", admit="tokens", displaces=False)
)
"""Engines that never reorder. See REORDERS for those that do."""

STAY = ("preempted", "rejected", "cancelled")


@over(IN_ORDER, seen=STAY)
def test_first_come_first_served_never_reorders_admissions(history: History) -> None:
    """First admissions are in the order of arrival."""
    assert history.admissions == sorted(history.admissions)


REORDERS = {
    "a lower number leaves the queue first": {"policy": "priority"},
    "and so it does where waiting lowers it": {"policy": "aging", "aging": "1/s"},
    "a shorter prompt is due earlier": {"policy": "deadline", "deadline": {"per_token": "1s"}},
    "a newcomer that finds a free slot takes it past the queue": {"admit": "slot"},
    "a newcomer takes the slot of one that is less urgent": {"preempt": "priority"},
}


@pytest.mark.parametrize("rule", REORDERS)
def test_whatever_else_reorders_admissions_does_so_by_its_rule(rule: str) -> None:
    """One slot, two who wait, a third that is urgent and short: it is admitted before the second. It comes in
    mid-step, the first ending with that step, or, where slots are free for the taking, just after.
    """
    engine = Engine.model_validate({"max_sequences": 1, "cost": fixed("1s")} | REORDERS[rule])
    at_s = 3.0 if engine.admit == "slot" else 1.5
    load = [asked_at(0, 5, 3), asked_at(1, 5, 3), asked_at(at_s, 1, 3, priority=-9)]
    assert followed(engine, load).admissions == [0, 2, 1]


def asked_at(at_s: float, prompt: int, output: int, priority: int = 0) -> Asked:
    return Asked(at_s, prompt, output, output, priority, 0)


@over(
    held(policy="fcfs")
    | continuous("paged", policy="fcfs", admit="tokens", displaces=False, victim="last")
    | continuous("paged", policy="fcfs", admit="tokens", displaces=False, victim="last", max_sequences=4),
    seen=STAY,
)
def test_first_tokens_keep_the_order_of_equal_prompts(history: History) -> None:
    """First come, first served, the last admitted losing its slot, and no cache that knows one of them: of
    two prompts of equal length the earlier has its first token no later.
    """
    first: dict[int, int] = {}
    for at, turn in enumerate(history.turns):
        for i in turn.emits:
            first.setdefault(i, at)
    for early, late in ((a, b) for a in first for b in first if a < b):
        assert history.load[early].prompt != history.load[late].prompt or first[early] <= first[late]


@over(
    held()
    | continuous(admit="tokens", displaces=False)
    | continuous(memory="paged", admit="tokens", displaces=False)
    | continuous(memory="cached", admit="tokens", displaces=False)
)
def test_who_is_admitted_is_the_head_of_the_queue(history: History) -> None:
    """Whoever does not fit stops those behind, and nobody comes in once somebody had to go in the same step:
    only where prompts come first may somebody come back from the bus, and go for the decodes that follow.
    """
    prompts_first = history.engine.order == "prefill_first" and history.engine.restore != "recompute"
    for turn in history.turns:
        assert turn.admitted == turn.before.queue[: len(turn.admitted)]
        assert prompts_first or not (turn.admitted and turn.preempted)


@over()
def test_the_queue_is_in_the_order_of_its_policy_and_the_preempted_are_ahead_of_their_equals(
    history: History,
) -> None:
    """First come, by number, by number and age, or by deadline; of equals those that lost a slot come first,
    the last of them ahead.
    """
    engine, load = history.engine, history.load
    urgency = {
        "fcfs": lambda each: 0.0,
        "priority": lambda each: each.priority,
        "aging": lambda each: each.priority + engine.aging * each.at_s,
        "deadline": lambda each: each.at_s + 0.001 * each.prompt,
    }[engine.policy]
    lost_at: dict[int, int] = {}
    loss = count(1)

    def in_order(queue: list[int]) -> list[int]:
        return sorted(queue, key=lambda i: (urgency(load[i]), -lost_at.get(i, 0), i))

    for turn in history.turns:
        assert turn.before.queue == in_order(turn.before.queue)
        lost_at |= {i: next(loss) for i in turn.preempted}
        assert turn.formed.queue == in_order(turn.formed.queue)


@over()
def test_the_queue_never_exceeds_its_bound_beyond_the_free_slots(history: History) -> None:
    """Whoever is let in found fewer waiting than free slots and bound together, or another had to go."""
    engine = history.engine
    if engine.max_queue is None:
        assert not any(each.refused is not None for each in history.arrivals)
        return
    for each in history.arrivals:
        running, waiting = each.before.running, each.before.queue
        free = engine.max_sequences - len(running)
        if engine.batching != "continuous" and running:
            free = 0
        if each.refused is None and each.id in each.after.queue:
            assert len(waiting) < free + engine.max_queue
        assert len(each.after.queue) <= max(len(waiting), free + engine.max_queue)


@over(
    held(max_queue=1, policy="priority")
    | continuous(max_queue=1, admit="slot")
    | continuous(max_queue=1, policy="priority"),
)
def test_whoever_is_refused_for_want_of_a_place_is_the_least_urgent(history: History) -> None:
    """Rejecting: the newcomer. Dropping: the highest number among it and those that wait and never ran; of
    equals the last to come.
    """
    for each in (each for each in history.arrivals if each.refused is not None):
        ran = preempted_before(history, each)
        fresh = [i for i in each.before.queue if i not in ran and history.engine.full_queue == "drop_lowest"]
        assert each.refused == max([*fresh, each.id], key=lambda i: (history.load[i].priority, i))


def preempted_before(history: History, event: Arrival) -> set[int]:
    """Who had lost a slot when this was told."""
    lost: set[int] = set()
    for turn in history.turns:
        if event in turn.told:
            return lost
        lost |= set(turn.preempted)
    return lost


SERVICE_S, SLOTS, BACKLOG = 4, 2, 3
NORMAL = asked_at(10.5, 1, SERVICE_S)


def urgent_stream(seconds: float) -> list[Asked]:
    """Two slots' worth: one that takes four steps every two seconds, and three more at the start, so that one
    or more always wait.
    """
    at_s = [0] * BACKLOG + [2 * n for n in range(int(seconds / 2))]
    return [asked_at(each, 1, SERVICE_S, priority=-10) for each in at_s]


def waited_s(load: list[Asked], **policy: str) -> float:
    """How long the normal request waits for a slot."""
    engine = Engine.model_validate({"max_sequences": SLOTS, "cost": fixed("1s")} | policy)
    load = sorted([*load, NORMAL])
    turns = followed(engine, load).turns
    return next(turn.now_s for turn in turns if load.index(NORMAL) in turn.admitted) - NORMAL.at_s


@pytest.mark.parametrize("aging", [0.25, 1, 4])
def test_where_waiting_counts_nobody_starves_and_where_it_does_not_they_do(aging: float) -> None:
    """A request ten below a stream that fills the engine is ahead of all that come 10 / aging later. Then
    those before it leave: the backlog and one more, two in every four seconds; and a slot must be free. It is
    admitted by then, and not before it is their equal; without aging it waits ten times as long and longer.
    """
    equal_s = 10 / aging
    bound_s = equal_s + SERVICE_S * (1 + (BACKLOG + 1) / SLOTS)
    stream = urgent_stream(12 * bound_s)
    assert equal_s <= waited_s(stream, policy="aging", aging=f"{aging}/s") <= bound_s
    assert waited_s(stream, policy="priority") > 10 * bound_s


# --- victims
# -----------------------------------------------------------------------------------------------------


def victim_of(history: History, candidates: list[int], so_far: SoFar) -> int:
    """By the engine's rule, of those that run, in the order of their admission."""
    load = history.load

    def left(i: int) -> int:
        each = load[i]
        return max(0, each.prompt - so_far.had[i]) + each.output - so_far.emitted[i]

    rules: dict[str, Callable[[int], tuple[float, ...]]] = {
        "last": lambda i: (candidates.index(i),),
        "most_remaining": lambda i: (left(i), -candidates.index(i)),
        "least_urgent": lambda i: (load[i].priority, load[i].at_s, candidates.index(i)),
        "fewest_emitted": lambda i: (-so_far.emitted[i], load[i].prompt, candidates.index(i)),
    }
    return max(candidates, key=rules[history.engine.victim])


@over(continuous(memory="paged", displaces=False, admit="tokens"))
def test_where_memory_runs_out_victims_go_by_their_rule(history: History) -> None:
    """One after the other, of those that run and have not gone yet; also of those that came in before decodes
    had their turn.
    """
    for turn, so_far in counted(history):
        candidates = [*turn.before.running, *turn.admitted]
        for victim in turn.preempted:
            assert victim == victim_of(history, candidates, so_far)
            candidates.remove(victim)


@over(continuous(memory="none", displaces=True, admit="tokens"))
def test_a_newcomer_takes_the_slot_of_the_rules_victim_among_the_less_urgent(history: History) -> None:
    """Each that came since the last step and finds no free slot, in order; nobody else loses one."""
    load = history.load
    for turn, so_far in counted(history):
        running, expected, placed = list(turn.before.running), [], []
        came = [each.id for each in turn.told if isinstance(each, Arrival)]
        for newcomer in (i for i in came if i in turn.before.queue):
            worse = [i for i in running if load[i].priority > load[newcomer].priority]
            if worse and len(running) >= history.engine.max_sequences:
                expected.append(victim := victim_of(history, worse, so_far))
                running.remove(victim)
                running.append(newcomer)
                placed.append(newcomer)
        assert turn.preempted == expected
        assert turn.admitted[: len(placed)] == placed


@over(continuous(memory="reserved", displaces=True) | continuous(memory="none", displaces=True))
def test_whoever_loses_its_slot_loses_it_to_a_newcomer(history: History) -> None:
    """One that came since the last step and is admitted in this one, more urgent than all who went for it."""
    load = history.load
    for turn in history.turns:
        came = [each.id for each in turn.told if isinstance(each, Arrival) and each.id in turn.admitted]
        for victim in turn.preempted:
            assert any(load[newcomer].priority < load[victim].priority for newcomer in came)


# --- held batches
# ------------------------------------------------------------------------------------------------

STARTED = ("rejected", "cancelled")


def batches(history: History) -> list[list[Turn]]:
    """The turns of each held batch."""
    found: list[list[Turn]] = []
    for turn in history.turns:
        if not turn.before.running:
            found.append([])
        found[-1].append(turn)
    return found


@over(held(), seen=STARTED)
def test_nobody_joins_or_leaves_a_batch_that_runs(history: History) -> None:
    """All come in its first step, with their prompts; a member that was cancelled keeps its place."""
    for first, *rest in batches(history):
        members = first.admitted
        assert [piece.id for piece in first.prefill] == members == first.formed.running
        for turn in rest:
            assert turn.formed.running == members
            assert turn.admitted == turn.prefill == []


@over(held(release="batch", max_wait="1s"), seen=STARTED)
def test_released_by_the_batch_all_answers_leave_at_its_end(history: History) -> None:
    """Those of all members that still want them."""
    for turns in batches(history):
        assert not any(turn.ended for turn in turns[:-1])
        gone = {each.id for each in history.cancels}
        assert turns[-1].ended == [i for i in turns[0].admitted if i not in gone]


@over(held(release="each", max_wait="1s"), seen=STARTED)
def test_released_each_an_answer_leaves_with_its_own_last_token(history: History) -> None:
    """However long its batch goes on."""
    emitted: Counter[int] = Counter()
    cancelled = {each.id for each in history.cancels}
    for turn in history.turns:
        emitted.update(turn.emits)
        last = {i for i in turn.emits if emitted[i] == history.load[i].output}
        assert set(turn.ended) <= last <= {*turn.ended, *cancelled}


@over(held(pad="none"), seen=STARTED)
def test_unpadded_prompts_are_as_long_as_they_are_and_who_ended_costs_nothing(history: History) -> None:
    """Each step decodes those that emit, and they attend to what they know; except in a step after which
    answers of a batch leave whose others were cancelled.
    """
    for turn, so_far in counted(history):
        assert all(piece.tokens == history.load[piece.id].prompt for piece in turn.prefill)
        if turn.emits and not turn.prefill:
            assert turn.decode == turn.emits
            assert turn.context_tokens == sum(history.load[i].prompt + so_far.emitted[i] for i in turn.decode)


@over(held(pad="batch") | held(pad="run"), seen=STARTED)
def test_padded_every_slot_is_computed_to_the_longest(history: History) -> None:
    """Prompts to the longest of the batch, or of all that were queued so far; the slots until the longest
    answer has ended, of the batch or of all so far, unless it was cancelled.
    """
    of_run, load = history.engine.pad == "run", history.load
    cancelled = {each.id for each in history.cancels}
    for turns in batches(history):
        told = [each for turn in history.turns[: history.turns.index(turns[0]) + 1] for each in turn.told]
        came = [each.id for each in told if isinstance(each, Arrival) and each.refused != each.id]
        members = turns[0].admitted
        peers = came if of_run else members
        longest = max(load[i].prompt for i in peers)
        assert {piece.tokens for piece in turns[0].prefill} == {longest}
        for done, turn in enumerate(turns[1:], 1):
            assert turn.decode == members
            assert turn.context_tokens == len(members) * (longest + done)
        if not cancelled & set(members):
            assert len(turns) == max(load[i].output for i in peers)


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
