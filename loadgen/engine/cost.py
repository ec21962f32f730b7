"""What a step costs in seconds: one formula, with constants given, measured, or from a GPU and a model."""

from __future__ import annotations

from array import array
from math import hypot
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadgen.engine.jitter import Factors
from loadgen.engine.profiles import gpu, model
from loadgen.engine.sequence import Step
from loadgen.knobs import Cost, Engine, FittedCost, RooflineCost

_FEW = 16  # steps that a plain loop adds up more quickly than arrays do
_BLOCK = 4096


class Seconds(NamedTuple):
    """The formula's constants, each in seconds.

    A step takes hypot(weights, token x tokens computed) + context x positions that decodes attend to + pair x
    pairs of positions within prompts (a chunk of n after `start` others has n x (start + n/2)) + fixed
    + swapped x positions that cross the bus. Hypot rather than max, since matrix products measured where both
    are equal take a quarter longer than either.
    """

    weights_s: float = 0.0
    token_s: float = 0.0
    context_s: float = 0.0
    pair_s: float = 0.0
    fixed_s: float = 0.0
    swapped_s: float = 0.0


class StepCost:
    """Seconds of steps, one after the other: each uses up a factor of the jitter, if there is any."""

    def __init__(self, seconds: Seconds, factors: Factors | None = None) -> None:
        self._seconds = seconds
        self._factors = factors

    def __call__(self, step: Step) -> float:
        """Seconds of this step."""
        weights_s, token_s, context_s, pair_s, fixed_s, swapped_s = self._seconds
        tokens = len(step.decode)
        seconds = context_s * step.context_tokens
        if step.prefill:
            pairs = 0.0
            for _, start, chunk_tokens, _ in step.prefill:
                tokens += chunk_tokens
                pairs += chunk_tokens * (start + chunk_tokens / 2)
            seconds += pair_s * pairs
        seconds += hypot(weights_s, token_s * tokens)
        seconds += fixed_s
        if step.swapped_tokens:
            seconds += swapped_s * step.swapped_tokens
        return seconds if self._factors is None else self._factors.take() * seconds

    def ends(self, step: Step, start_s: float, most: int, until_s: float) -> array[float]:
        """When up to `most` successive repeats of a step of decodes alone end, the first starting at
        `start_s`; in each, every slot attends to a position more. The first end at or after `until_s` is the
        last. They are the very numbers that come of adding up each repeat's seconds, and each uses up a
        factor.
        """
        assert not step.prefill, "a prompt is computed once"
        assert not step.swapped_tokens, "KV is moved once"
        base_s = hypot(self._seconds.weights_s, self._seconds.token_s * len(step.decode))
        ends = self._few_ends(step, base_s, start_s, min(most, _FEW), until_s)
        while len(ends) < most and ends[-1] < until_s:
            mean_s = (ends[-1] - start_s) / len(ends)
            likely = int(min(most - len(ends), _BLOCK, (until_s - ends[-1]) / mean_s + 1))
            seconds = self._repeats_s(step, base_s, len(ends), likely)
            seconds[0] += ends[-1]
            np.add.accumulate(seconds, out=seconds)
            more = seconds[: int(np.searchsorted(seconds, until_s)) + 1]
            ends.frombytes(more.tobytes())
            if self._factors is not None:
                self._factors.skip(len(more))
        return ends

    def _few_ends(self, step: Step, base_s: float, at_s: float, most: int, until_s: float) -> array[float]:
        slots, context_tokens, ends = len(step.decode), step.context_tokens, array("d")
        context_s, fixed_s, factors = self._seconds.context_s, self._seconds.fixed_s, self._factors
        for _ in range(most):
            seconds = context_s * context_tokens + base_s + fixed_s
            at_s += seconds if factors is None else factors.take() * seconds
            ends.append(at_s)
            if at_s >= until_s:
                break
            context_tokens += slots
        return ends

    def _repeats_s(self, step: Step, base_s: float, first: int, n: int) -> NDArray[np.float64]:
        """What each of `n` repeats from number `first` on takes: the sums of a step, in the same order, so
        that not a bit differs.
        """
        slots = len(step.decode)
        repeats = np.arange(first, first + n, dtype=np.float64)
        seconds = self._seconds.context_s * (step.context_tokens + slots * repeats)
        seconds += base_s
        seconds += self._seconds.fixed_s
        if self._factors is not None:
            seconds *= self._factors.peek(n)
        return seconds


def step_cost(engine: Engine) -> StepCost:
    """What this engine's steps cost. Raises ScenarioError for a GPU or model without a profile."""
    jitter = engine.jitter
    noisy = jitter is not None and (jitter.step or jitter.drift or jitter.run)
    return StepCost(seconds_of(engine.cost), Factors(jitter, engine.seed) if jitter and noisy else None)


def seconds_of(cost: Cost) -> Seconds:
    """The formula's constants. Raises ScenarioError for a GPU or model without a profile."""
    if isinstance(cost, RooflineCost):
        return _roofline(cost)
    if isinstance(cost, FittedCost):
        return Seconds(
            weights_s=cost.weights_s,
            token_s=cost.per_token_s,
            context_s=cost.per_context_token_s,
            fixed_s=cost.overhead_s,
            swapped_s=cost.per_swapped_token_s,
        )
    return Seconds(token_s=cost.per_token_s, fixed_s=cost.step_s, swapped_s=cost.per_swapped_token_s)


def _roofline(cost: RooflineCost) -> Seconds:
    """Two FLOPs a parameter and token, four a layer, hidden unit and pair of positions; each byte of weights
    read once a step, and of keys and values `kv_touches` times.
    """
    device, run = gpu(cost.gpu), model(cost.model)
    bytes_per_s = cost.gpus * device.bandwidth_bytes_per_s.value * device.bandwidth_share.value
    flops = cost.gpus * device.flops.value * device.flops_share.value
    return Seconds(
        weights_s=2 * run.passed_parameters / bytes_per_s,
        token_s=2 * run.passed_parameters / flops,
        context_s=cost.kv_touches * run.kv_bytes_per_token / bytes_per_s,
        pair_s=4 * run.layers.value * run.hidden.value / flops,
        fixed_s=cost.overhead_s + cost.sleep_s,
        swapped_s=run.kv_bytes_per_token / (cost.bus_gb_per_s * 1e9),
    )
