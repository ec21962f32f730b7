"""What a step costs, against arithmetic by hand and kernels that others measured."""

from __future__ import annotations

from math import hypot

import pytest

from loadgen.engine.batching import Chunk, Sequence, Step
from loadgen.engine.cost import GPUS, MODELS, profiles, roofline, step_cost
from loadgen.knobs import RooflineCost
from loadgen.scenario import ScenarioError
from tests.engine.driving import fixed


def decoding(slots: int, context_tokens: int = 0) -> Step:
    sequences = tuple(Sequence(i, 1, 1) for i in range(slots))
    return Step(prefill=(), decode=sequences, emits=sequences, context_tokens=context_tokens)


def test_a_fixed_cost_is_a_step_plus_so_much_a_token() -> None:
    """10 ms and 1 ms a token: 3 decodes and chunks of 5 and 2 tokens take 20 ms."""
    chunks = (Chunk(Sequence(8, 5, 1), 0, 5), Chunk(Sequence(9, 5, 1), 3, 2))
    step = Step(prefill=chunks, decode=decoding(3).decode, emits=(), context_tokens=99)
    assert step_cost(fixed("10ms", "1ms"))(step) == pytest.approx(0.020)


@pytest.mark.parametrize(
    ("gpu", "model", "floor_ms"),
    [("a100-40gb", "opt-13b", 22.0), ("a100-80gb", "llama-3-8b", 10), ("h100-80gb", "llama-3-8b", 6)],
)
def test_a_decode_step_cannot_be_faster_than_reading_the_weights(
    gpu: str, model: str, floor_ms: float
) -> None:
    """Published floors: OPT-13B's 25.7 GB at 75 % of 1.555 TB/s take 22.0 ms; Llama-3-8B about 10 and 6
    ms."""
    cost = roofline(GPUS[gpu], MODELS[model], overhead_s=0.0)
    assert cost(decoding(1)) * 1e3 == pytest.approx(floor_ms, abs=0.5 if floor_ms != 22.0 else 0.05)


def test_the_roofline_adds_up_as_by_hand() -> None:
    """OPT-13B on an A100 40 GB: 2 decodes over 1,000 positions beside a chunk of 100 tokens after 400."""
    step = Step(
        prefill=(Chunk(Sequence(2, 512, 1), 400, 100),),
        decode=decoding(2).decode,
        emits=(),
        context_tokens=1000,
    )
    weights_s = 25.7e9 / (0.75 * 1.555e12)
    flops_s = 2 * 12.85e9 * 102 / (0.7 * 312e12)
    kv_s = 1000 * 819_200 / (0.75 * 1.555e12)
    attention_s = 4 * 40 * 5120 * 100 * (400 + 50) / (0.7 * 312e12)
    by_hand_s = hypot(weights_s, flops_s) + kv_s + attention_s + 0.005
    assert step_cost(RooflineCost())(step) == pytest.approx(by_hand_s, rel=1e-12)


# Milliseconds of one Llama-2-7B layer's projections and MLP on an A100 80 GB, as Vidur's profiling measured
# them.
MEASURED_LAYER_MS = {
    1: 0.266,
    32: 0.273,
    64: 0.278,
    128: 0.352,
    256: 0.503,
    512: 0.953,
    1024: 1.96,
    2048: 3.83,
}


@pytest.mark.parametrize(("tokens", "layer_ms"), MEASURED_LAYER_MS.items())
def test_the_roofline_is_within_a_tenth_of_measured_kernels(tokens: int, layer_ms: float) -> None:
    """Of the model's linear parts: its 32 layers hold all but the output projection of the parameters
    read."""
    model = MODELS["llama-2-7b"]
    layers_share = 1 - 32_000 * 4096 / model.parameters
    seconds = roofline(GPUS["a100-80gb"], model, overhead_s=0.0)(decoding(tokens)) * layers_share
    assert seconds * 1e3 / 32 == pytest.approx(layer_ms, rel=0.1)


def test_key_and_value_bytes_follow_from_the_models_shapes() -> None:
    """2 x layers x KV heads x head size x 2 bytes; OPT-13B has 40 heads of 128, Llama-3-8B 8 of 128."""
    assert MODELS["opt-13b"].kv_bytes_per_token == 2 * 40 * 40 * 128 * 2
    assert MODELS["llama-3-8b"].kv_bytes_per_token == 2 * 32 * 8 * 128 * 2
    assert MODELS["llama-3-70b"].kv_bytes_per_token == 2 * 80 * 8 * 128 * 2


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (RooflineCost(gpu="a100"), "engine.cost.gpu: no profile of 'a100'"),
        (RooflineCost(model="opt13b"), "did you mean opt-13b?"),
        (RooflineCost(model="gpt-9"), "known: opt-13b, llama-2-7b"),
    ],
)
def test_an_unknown_profile_is_the_users_mistake_and_names_the_known_ones(
    cost: RooflineCost, words: str
) -> None:
    """ScenarioError with the key, the value, a near name and all names."""
    with pytest.raises(ScenarioError) as caught:
        step_cost(cost)
    assert words in str(caught.value)


def test_the_defaults_have_profiles() -> None:
    """Every listed name can be used, and so can a scenario's default."""
    names = profiles()
    for gpu in names["gpu"]:
        for model in names["model"]:
            assert step_cost(RooflineCost(gpu=gpu, model=model))(decoding(1)) > 0.005
    assert RooflineCost().gpu in names["gpu"]
    assert RooflineCost().model in names["model"]
