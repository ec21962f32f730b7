"""The table of arrivals: python -m tests.workload.arrivals_table

Measured over 20 seeds of 10,000 arrivals: mean +- its standard deviation, from the scatter of the seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from tests.workload.arrival_laws import LAWS, RESCALED, SEEDS, WINDOWS, lag1, measured, rescaled_gaps
from tests.workload.test_arrivals_theory import expected_figures

FIGURES = ("rate /s", "gap CV", "lag-1", *(f"dispersion, {w} gaps" for w in WINDOWS))
RESCALED_FIGURES = {
    "rescaled gap CV": (1.0, lambda gaps: gaps.std() / gaps.mean()),
    "rescaled lag-1": (0.0, lag1),
}


def line(name: str, figure: str, theory: float | None, mean: float, sd: float) -> str:
    said = "" if theory is None else f"{theory:.4f}"
    off = f"{(mean - theory) / sd:+.1f} sd" if theory is not None and sd > 1e-9 else ""
    return f"| {name} | {figure} | {said} | {mean:.4f} | {sd:.4f} | {off} |"


def lines() -> Iterator[str]:
    yield "| law | figure | theory | measured | sd | off by |"
    yield "|---|---|---|---|---|---|"
    for name, one in LAWS.items():
        for row in zip(FIGURES, expected_figures(one), *measured(one), strict=True):
            yield line(name, *row)
        if name in RESCALED:
            gaps = [rescaled_gaps(one, seed) for seed in range(SEEDS)]
            for figure, (theory, of) in RESCALED_FIGURES.items():
                runs = np.array([of(each) for each in gaps])
                yield line(name, figure, theory, runs.mean(), runs.std(ddof=1) / SEEDS**0.5)


if __name__ == "__main__":
    sys.stdout.writelines(f"{one}\n" for one in lines())
