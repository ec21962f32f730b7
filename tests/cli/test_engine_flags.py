"""Layers of knobs from a scenario, flags and --set, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.cli.engine_flags import assignment, cost, layered, of_json, written
from loadgen.knobs import FixedCost, RooflineCost
from loadgen.scenario import ScenarioError

OWN = """\
load: {arrivals: {kind: burst}, num_requests: 1}
engine: {preset: vllm-v1, max_sequences: 8, kv: {utilization: 0.5}, cost: {kind: roofline, gpu: h100-80gb}}
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.yaml").write_text(OWN)
    return str(tmp_path / "own.yaml")


def test_another_preset_goes_under_the_scenarios_knobs_and_leaves_nothing_of_its_own(own: str) -> None:
    """The eight slots are the scenario's; budget, order and reservation are the new preset's."""
    engine = layered(written(own), {"preset": "tgi"})
    assert (engine.preset, engine.max_sequences) == ("tgi", 8)
    assert (engine.token_budget, engine.order) == (4096, "prefill_first")
    assert engine.kv is not None
    assert (engine.kv.utilization, engine.kv.reserve) == (0.5, "completion")


def test_later_layers_win_and_groups_are_laid_over_by_key(own: str) -> None:
    """A flag over the file, --set over the flag."""
    engine = layered(
        written(own),
        {"max_queue": 5, "cost": cost(None, None, "llama-3-8b")},
        assignment("max_queue=null"),
        assignment("cost.overhead=2ms"),
        assignment("kv.block_tokens=32"),
    )
    assert engine.max_queue is None
    assert engine.cost == RooflineCost(gpu="h100-80gb", model="llama-3-8b", overhead="2ms")
    assert engine.kv is not None
    assert (engine.kv.utilization, engine.kv.block_tokens) == (0.5, 32)


def test_a_fixed_step_takes_the_rooflines_place() -> None:
    """--step over a scenario's GPU, which says nothing any more."""
    engine = layered({"cost": {"kind": "roofline", "gpu": "h100-80gb"}}, {"cost": cost("5ms", None, None)})
    assert engine.cost == FixedCost(kind="fixed", step="5ms")


def test_no_scenario_and_no_flags_are_the_default_engine() -> None:
    """As one whose scenario names no engine."""
    assert layered(written(None)) == layered({})


@pytest.mark.parametrize(
    ("word", "knobs"),
    [
        ("max_queue=3", {"max_queue": 3}),
        ("jitter.step=0.1", {"jitter": {"step": 0.1}}),
        ("kv=null", {"kv": None}),
        ("preferred_sizes=[4, 8]", {"preferred_sizes": [4, 8]}),
        ("faults.fake_streaming=true", {"faults": {"fake_streaming": True}}),
        ("max_wait=5ms", {"max_wait": "5ms"}),
        ('model_name="007"', {"model_name": "007"}),
        ("kv={tokens: 9}", {"kv": {"tokens": 9}}),
        ("model_name=a=b", {"model_name": "a=b"}),
    ],
)
def test_a_value_is_read_as_in_yaml(word: str, knobs: object) -> None:
    """Numbers, words, lists and groups, under a key with dots."""
    assert assignment(word) == knobs


@pytest.mark.parametrize("word", ["max_queue", "=3", "max_queue=", "max_queue=3\nseed: 4", ""])
def test_an_assignment_without_a_key_or_a_value_is_refused(word: str) -> None:
    """With how to write one, and what was written."""
    with pytest.raises(ScenarioError) as refused:
        assignment(word)
    assert str(refused.value).startswith(
        "command line: --set wants KEY=VALUE, as in kv.block_tokens=16, not "
    )
    assert "\n" not in str(refused.value)


def test_a_value_that_is_no_yaml_is_refused_with_its_key() -> None:
    """And the reader's own reason."""
    with pytest.raises(ScenarioError, match=r"command line: --set kv: not YAML: "):
        assignment("kv={")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("kv.block_tokensx=1", "engine.kv.block_tokensx: unknown key, did you mean block_tokens?"),
        ("max_sequences.x=1", "engine.max_sequences: must be a whole number, not keys and values"),
        ("preset=vlm-v1", "engine.preset: no preset 'vlm-v1'; did you mean vllm-v1?"),
    ],
)
def test_a_wrong_knob_is_named_with_its_key_path(word: str, said: str) -> None:
    """As in a scenario file, without a line."""
    with pytest.raises(ScenarioError) as refused:
        layered(assignment(word))
    assert str(refused.value).startswith(f"command line: {said}")


def test_a_wrong_scenario_is_refused_at_its_line(tmp_path: Path) -> None:
    """Before any flag is looked at."""
    (tmp_path / "bad.yaml").write_text(OWN.replace("max_sequences", "max_sequence"))
    with pytest.raises(ScenarioError, match=r"bad.yaml:2: engine.max_sequence: unknown key"):
        written(str(tmp_path / "bad.yaml"))


def test_a_step_and_a_roofline_exclude_each_other() -> None:
    """One cost at a time."""
    with pytest.raises(ScenarioError, match="--step, or the roofline's --gpu and --model-profile, not both"):
        cost("1ms", "h100-80gb", None)


@pytest.mark.parametrize("text", ["{", "[]", "3", "[" * 30_000])
def test_an_engine_that_is_no_json_object_is_refused(text: str) -> None:
    """In one line."""
    with pytest.raises(ScenarioError, match="command line: --engine "):
        of_json(text)
