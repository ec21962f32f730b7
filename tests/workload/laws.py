"""Laws of lengths for the tests, and their probabilities by another road than the sampler's.

A continuous law's are integrals of its density, by Gauss and Legendre, over all that is rounded to a number:
of ratios to the density where it is largest, so that they hold in tails of any depth.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from loadgen.laws import LengthLaw, Lengths

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def law(kind: str, **keys: Any) -> LengthLaw:
    return TypeAdapter(Lengths).validate_python({"kind": kind, **keys})


LAWS = {
    "fixed": law("fixed", tokens=9),
    "uniform": law("uniform", min=3, max=12),
    "vllm_range": law("vllm_range", tokens=100, ratio=0.25),
    "sglang_range": law("sglang_range", tokens=100, ratio=0.25),
    "truncated exponential": law("truncated_exponential", mean=128, cap=512),
    "redrawn": law("truncated_exponential", mean=128, cap=512, rounding="redraw"),
    "exponential": law("exponential", mean=128, max=4000),
    "exponential, short": law("exponential", mean=3, min=4, max=9),
    "exponential, flat": law("exponential", mean=1e9, max=20),
    "normal": law("normal", mean=512, sd=128, max=4000),
    "normal, cut": law("normal", mean=20, sd=15, max=40),
    "normal, one": law("normal", mean=7, sd=0.01, max=4000),
    "normal, far below": law("normal", mean=-300, sd=10, max=100),
    "normal, far above": law("normal", mean=700, sd=20, max=100),
    "lognormal": law("lognormal", median=256, sigma=1, max=4000),
    "lognormal by mean": law("lognormal", mean=512, cv=2, min=16, max=4096),
    "lognormal, far below": law("lognormal", median=0.1, sigma=0.3, min=20, max=100),
    "gamma": law("gamma", mean=512, cv=0.5, max=4000),
    "gamma, bursty": law("gamma", mean=100, cv=3, max=2000),
    "gamma, steady": law("gamma", mean=1000, cv=0.001, max=4000),
    "gamma, far above": law("gamma", mean=1000, cv=0.1, max=100),
    "gamma, far below": law("gamma", mean=4, cv=0.5, min=60, max=400),
    "zipf": law("zipf", alpha=1.1, max=10_000),
    "zipf, even": law("zipf", alpha=0, min=5, max=14),
    "zipf, steep": law("zipf", alpha=20, min=100, max=500),
    "empirical": law("empirical", values=[512, 16, 16, 2000], weights=[1.0, 2.0, 1.0, 0.0]),
}


def probabilities(law: Any) -> tuple[np.ndarray, np.ndarray]:
    """The numbers that `law` gives, rising, and the probability of each."""
    match law.kind:
        case "fixed":
            numbers, shares = np.array([law.tokens]), np.ones(1)
        case "uniform":
            numbers = np.arange(law.min, law.max + 1)
            shares = np.ones(len(numbers))
        case "vllm_range" | "sglang_range":  # the ends worked out by hand
            low, high = {"vllm_range": (75, 125), "sglang_range": (25, 100)}[law.kind]
            assert (law.tokens, law.ratio) == (100, 0.25)
            numbers, shares = np.arange(low, high + 1), np.ones(high - low + 1)
        case "truncated_exponential":
            numbers, shares = _truncated_exponential(law)
        case "zipf":
            numbers = np.arange(law.min, law.max + 1)
            shares = np.array([(int(k) / law.min) ** -law.alpha for k in numbers])
        case "empirical":
            numbers = np.array(sorted(set(law.values)))
            each = law.weights or [1] * len(law.values)
            shares = np.array(
                [sum(w for v, w in zip(law.values, each, strict=True) if v == n) for n in numbers]
            )
        case _:
            numbers = np.arange(law.min, law.max + 1)
            shares = _integrals(law, numbers)
    return numbers, shares / math.fsum(shares)


def _truncated_exponential(law: Any) -> tuple[np.ndarray, np.ndarray]:
    """From the words of the definition."""
    if law.rounding == "ceil":  # Y falls in (j - 1, j]; given that it is at most the cap
        raw = {law.min - 1 + j: _between(law.mean, j - 1, j) for j in range(1, law.cap - law.min + 2)}
    else:  # round, throw away what is above the cap, raise to min
        raw = dict.fromkeys(range(law.min, law.cap + 1), 0.0)
        for k in range(law.cap + 1):
            raw[max(k, law.min)] += _between(law.mean, max(0, k - 0.5), k + 0.5)
    return np.array(list(raw)), np.array(list(raw.values()))


def _between(mean: float, low: float, high: float) -> float:
    return math.exp(-low / mean) * -math.expm1((low - high) / mean)


def _integrals(law: Any, numbers: np.ndarray) -> np.ndarray:
    split = np.linspace(-0.5, 0.5, 17)  # a density narrower than a token, or wide at the lowest ones
    half = (split[1] - split[0]) / 2
    x = numbers[:, None, None] + (split[:-1] + half)[:, None] + half * _NODES
    log_density = _log_density(law, x)
    return (np.exp(log_density - log_density.max()) * _WEIGHTS).sum(axis=(1, 2))


def _log_density(law: Any, x: np.ndarray) -> np.ndarray:
    """But for a constant."""
    match law.kind:
        case "exponential":
            return -x / law.mean
        case "normal":
            return -(((x - law.mean) / law.sd) ** 2) / 2
        case "lognormal":
            sigma = law.sigma or math.sqrt(math.log(1 + law.cv**2))
            centre = math.log(law.median or law.mean / math.sqrt(1 + law.cv**2))
            return -(((np.log(x) - centre) / sigma) ** 2) / 2 - np.log(x)
        case "gamma":
            shape = law.cv**-2
            return (shape - 1) * np.log(x) - shape * x / law.mean
        case _:
            raise AssertionError(law.kind)
