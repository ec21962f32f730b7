"""How often intervals hold the truth, and verdicts are wrong, on a queue whose truth is a formula.

python -m tests.bench.coverage: a table on stdout. Sojourn times of an M/M/1 queue by the Lindley recursion,
its first one drawn from the stationary law: exponential with the rate 1 - load. `holds`: of the runs of which
the tool gives one, those in which it holds the truth. `open`: those that have no upper bound. `naive`: order
statistics of as many independent ones as there are requests. `at its limit`: what is said of an SLO whose
limit is the truth. Below, of a p99 whose limit 98 to 99.8 % of all requests truly meet.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np

from loadgen.records import Floats
from loadgen.stats.bounds import share_bounds
from loadgen.stats.interval import Blocks, blocks_of, mean_margin, of_mean, of_percentile, share_interval
from loadgen.stats.summary import Interval

LOADS = (0.7, 0.8, 0.9)
REQUESTS = (500, 1_000, 2_000, 5_000, 20_000, 200_000)
PERCENTILES = (50, 90, 95, 99)
LIMITS = (98.0, 98.9, 99.1, 99.8)  # of a p99: the limit is what this share of the requests truly meets


def sojourns(rng: np.random.Generator, requests: int, load: float, *, empty: bool = False) -> Floats:
    """Service takes 1 in the mean; each waits for what is left of the one before. `empty`: the first not."""
    service, between = rng.exponential(1, requests), rng.exponential(1 / load, requests)
    drift = np.concatenate([[0.0], np.cumsum(service[:-1] - between[1:])])
    first_wait = 0.0 if empty else max(rng.exponential(1 / (1 - load)) - between[0], 0.0)
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


def decision(values: Floats, blocks: Blocks, limit: float, p: float = 99) -> str:
    """Of `p99 <= limit`, or another percentile."""
    hits, of = (values <= limit).astype(float), np.ones(len(values))
    low, high, _ = share_interval(hits, of, 0.95, blocks.kept(p))
    return "PASS" if low >= p / 100 else "FAIL" if high < p / 100 else "UNRESOLVED"


def decision_of_mean(values: Floats, blocks: Blocks, limit: float) -> str:
    off = mean_margin(blocks, 0.95) or 0.0
    passes, fails = values.mean() <= limit * (1 - off), values.mean() > limit * (1 + off)
    return "PASS" if passes else "FAIL" if fails else "UNRESOLVED"


def coverage(load: float, requests: int, runs: int, seed: int) -> Iterator[str]:
    rng = np.random.default_rng(seed)
    claimed, held, opened, naively = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    said: Counter[tuple[str, str]] = Counter()
    for _ in range(runs):
        values = sojourns(rng, requests, load)
        blocks = blocks_of(values)
        found = {f"p{p}": (of_percentile(blocks, p), truth(p, load)) for p in PERCENTILES}
        found["mean"] = of_mean(blocks), 1 / (1 - load)
        for name, (interval, true) in found.items():
            claimed[name] += interval.decided
            held[name] += interval.decided and holds(interval, true)
            opened[name] += interval.decided and interval.high is None
        for p in PERCENTILES:
            naively[f"p{p}"] += holds(naive(blocks, p), truth(p, load))
            said[f"p{p}", decision(values, blocks, truth(p, load), p)] += 1
        said["mean", decision_of_mean(values, blocks, 1 / (1 - load))] += 1
        for limit in LIMITS:
            said[f"p99 <= true p{limit}", decision(values, blocks, truth(limit, load))] += 1
    where = f"load {load}  {requests:>7,} requests  "
    for name in found:
        of = f"{held[name]}/{claimed[name]}" + (
            f" = {held[name] / claimed[name]:.1%}" if claimed[name] else ""
        )
        wrong = ", ".join(f"{word} {said[name, word] / runs:.1%}" for word in ("PASS", "FAIL"))
        of_naive = f"  naive {naively[name] / runs:.1%}" * (name in naively)
        yield f"{where}{name:5} holds {of:<16} open {opened[name]:>3}  at its limit {wrong}{of_naive}"
    for limit in LIMITS:
        words = ", ".join(
            f"{word} {said[f'p99 <= true p{limit}', word] / runs:.1%}"
            for word in ("PASS", "FAIL", "UNRESOLVED")
        )
        yield f"{where}p99 <= true p{limit}: {words}"


def main(words: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    flags.add_argument("--runs", type=int, default=200)
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--requests", type=int, nargs="+", default=REQUESTS)
    asked = flags.parse_args(words)
    for requests in asked.requests:
        for load in LOADS:
            for line in coverage(load, requests, asked.runs, asked.seed):
                print(line, flush=True)


if __name__ == "__main__":
    main()
