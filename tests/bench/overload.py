"""How often a run is called overloaded, at loads whose truth is known.

python -m tests.bench.overload [RUNS]: so many (100) for each cell of the table, in virtual time, on one core.

Capacity is what an engine completes per second while it has more to do than it can: the middle of a burst.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loadgen.drive import Order
from loadgen.engine import simulate
from loadgen.records import Records
from loadgen.run import Run
from loadgen.scenario import build
from loadgen.stats.overload import overloaded
from loadgen.workload import draw
from tests.bench.machine import load_average

COST = {"kind": "fixed", "step": "20ms", "per_token": "50us"}
ENGINES: dict[str, dict[str, Any]] = {
    "continuous": {"max_sequences": 32, "cost": COST},
    "static": {"batching": "static", "max_sequences": 16, "cost": COST},
    "one slot": {"max_sequences": 1, "cost": COST},
    "bounded queue": {"max_sequences": 32, "max_queue": 64, "cost": COST},
}
WINDOWS: dict[str, dict[str, Any]] = {
    "500 requests": {"num_requests": 500},
    "2,000 requests": {"num_requests": 2000},
    "30 s": {"duration": "30s"},
}
LOADS = (0.5, 0.85, 1.15, 2.0)
BURST = 3000


def run_of(engine: dict[str, Any], load: dict[str, Any], seed: int = 0) -> Run:
    """One run in virtual time, of prompts of 128 tokens and answers of 64 in the mean."""
    lengths = {
        "prompt_tokens": 128,
        "output_tokens": {"kind": "truncated_exponential", "mean": 64, "cap": 512},
    }
    scenario = build({"seed": seed, "engine": engine, "load": lengths | load})
    plan = draw(scenario)
    header = Order(scenario, plan, Path(), "bench").header("virtual", "engine", None)
    header.complete = True
    tail = scenario.load.tail
    return Run(header, Records.from_records(simulate(plan, scenario.engine, run_id="bench", tail=tail)))


def capacity_rps(engine: dict[str, Any]) -> float:
    """Completions per second from the first tenth to the last fifth of a burst."""
    unbounded = {key: value for key, value in engine.items() if key != "max_queue"}
    run = run_of(unbounded, {"arrivals": {"kind": "burst"}, "num_requests": BURST, "tail": False})
    ended_s = np.sort(run.records.ended_s)
    first, last = BURST // 10, BURST * 8 // 10
    return float((last - first) / (ended_s[last] - ended_s[first]))


@dataclass(frozen=True)
class Told:
    """Of how many runs overload was said of how many, and not said of how many for want of rows."""

    runs: int
    overloaded: int
    unknown: int


def told(engine: dict[str, Any], window: dict[str, Any], rate_rps: float, runs: int) -> Told:
    arrivals = {"kind": "poisson", "rate": rate_rps}
    said = [overloaded(run_of(engine, {"arrivals": arrivals} | window, seed)) for seed in range(runs)]
    return Told(runs, sum(one is True for one in said), sum(one is None for one in said))


def main(runs: int) -> None:
    began_s = time.perf_counter()
    print(f"overload said, of {runs} runs a cell; load average {load_average()}")
    print(
        f"{'engine':16}{'capacity':>10}  {'window':16}" + "".join(f"{f'at {load:g}':>10}" for load in LOADS)
    )
    for name, engine in ENGINES.items():
        capacity = capacity_rps(engine)
        for window, asked in WINDOWS.items():
            at = partial(told, engine, asked, runs=runs)
            found = [at(capacity * load) for load in LOADS]
            cells = "".join(f"{f'{f.overloaded}' + f' ({f.unknown}?)' * bool(f.unknown):>10}" for f in found)
            print(f"{name:16}{capacity:8.2f}/s  {window:16}{cells}", flush=True)
    print(f"took {time.perf_counter() - began_s:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
