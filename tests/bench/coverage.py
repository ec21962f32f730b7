"""How often intervals hold the truth, and verdicts are wrong, on a queue whose truth is a formula.

python -m tests.bench.coverage: a table on stdout. Sojourn times of an M/M/1 queue by the Lindley recursion,
its first one drawn from the stationary law: exponential with the rate 1 - load. `holds`: of the runs of which
the tool gives one, those in which it holds the truth. `naive`: order statistics of as many independent
ones as there are requests. Below, what is said of an SLO whose limit 98 to 99.8 % of all requests truly meet.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np

from loadgen.records import Floats
from loadgen.stats.bounds import share_bounds
from loadgen.stats.interval import Blocks, blocks_of, of_percentile, share_interval
from loadgen.stats.summary import Interval

LOADS = (0.7, 0.9)
REQUESTS = (2_000, 200_000)
PERCENTILES = (50, 90, 99)
LIMITS = (98.0, 98.9, 99.1, 99.8)  # of a p99: the limit is what this share of the requests truly meets


def sojourns(rng: np.random.Generator, requests: int, load: float) -> Floats:
    """Service takes 1 in the mean; each waits for what is left of the one before."""
    service, between = rng.exponential(1, requests), rng.exponential(1 / load, requests)
    drift = np.concatenate([[0.0], np.cumsum(service[:-1] - between[1:])])
    first_wait = max(rng.exponential(1 / (1 - load)) - between[0], 0.0)
    waits = np.maximum(first_wait + drift, drift - np.minimum.accumulate(drift))
    found: Floats = waits + service
    return found


def truth(percent: float, load: float) -> float:
    return float(-np.log(1 - percent / 100) / (1 - load))


def holds(interval: Interval, value: float) -> bool:
    low, high = interval.low or 0.0, np.inf if interval.high is None else interval.high
    return bool(low <= value <= high)


def naive(blocks: Blocks, percent: float) -> Interval:
    low, high = share_bounds(percent / 100 * blocks.n, blocks.n, 0.975)
    places = [min(blocks.place(share * blocks.n), len(blocks.values) - 1) for share in (low, high)]
    return Interval(low=float(blocks.values[places[0]]), high=float(blocks.values[places[1]]), decided=True)


def decision(values: Floats, blocks: Blocks, limit: float) -> str:
    """Of `p99 <= limit`."""
    hits, of = (values <= limit).astype(float), np.ones(len(values))
    low, high, _ = share_interval(hits, of, 0.95, blocks.kept(99))
    return "PASS" if low >= 0.99 else "FAIL" if high < 0.99 else "UNRESOLVED"


def coverage(load: float, requests: int, runs: int, seed: int) -> Iterator[str]:
    rng = np.random.default_rng(seed)
    claimed, held, naively = Counter[float](), Counter[float](), Counter[float]()
    said: Counter[tuple[float, str]] = Counter()
    independent: dict[float, list[float]] = {p: [] for p in PERCENTILES}
    for _ in range(runs):
        values = sojourns(rng, requests, load)
        blocks = blocks_of(values)
        for p in PERCENTILES:
            interval, true = of_percentile(blocks, p), truth(p, load)
            claimed[p] += interval.decided
            held[p] += interval.decided and holds(interval, true)
            naively[p] += holds(naive(blocks, p), true)
            independent[p].append(blocks.effective_n(p) or 0.0)
        for limit in LIMITS:
            said[limit, decision(values, blocks, truth(limit, load))] += 1
    for p in PERCENTILES:
        of = f"{held[p]}/{claimed[p]}" + (f" = {held[p] / claimed[p]:.1%}" if claimed[p] else "")
        yield (
            f"load {load}  {requests:>7,} requests  p{p}  effective n {np.median(independent[p]):>9,.1f}  "
            f"undecided {1 - claimed[p] / runs:>6.1%}  holds {of:<18} naive {naively[p] / runs:.1%}"
        )
    for limit in LIMITS:
        shares = ", ".join(
            f"{word} {said[limit, word] / runs:.1%}" for word in ("PASS", "FAIL", "UNRESOLVED")
        )
        yield f"load {load}  {requests:>7,} requests  p99 <= true p{limit}: {shares}"


def main(words: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    flags.add_argument("--runs", type=int, default=300)
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--requests", type=int, nargs="+", default=REQUESTS)
    asked = flags.parse_args(words)
    for requests in asked.requests:
        for load in LOADS:
            for line in coverage(load, requests, asked.runs, asked.seed):
                print(line, flush=True)


if __name__ == "__main__":
    main()
