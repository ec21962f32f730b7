"""GPUs and models as data: what they say must follow from shapes and add up to published figures."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from loadgen.engine.profiles import gpu, gpus, kv_tokens, model, models
from loadgen.knobs import Engine
from loadgen.scenario import ScenarioError


class Shape(NamedTuple):
    """What the profile does not hold of a model's config.json."""

    heads: int
    ffn: int
    vocabulary: int
    kind: str


SHAPES = {
    "opt-13b": Shape(40, 20_480, 50_272, "opt"),
    "llama-2-7b": Shape(32, 11_008, 32_000, "llama"),
    "llama-2-13b": Shape(40, 13_824, 32_000, "llama"),
    "llama-2-70b": Shape(64, 28_672, 32_000, "llama"),
    "llama-3-8b": Shape(32, 14_336, 128_256, "llama"),
    "llama-3-70b": Shape(64, 28_672, 128_256, "llama"),
    "mistral-7b": Shape(32, 14_336, 32_000, "llama"),
    "qwen-2.5-7b": Shape(28, 18_944, 152_064, "qwen"),
    "qwen-2.5-32b": Shape(40, 27_648, 152_064, "qwen"),
}
POSITIONS = 2050  # of OPT: 2048 and two that are never used


def paged(max_length: int | None = None, kv: dict[str, Any] | None = None, **cost: Any) -> Engine:
    told = {"kind": "roofline", **cost}
    return Engine.model_validate(
        {"kv": kv or {}, "preempt": "memory", "cost": told, "max_length": max_length}
    )


def counted(name: str) -> tuple[int, int]:
    """All parameters, matrix by matrix, and those that are only looked up."""
    shape, told = SHAPES[name], models()[name]
    layers, hidden, kv_heads = int(told.layers.value), int(told.hidden.value), int(told.kv_heads.value)
    kv_width = kv_heads * hidden // shape.heads
    embedding = shape.vocabulary * hidden
    projections = 2 * hidden * hidden + 2 * hidden * kv_width
    if shape.kind == "opt":
        biases = 4 * hidden + shape.ffn + hidden
        layer = projections + 2 * hidden * shape.ffn + biases + 2 * 2 * hidden
        return layers * layer + 2 * hidden + embedding + POSITIONS * hidden, POSITIONS * hidden
    biases = hidden + 2 * kv_width if shape.kind == "qwen" else 0
    layer = projections + 3 * hidden * shape.ffn + biases + 2 * hidden
    return layers * layer + hidden + 2 * embedding, embedding


@pytest.mark.parametrize("name", models())
def test_a_models_parameters_are_those_of_its_matrices(name: str) -> None:
    """Counted from the shapes, biases and norms included, to the last one."""
    told = model(name)
    assert (told.parameters.value, told.lookup_parameters.value) == counted(name)


@pytest.mark.parametrize(
    ("name", "billions", "kv_bytes"),
    [
        ("opt-13b", 12.85, 819_200),
        ("llama-2-7b", 6.74, 524_288),
        ("llama-2-13b", 13.02, 819_200),
        ("llama-3-8b", 8.03, 131_072),
        ("llama-3-70b", 70.6, 327_680),
        ("mistral-7b", 7.24, 131_072),
    ],
)
def test_sizes_are_the_published_ones(name: str, billions: float, kv_bytes: int) -> None:
    """Parameters to three digits; KV of a token to the byte."""
    assert model(name).parameters.value / 1e9 == pytest.approx(billions, rel=1e-3)
    assert model(name).kv_bytes_per_token == kv_bytes


@pytest.mark.parametrize("name", models())
def test_heads_share_the_hidden_units(name: str) -> None:
    """Query heads times the head size are the hidden units, as the attention's arithmetic assumes."""
    assert SHAPES[name].heads * model(name).head_size.value == model(name).hidden.value


def test_every_constant_names_its_source_and_only_measured_shares_are_fitted() -> None:
    """Shares of GPUs that nobody measured are guesses, and say so."""
    for profile in (*gpus().values(), *models().values()):
        for name, constant in profile.constants():
            assert constant.value > 0, (profile.title, name)
            assert len(constant.source) > 5, (profile.title, name)
    fitted = {name for name, told in gpus().items() if told.flops_share.status == "fitted"}
    assert fitted == {"a100-80gb", "h100-80gb"}
    assert all(told.bandwidth_share.status == told.flops_share.status for told in gpus().values())


@pytest.mark.parametrize(("name", "megahertz"), [("a100-40gb", 1215), ("a100-80gb", 1593)])
def test_bandwidth_follows_from_the_memorys_clock(name: str, megahertz: int) -> None:
    """5,120 bits, twice a clock: the A100's memories, by their clocks."""
    assert gpu(name).bandwidth_bytes_per_s.value == pytest.approx(5120 / 8 * 2 * megahertz * 1e6, rel=1e-3)


def test_a_profile_is_told_in_a_line() -> None:
    """Its title, what matters of it, and whether its shares are guessed."""
    assert gpu("l4").line == (
        "NVIDIA L4 24 GB: 0.3 TB/s and 121 TFLOPS, of which kernels reach 75% and 70% (guessed)"
    )
    assert model("llama-3-8b").line == "Llama-3-8B: 8.03B parameters, 32 layers, KV of 128 KiB a token"


def test_names_are_listed_by_what_they_name() -> None:
    """The knob's name, and the profiles in the order of the files."""
    assert list(gpus())[:4] == ["a100-40gb", "a100-80gb", "h100-80gb", "h200"]
    assert next(iter(models())) == "opt-13b"


def test_a_name_begun_is_taken_for_the_one_that_it_begins() -> None:
    """h100 is nearer to h200 by its letters."""
    with pytest.raises(ScenarioError, match="did you mean h100-80gb"):
        gpu("h100")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gpu("a100"), "engine.cost.gpu: no profile of 'a100'; did you mean a10"),
        (lambda: model("opt13b"), "engine.cost.model: no profile of 'opt13b'; did you mean opt-13b?"),
        (lambda: model("gpt-9"), "known: opt-13b, llama-2-7b"),
    ],
)
def test_an_unknown_name_is_the_users_mistake_and_names_the_known_ones(call: Any, words: str) -> None:
    """ScenarioError with the key, the value, a near name and all names."""
    with pytest.raises(ScenarioError) as caught:
        call()
    assert words in str(caught.value)


def test_weights_leave_about_15_700_positions_of_an_a100_to_opt_13b() -> None:
    """The vLLM paper: 12 GB and 15.7K slots. Ours: 36 GiB less 25.7 GB, at 800 KiB each."""
    assert kv_tokens(paged(gpu="a100-40gb", model="opt-13b")) == 15_805
    assert (36 * 2**30 - 2 * 12_853_473_280) // 819_200 == 15_805


def test_kv_positions_are_as_told_or_none_where_memory_is_unlimited() -> None:
    """Neither needs a GPU."""
    fixed = {"kind": "fixed", "step": "10ms"}
    told = {"kv": {"tokens": 640}, "preempt": "memory", "cost": fixed}
    assert kv_tokens(Engine.model_validate(told)) == 640
    assert kv_tokens(Engine.model_validate({"cost": fixed})) is None


def test_more_gpus_and_more_of_their_memory_leave_more_room() -> None:
    """Two A100s hold Llama-3-70B at 0.9, by hand: (154.6 - 141.1) GB / 320 KiB."""
    two = kv_tokens(paged(gpu="a100-80gb", model="llama-3-70b", gpus=2))
    assert two == int((0.9 * 2 * 80 * 2**30 - 2 * 70_553_706_496) // 327_680) == 41_233
    assert (
        kv_tokens(paged(gpu="h200", model="opt-13b", kv={"utilization": 0.5}))
        == (0.5 * 141 * 2**30 - 2 * 12_853_473_280) // 819_200
    )


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (paged(gpu="h100-80gb", model="llama-3-70b"), ("141.1 GB", "0.9 of 1 x 85.9 GB", "gpus: 2")),
        (paged(gpu="l4", model="llama-3-70b"), ("is 23.2 GB", "gpus: 7")),
        (paged(gpu="a100-40gb", model="opt-13b", max_length=20_000), ("42.1 GB", "gpus: 2")),
    ],
)
def test_memory_too_small_for_one_request_is_refused(engine: Engine, words: tuple[str, ...]) -> None:
    """The arithmetic is told, and how many GPUs would do."""
    with pytest.raises(ScenarioError) as caught:
        kv_tokens(engine)
    for word in words:
        assert word in str(caught.value)
    gpus_needed = int(str(caught.value).rsplit(": ", 1)[1])
    assert isinstance(engine.cost.model_dump()["gpus"], int)
    enough = engine.model_copy(update={"cost": engine.cost.model_copy(update={"gpus": gpus_needed})})
    assert (kv_tokens(enough) or 0) >= (engine.max_length or 16)
