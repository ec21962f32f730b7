"""Named systems' knobs: every file holds what it must, and knobs are laid over it by one rule."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from loadgen import presets
from loadgen.engine import simulate
from loadgen.knobs import Engine, FixedCost, RooflineCost
from loadgen.scenario import Scenario, ScenarioError, build, parse
from loadgen.workload import draw

LOAD = "load: {arrivals: {kind: burst}, num_requests: 1}\n"
NAMED = {
    *("hf-static", "fastertransformer", "triton-dynamic", "orca", "orca-max", "orca-pow2", "orca-oracle"),
    *("vllm-2023", "vllm-v1", "sarathi", "tgi", "sglang"),
    *("trtllm-no-evict", "trtllm-max-utilization", "trtllm-static", "tutorial"),
}


def engine(name: str, **knobs: Any) -> Engine:
    return Engine.model_validate({"preset": name, **knobs})


def scenario(text: str) -> Scenario:
    return parse(LOAD + text, "own.yaml")


def test_every_promised_system_is_there() -> None:
    """Sixteen files, no more and no fewer."""
    assert set(presets.names()) == NAMED


@pytest.mark.parametrize("name", presets.names())
class TestEachFile:
    def test_says_what_it_is_and_where_it_was_read(self, name: str) -> None:
        """In five keys: a line, a source, a date, sentences that end, and knobs."""
        found = presets.document(name)
        assert list(found) == ["about", "source", "date", "rules", "engine"]
        assert len(found["about"]) <= 54  # one line of a list at 80 columns
        assert found["source"]
        assert re.fullmatch(r"(read in )?20\d\d-(0[1-9]|1[0-2])", found["date"])
        assert len(found["rules"]) >= 4
        assert all(isinstance(rule, str) and rule.endswith(".") for rule in found["rules"])

    def test_is_an_engine_by_itself(self, name: str) -> None:
        """Nothing else need be given, and the engine has the file's values."""
        found = engine(name).model_dump(mode="json", by_alias=True)
        assert presets.laid(found, presets.document(name)["engine"]) == found | {"preset": name}

    def test_names_no_hardware(self, name: str) -> None:
        """Presets are policy: the GPU and the model are the user's, the tutorial's step apart."""
        assert set(presets.document(name)["engine"]) & {"cost", "jitter"} == (
            {"cost"} if name == "tutorial" else set()
        )

    def test_comes_back_from_its_own_dump(self, name: str) -> None:
        """What run.json keeps is the same engine again."""
        whole = engine(name, max_queue=3)
        assert Engine.model_validate(whole.model_dump(mode="json", by_alias=True)) == whole


def test_no_two_presets_are_the_same_engine() -> None:
    """Each differs from each other in a knob that is not its name."""
    policies = {repr(engine(name).model_copy(update={"preset": None})) for name in NAMED}
    assert len(policies) == len(NAMED)


def test_tutorial_is_the_teaching_scheduler() -> None:
    """Two slots, a queue of two, six tokens a step, chunks of three, a victim that keeps what it has."""
    t = engine("tutorial")
    assert (t.max_sequences, t.max_queue, t.token_budget, t.prefill_chunk) == (2, 2, 6, 3)
    assert (t.order, t.admit, t.preempt, t.victim, t.restore) == (
        *("decode_first", "slot", "priority", "most_remaining", "keep"),
    )
    assert t.kv is None
    assert t.cost == FixedCost(kind="fixed", step="1s")


def test_knobs_beside_a_preset_win_and_groups_keep_their_other_keys() -> None:
    """A group is laid over key by key."""
    mine = engine("vllm-2023", max_sequences=7, kv={"block_tokens": 32})
    assert (mine.max_sequences, mine.token_budget) == (7, 2560)
    assert mine.kv is not None
    assert (mine.kv.block_tokens, mine.kv.watermark) == (32, 0.01)


def test_null_takes_a_presets_group_away() -> None:
    """No memory to run out, as with no preset."""
    assert engine("tgi", kv=None).kv is None


def test_a_cost_of_another_kind_replaces_a_presets() -> None:
    """A roofline over the tutorial's fixed step keeps nothing of it."""
    assert engine("tutorial", cost={"kind": "roofline"}).cost == RooflineCost()


def test_a_cost_without_a_kind_changes_the_one_below() -> None:
    """It is the preset's, with one constant changed."""
    assert engine("tutorial", cost={"step": "2s"}).cost == FixedCost(kind="fixed", step="2s")


def test_what_is_laid_over_leaves_the_preset_as_it_was() -> None:
    """Another engine of the same preset sees none of it."""
    before = repr(presets.document("sglang"))
    engine("sglang", kv={"expected_share": {"steps": 5}})
    assert repr(presets.document("sglang")) == before


def test_an_unknown_preset_is_a_mistake_at_its_line() -> None:
    """With its key path and the nearest name."""
    with pytest.raises(ScenarioError) as refused:
        scenario("engine:\n  preset: vlm-v1\n")
    assert str(refused.value).startswith(
        "own.yaml:3: engine.preset: no preset 'vlm-v1'; did you mean vllm-v1? known: fastertransformer,"
    )


def test_a_preset_that_is_no_text_is_a_mistake_at_its_line() -> None:
    """As any other knob."""
    with pytest.raises(ScenarioError, match=r"own.yaml:2: engine.preset: must be text, not 3"):
        scenario("engine: {preset: 3}\n")


@pytest.mark.parametrize("name", sorted(NAMED - {"tutorial"}))
def test_memory_beside_a_cost_without_a_gpu_must_be_given(name: str) -> None:
    """A fixed step says nothing of memory, and the error names the key that does."""
    fixed = {"kind": "fixed", "step": "1ms"}
    if engine(name).kv is None:
        assert engine(name, cost=fixed).kv is None
        return
    with pytest.raises(ValidationError, match=r"kv.tokens is needed: a fixed cost has no GPU"):
        engine(name, cost=fixed)
    assert engine(name, cost=fixed, kv={"tokens": 9000}).kv is not None


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_preset_serves_a_load_to_its_end(name: str) -> None:
    """Forty requests of mixed lengths, at a rate that the tutorial's queue of two can take."""
    load = {
        "arrivals": {"kind": "poisson", "rate": "0.05/s"},
        "num_requests": 40,
        "prompt_tokens": {"kind": "uniform", "min": 1, "max": 12},
        "output_tokens": {"kind": "uniform", "min": 1, "max": 6},
    }
    asked = build({"engine": {"preset": name}, "load": load})
    records = list(simulate(draw(asked), asked.engine, run_id="run"))
    assert [r.outcome for r in records if r.phase != "tail"] == ["ok"] * 40


class TestVariants:
    """A comparison's sides: the scenario's own knobs lie over whatever preset a side names."""

    TEXT = """\
engine: {cost: {kind: roofline, gpu: h100-80gb, model: llama-3-8b}, max_sequences: 8, kv: {utilization: 0.5},
         preempt: memory}
variants:
  plain: {}
  v1: {engine: {preset: vllm-v1, kv: {block_tokens: 32}, cost: {overhead: 1ms}}}
  max: {engine: {preset: trtllm-max-utilization, cost: {kind: fixed, step: 1ms}, kv: {tokens: 5000}}}
"""

    def side(self, name: str) -> Engine:
        found = scenario(self.TEXT).variants[name].engine
        assert found is not None
        return found

    def test_the_scenarios_knobs_lie_over_the_presets(self) -> None:
        """Eight sequences, where vLLM has 256; the preset's order, which the scenario does not name."""
        v1 = self.side("v1")
        assert (v1.max_sequences, v1.order) == (8, "list")

    def test_groups_are_laid_over_by_key(self) -> None:
        """Memory from both, and a cost of the same kind with one constant changed."""
        v1 = self.side("v1")
        assert v1.kv is not None
        assert (v1.kv.utilization, v1.kv.block_tokens) == (0.5, 32)
        assert v1.cost == RooflineCost(gpu="h100-80gb", model="llama-3-8b", overhead="1ms")

    def test_a_cost_of_another_kind_stands_alone(self) -> None:
        """No key of the roofline is left in it."""
        assert self.side("max").cost == FixedCost(kind="fixed", step="1ms")
