"""Lognormal lengths, where those of a published comparison are not at hand."""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np


class Lognormal(NamedTuple):
    """`spread`: standard deviation of the logarithm."""

    median: float
    spread: float

    @classmethod
    def by_mean(cls, mean: float, spread: float) -> Lognormal:
        return cls(mean / np.exp(spread**2 / 2), spread)

    @classmethod
    def by_p90(cls, median: float, p90: float) -> Lognormal:
        return cls(median, np.log(p90 / median) / NormalDist().inv_cdf(0.9))


def lengths(
    prompt: Lognormal, output: Lognormal, most_tokens: int, n: int, seed: int
) -> list[tuple[int, int]]:
    """`n` prompts and answers of at most `most_tokens` together. Each law gives 2n lengths at its quantiles,
    so that chance is only in who meets whom and who is left out.
    """
    rng = np.random.default_rng(seed)
    normal = [NormalDist().inv_cdf((i + 0.5) / (2 * n)) for i in range(2 * n)]
    prompts, outputs = (
        np.maximum(1, np.rint(law.median * np.exp(law.spread * rng.permutation(normal)))).astype(int)
        for law in (prompt, output)
    )
    fit = np.flatnonzero(prompts + outputs <= most_tokens)[:n]
    return list(zip(prompts[fit].tolist(), outputs[fit].tolist(), strict=True))
