"""What tells one named system from another: for every pair a small load, the first iteration in which the
two do different things, and the rule that makes it.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import combinations
from typing import Any, NamedTuple

import msgspec
import pytest

from loadgen import presets
from loadgen.engine import simulate
from loadgen.engine.trace import Iteration
from loadgen.knobs import Engine
from tests.engine.driving import Row, fixed, plan

Knobs = dict[str, Any]


class Setting(NamedTuple):
    """A load, and the sizes that all presets get there: what differs then is a rule and not a size.

    `budget`: in place of what a preset has as its budget and chunk, if it has any. `answer`: tokens after
    which answers end by themselves. Everybody has 8 slots, but for tutorial, which stays as it is.
    """

    rows: list[Row]
    kv_tokens: int = 4096
    budget: int | None = None
    answer: int | None = None

    def knobs(self, preset: str) -> Knobs:
        knobs = deepcopy(presets.document(preset)["engine"]) | {"cost": fixed("1s")}
        if preset != "tutorial":
            knobs["max_sequences"] = 8
        if knobs.get("kv"):
            knobs["kv"]["tokens"] = self.kv_tokens
        if self.budget is not None:
            knobs |= {key: self.budget for key in ("token_budget", "prefill_chunk") if knobs.get(key)}
        if self.answer is not None:
            knobs["eos"] = {"kind": "fixed", "tokens": self.answer}
        return knobs

    def trace(self, knobs: Knobs) -> list[Any]:
        """What was done when: each iteration less its counts of slots, blocks and budget."""
        seen: list[Iteration] = []
        engine = Engine.model_validate(knobs)
        ran = simulate(
            plan(self.rows), engine, run_id="r", ignore_eos=self.answer is None, observe=seen.append
        )
        assert list(ran)
        counts = {"unused_tokens", "kv_blocks", "slots", "used_slots"}
        return [{k: v for k, v in msgspec.to_builtins(each).items() if k not in counts} for each in seen]


class Rule(NamedTuple):
    """`says`: what the two do differently in `setting`, first in `iteration`. `knobs`: of which the rule is
    made; with those of the second, the first does there what the second does. `pairs`: the first of each, and
    all its seconds.
    """

    says: str
    setting: Setting
    iteration: int
    knobs: tuple[str, ...]
    pairs: dict[str, str]


A_PROMPT_OF_TEN = Setting([(0, 10, 2)])
A_THIRD_COMES = Setting([(0, 10, 8), (0, 10, 8), (1.5, 10, 3)])
FIVE_AT_ONCE = Setting([(0, 10, 3)] * 5)
THREE_WHO_ASK_FOR_MUCH = [(0.0, 40, 100)] * 3  # 140 positions each

RULES = [
    Rule(
        "A batch waits to fill, a second in hf-static, 100 us in triton-dynamic; or starts at once",
        A_PROMPT_OF_TEN,
        0,
        ("batching", "max_wait"),
        {
            "fastertransformer": "hf-static",
            "hf-static": "orca orca-max orca-oracle orca-pow2 sarathi sglang tgi triton-dynamic"
            " trtllm-max-utilization trtllm-no-evict trtllm-static vllm-2023 vllm-v1",
            "orca-max": "triton-dynamic",
        },
    ),
    Rule(
        "Of five that wait, a preferred size of four starts; the others start all five",
        FIVE_AT_ONCE,
        0,
        ("batching", "preferred_sizes"),
        {
            "fastertransformer": "triton-dynamic",
            "orca": "triton-dynamic",
            "orca-oracle": "triton-dynamic",
            "orca-pow2": "triton-dynamic",
            "triton-dynamic": "sarathi sglang trtllm-max-utilization trtllm-no-evict vllm-2023 vllm-v1",
            "tgi": "triton-dynamic",
            "trtllm-static": "triton-dynamic",
        },
    ),
    Rule(
        "A continuous batch computes the newcomer's prompt beside its decodes; nobody joins a held batch",
        A_THIRD_COMES,
        2,
        ("batching",),
        {
            "fastertransformer": "orca orca-oracle orca-pow2 sarathi trtllm-max-utilization trtllm-no-evict"
            " vllm-2023 vllm-v1",
            "trtllm-static": "orca orca-oracle orca-pow2 sarathi trtllm-max-utilization trtllm-no-evict"
            " vllm-2023 vllm-v1",
        },
    ),
    Rule(
        "The newcomer's prompt is computed at once, in a step of its own; nobody joins a held batch",
        A_THIRD_COMES,
        2,
        ("batching", "order"),
        {"fastertransformer": "sglang tgi", "trtllm-static": "sglang tgi"},
    ),
    Rule(
        "An answer leaves as it ends, or with its batch",
        Setting([(0, 10, 6), (0, 10, 2)]),
        1,
        ("release",),
        {"fastertransformer": "trtllm-static"},
    ),
    Rule(
        "The tutorial cuts a prompt after three tokens",
        A_PROMPT_OF_TEN,
        0,
        ("prefill_chunk", "token_budget"),
        {
            "tutorial": "orca orca-max orca-oracle orca-pow2 sarathi sglang tgi trtllm-max-utilization"
            " trtllm-no-evict vllm-2023 vllm-v1"
        },
    ),
    Rule(
        "The tutorial cuts a prompt after three tokens; a held batch computes all prompts in its first step",
        A_PROMPT_OF_TEN,
        0,
        ("batching", "prefill_chunk"),
        {
            "fastertransformer": "tutorial",
            "hf-static": "tutorial",
            "triton-dynamic": "tutorial",
            "trtllm-static": "tutorial",
        },
    ),
    Rule(
        "A prompt is computed in a step of its own, in which decodes pause, or beside them",
        Setting([(0, 10, 30), (1.5, 10, 2)]),
        2,
        ("order", "prefill_chunk", "waiting_served_ratio"),
        {
            "orca": "sglang tgi",
            "orca-max": "sglang tgi",
            "orca-oracle": "sglang tgi",
            "orca-pow2": "sglang tgi",
            "sarathi": "sglang tgi",
            "sglang": "trtllm-max-utilization trtllm-no-evict vllm-2023 vllm-v1",
            "trtllm-max-utilization": "tgi",
            "trtllm-no-evict": "tgi",
            "vllm-2023": "tgi",
            "vllm-v1": "tgi",
        },
    ),
    Rule(
        "One prompt that waits may interrupt five decodes at once; in tgi 0.3 times as many as run must wait",
        Setting([(0, 10, 30)] * 5 + [(1.5, 10, 2)]),
        2,
        ("waiting_served_ratio",),
        {"sglang": "tgi"},
    ),
    Rule(
        "Of two prompts of 600 beside a decode, under a budget of 1024, the second is cut to what is left; or"
        " prompts are computed whole, and it waits where there is a budget",
        Setting([(0, 10, 20), (2.5, 600, 4), (2.5, 600, 4)], budget=1024),
        3,
        ("order", "prefill_chunk"),
        {
            "sarathi": "orca-max trtllm-max-utilization trtllm-no-evict vllm-2023",
            "vllm-v1": "orca-max",
            "trtllm-max-utilization": "vllm-v1",
            "trtllm-no-evict": "vllm-v1",
            "vllm-2023": "vllm-v1",
        },
    ),
    Rule(
        "A newcomer whose prompt would fill the last free block comes in, or must leave 1 % of all free",
        Setting([(0, 1300, 40), (0, 1300, 40), (0.5, 1472, 1)], budget=4096),
        1,
        ("kv.watermark",),
        {"sarathi": "vllm-v1", "trtllm-max-utilization": "vllm-2023"},
    ),
    Rule(
        "Each reserves a context of 2048 positions, and two of five come in; or what it needs, and all do",
        FIVE_AT_ONCE,
        0,
        ("kv.reserve", "max_length", "preempt"),
        {
            "fastertransformer": "orca-max",
            "orca": "orca-max",
            "orca-max": "orca-oracle orca-pow2 trtllm-no-evict trtllm-static",
            "trtllm-max-utilization": "orca-max",
            "vllm-2023": "orca-max",
        },
    ),
    Rule(
        "All that was asked for is reserved, and two come in; or what will be answered, and three do",
        Setting(THREE_WHO_ASK_FOR_MUCH, kv_tokens=400, answer=5),
        0,
        ("kv.reserve", "kv.buddy"),
        {
            "orca": "orca-oracle orca-pow2",
            "orca-oracle": "trtllm-no-evict",
            "orca-pow2": "trtllm-no-evict",
        },
    ),
    Rule(
        "Answers of 65 reserve 128, 256 with their prompts, and one comes in; or 128 in all, and three do",
        Setting(THREE_WHO_ASK_FOR_MUCH, kv_tokens=400, answer=65),
        0,
        ("kv.reserve", "kv.buddy"),
        {"orca-oracle": "orca-pow2"},
    ),
    Rule(
        "Room for an answer is reserved, and not all three come in; or only the prompt must fit, and all do",
        Setting(THREE_WHO_ASK_FOR_MUCH, kv_tokens=400),
        0,
        ("kv.reserve", "kv.buddy", "preempt"),
        {
            "orca": "sarathi trtllm-max-utilization vllm-2023 vllm-v1",
            "sarathi": "orca-oracle orca-pow2",
            "trtllm-max-utilization": "orca-oracle orca-pow2 trtllm-no-evict",
            "vllm-2023": "orca-oracle orca-pow2",
            "vllm-v1": "orca-oracle orca-pow2",
            "trtllm-no-evict": "vllm-2023",
        },
    ),
    Rule(
        "Three times 65 positions fit into 256, or, in blocks of 32, only two times do",
        Setting([(0, 10, 55)] * 3, kv_tokens=256),
        0,
        ("kv.block_tokens",),
        {"orca": "trtllm-no-evict"},
    ),
]

PAIRS = [
    (first, second, rule)
    for rule in RULES
    for first, seconds in rule.pairs.items()
    for second in seconds.split()
]


def laid_over(first: Knobs, second: Knobs, names: tuple[str, ...]) -> Knobs:
    """The first's knobs, those of `names` as the second has them."""
    knobs = deepcopy(first)
    for name in names:
        where, there = knobs, second
        if name.startswith("kv."):
            name = name.removeprefix("kv.")
            where, there = knobs.setdefault("kv", {"tokens": second["kv"]["tokens"]}), second["kv"]
        where.pop(name, None)
        where |= {name: there[name]} if name in there else {}
    return knobs


def test_every_pair_of_presets_is_told_apart() -> None:
    """Each pair is in the table once."""
    told = sorted(tuple(sorted((first, second))) for first, second, _ in PAIRS)
    assert told == sorted(combinations(presets.names(), 2))


@pytest.mark.parametrize(
    ("first", "second", "rule"), PAIRS, ids=[f"{first}-{second}" for first, second, _ in PAIRS]
)
def test_two_presets_first_differ_where_the_rule_says_and_by_its_knobs(
    first: str, second: str, rule: Rule
) -> None:
    """Both do the same before that iteration, and something else in it; and the first with the rule's knobs
    as the second has them does what the second does.
    """
    knobs, others = rule.setting.knobs(first), rule.setting.knobs(second)
    one, other = rule.setting.trace(knobs), rule.setting.trace(others)
    assert one[: rule.iteration] == other[: rule.iteration]
    assert one[rule.iteration] != other[rule.iteration], rule.says
    same = rule.setting.trace(laid_over(knobs, others, rule.knobs))
    assert same[: rule.iteration + 1] == other[: rule.iteration + 1], rule.says
