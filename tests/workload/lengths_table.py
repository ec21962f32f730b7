"""Each law of lengths in theory and in 200,000 draws: python -m tests.workload.lengths_table"""

from __future__ import annotations

import numpy as np

from loadgen.workload import lengths
from tests.workload.laws import LAWS

N = 200_000
QUANTILES = (0.5, 0.9, 0.99)


def main() -> None:
    names = ("mean", "sd", "p50", "p90", "p99")
    print(f"{'law':24}" + "".join(f"{name:>11}{'drawn':>11}" for name in names))  # noqa: T201
    for name, law in LAWS.items():
        drawn = lengths.draw(law, 1, "output_tokens", 0, N)
        theory = [lengths.exact_mean(law) or 0, lengths.exact_sd(law) or 0]
        theory += [lengths.quantile(law, p) for p in QUANTILES]
        seen = [drawn.mean(), drawn.std(), *np.quantile(drawn, QUANTILES, method="inverted_cdf")]
        pairs = zip(theory, seen, strict=True)
        print(f"{name:24}" + "".join(f"{asked:11.6g}{got:11.6g}" for asked, got in pairs))  # noqa: T201


if __name__ == "__main__":
    main()
