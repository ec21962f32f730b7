"""What a step costs in seconds: a fixed time, or a roofline of a GPU and a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import hypot
from typing import TypeVar

from loadgen.engine.batching import Step
from loadgen.knobs import Cost, FixedCost
from loadgen.scenario import ScenarioError

_Profile = TypeVar("_Profile")

StepCost = Callable[[Step], float]
"""Seconds that a step takes."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peak memory bandwidth and dense 16-bit arithmetic, and the share of each that real kernels reach."""

    bandwidth_bytes_per_s: float
    flops: float
    bandwidth_share: float
    flops_share: float


@dataclass(frozen=True, slots=True)
class Model:
    """A dense decoder in 16-bit weights. `parameters` are those that a token passes through: an input
    embedding is left out where it is a table of its own (OPT's is tied to its output projection, so it
    counts).
    """

    parameters: float
    layers: int
    hidden: int
    kv_bytes_per_token: int

    @property
    def weight_bytes(self) -> float:
        return 2 * self.parameters


# Peaks as published for the SXM parts. The shares are fitted to the kernel timings of Llama-2-7B that the
# simulator Vidur ships (microsoft/vidur, data/profiling): 1.52 TB/s and 207-236 TFLOPS on an A100 80 GB,
# 2.6 TB/s and 730-770 TFLOPS on an H100. The A100 40 GB is taken to reach the same shares.
GPUS: Mapping[str, Gpu] = {
    "a100-40gb": Gpu(1.555e12, 312e12, 0.75, 0.70),
    "a100-80gb": Gpu(2.039e12, 312e12, 0.75, 0.70),
    "h100-80gb": Gpu(3.35e12, 989e12, 0.77, 0.75),
}

# Shapes from the models' config.json. KV bytes = 2 (key and value) x layers x KV heads x head size x 2 bytes.
MODELS: Mapping[str, Model] = {
    "opt-13b": Model(12.85e9, 40, 5120, 819_200),
    "llama-2-7b": Model(6.74e9 - 32_000 * 4096, 32, 4096, 524_288),
    "llama-2-13b": Model(13.02e9 - 32_000 * 5120, 40, 5120, 819_200),
    "llama-3-8b": Model(8.03e9 - 128_256 * 4096, 32, 4096, 131_072),
    "llama-3-70b": Model(70.6e9 - 128_256 * 8192, 80, 8192, 327_680),
}


def profiles() -> dict[str, tuple[str, ...]]:
    """The names a roofline's `gpu` and `model` may have."""
    return {"gpu": tuple(GPUS), "model": tuple(MODELS)}


def step_cost(cost: Cost) -> StepCost:
    """The function from a step to its seconds. Raises ScenarioError for a GPU or model without a profile."""
    if isinstance(cost, FixedCost):
        return lambda step: cost.step_s + cost.per_token_s * step.tokens
    return roofline(_named("gpu", cost.gpu, GPUS), _named("model", cost.model, MODELS), cost.overhead_s)


def roofline(gpu: Gpu, model: Model, overhead_s: float) -> StepCost:
    """Seconds = hypot(W, F) + K + A + overhead.

    W: reading the weights once. F: 2 FLOPs a parameter and token computed. K: reading the keys and values
    that the decode slots attend to. A: the prompt chunks' attention, 4 x layers x hidden FLOPs for each
    pair of positions, of which a chunk of n after `start` others has n x (start + n/2). Hypot rather than
    max, since matrix products measured near W = F take a quarter longer than either bound (A100, the
    timings named above).
    """
    bandwidth = gpu.bandwidth_bytes_per_s * gpu.bandwidth_share
    flops = gpu.flops * gpu.flops_share
    weights_s = model.weight_bytes / bandwidth
    token_s = 2 * model.parameters / flops
    kv_s = model.kv_bytes_per_token / bandwidth
    pair_s = 4 * model.layers * model.hidden / flops

    def seconds(step: Step) -> float:
        pairs = sum(tokens * (start + tokens / 2) for _, start, tokens in step.prefill)
        return (
            hypot(weights_s, token_s * step.tokens) + kv_s * step.context_tokens + pair_s * pairs + overhead_s
        )

    return seconds


def _named(what: str, name: str, known: Mapping[str, _Profile]) -> _Profile:
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ScenarioError(f"engine.cost.{what}: no profile of {name!r}; {hint}known: {', '.join(known)}")
