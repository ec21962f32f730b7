"""How near theory, and a fine grid, the search for capacity comes, and what it takes; all in virtual time.

python -m tests.bench.capacity [ROWS]: queues of one slot whose answer is known, of ROWS (20,000) requests a
probe; then the continuous preset of workloads/capacity-chat.yaml beside a sweep in steps of 2 %.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadgen import drive
from loadgen.capacity import Capacity, find_capacity
from loadgen.edges import between, crossing
from loadgen.probe import Probing
from loadgen.scenario import Scenario, build, load
from tests.bench.machine import load_average

WORKLOAD = Path(__file__).parents[2] / "workloads" / "capacity-chat.yaml"
STEP = 1.02
BOUNDS = ("rejection_rate <= 1%", "error_rate <= 1%")


def queue(rows: int, output_tokens: Any, seed: int) -> Scenario:
    """One slot, 1 ms a token, 100 ms a request in the mean: mu is 10/s."""
    return build(
        {
            "seed": seed,
            "engine": {"max_sequences": 1, "cost": {"kind": "fixed", "step": "1ms"}},
            "load": {
                "arrivals": {"kind": "poisson", "rate": 4},
                "num_requests": rows,
                "warmup_requests": rows // 20,
                "prompt_tokens": 1,
                "output_tokens": output_tokens,
            },
        }
    )


def theory(rows: int) -> None:
    exponential = {"kind": "truncated_exponential", "mean": 100, "cap": 100_000}
    asked: list[tuple[str, Any, Sequence[str], float]] = []
    for rho in (0.5, 0.7):
        mean_ms = 100 + rho * 100 / (2 * (1 - rho))
        asked.append((f"M/D/1 mean, rho {rho}", 100, (f"mean(e2e) <= {mean_ms}ms", *BOUNDS), 10 * rho))
        p90_ms = log(10) / (10 * (1 - rho)) * 1000
        asked.append((f"M/M/1 p90, rho {rho}", exponential, (f"p90(e2e) <= {p90_ms}ms",), 10 * rho))
    for name, lengths, slos, truth in asked:
        found, took_s = timed(partial(find_capacity, queue(rows, lengths, 0), slos))
        say(name, found, truth, took_s)


def beside_a_grid() -> None:
    asked = load(WORKLOAD)
    found, took_s = timed(partial(find_capacity, asked))
    lowest, highest = found.probes[0].load, found.probes[-1].load
    with TemporaryDirectory() as folder:
        sweep = Probing(
            asked, "rate", Path(folder), lambda order, _: drive.simulate(order), "sweep", virtual=True
        )
        probes, at = [], lowest
        while at <= highest * STEP:
            probes.append(sweep.probe(float(f"{at:.5g}"), 3))
            at *= STEP
    low, high = crossing(probes)
    assert low is not None
    assert high is not None
    say("continuous", found, between(low, high), took_s)
    swept = sum(p.requests for p in probes)
    print(
        f"  the sweep: {len(probes)} loads of 3 seeds, {swept:,} requests; ours {found.requests / swept:.2f}"
    )


def timed(work: Callable[[], Capacity]) -> tuple[Capacity, float]:
    began_s = time.perf_counter()
    return work(), time.perf_counter() - began_s


def say(name: str, found: Capacity, truth: float, took_s: float) -> None:
    off = (found.load or 0.0) / truth - 1
    runs = sum(p.runs for p in found.probes)
    print(
        f"{name}: {found.load} in [{found.low}, {found.high}], truth {truth:.4g}, off {off:+.2%}; "
        f"{runs} runs, {found.requests:,} requests, {took_s:.0f} s; load {load_average()}",
        flush=True,
    )


if __name__ == "__main__":
    theory(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
    beside_a_grid()
