"""How often a run is called overloaded, at loads whose truth is known.

python -m tests.bench.overload [RUNS]: so many (100) for each cell of the table, in virtual time, on one core.

Capacity is what an engine completes per second while it has more to do than it can: the middle of a burst.
Of 500 Poisson arrivals and exponential answers the own load of a run is 0.06 off the one asked for, so that
1 of 100 runs at 0.85 has more than 1; `even` answers (32 to 96 tokens) have less of that.
"""

from __future__ import annotations

import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from loadgen.engine import simulate
from loadgen.order import Order
from loadgen.records import Records
from loadgen.run import Run
from loadgen.scenario import build
from loadgen.stats.overload import overloaded
from loadgen.workload import draw
from tests.bench.machine import load_average

COST = {"kind": "fixed", "step": "20ms", "per_token": "50us"}
ENGINES: dict[str, dict[str, Any]] = {
    "continuous": {"max_sequences": 32, "cost": COST},
    "bounded queue": {"max_sequences": 32, "max_queue": 64, "cost": COST},
    "one slot": {"max_sequences": 1, "cost": COST},
    "static": {"batching": "static", "max_sequences": 16, "cost": COST},
}
WINDOWS: dict[str, dict[str, Any]] = {
    "500 requests": {"num_requests": 500},
    "2,000 requests": {"num_requests": 2000},
    "30 s": {"duration": "30s"},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "exponential": {"kind": "truncated_exponential", "mean": 64, "cap": 512},
    "even": {"kind": "uniform", "min": 32, "max": 96},
}
LOADS = (0.85, 1.15, 2.0)
BURST = 3000


def run_of(engine: dict[str, Any], load: dict[str, Any], seed: int = 0) -> Run:
    """One run in virtual time, of prompts of 128 tokens and, unless said otherwise, exponential answers."""
    lengths = {"prompt_tokens": 128, "output_tokens": ANSWERS["exponential"]}
    scenario = build({"seed": seed, "engine": engine, "load": lengths | load})
    plan = draw(scenario)
    header = Order(scenario, plan, Path(), "bench").header("virtual", "engine", None)
    header.complete = True
    tail = scenario.load.tail
    return Run(header, Records.from_records(simulate(plan, scenario.engine, run_id="bench", tail=tail)))


def capacity_rps(engine: dict[str, Any], answers: str = "exponential") -> float:
    """Completions per second from the first tenth to the last fifth of a burst."""
    unbounded = {key: value for key, value in engine.items() if key != "max_queue"}
    burst = {"arrivals": {"kind": "burst"}, "num_requests": BURST, "tail": False}
    run = run_of(unbounded, burst | {"output_tokens": ANSWERS[answers]})
    ended_s = np.sort(run.records.ended_s)
    first, last = BURST // 10, BURST * 8 // 10
    return float((last - first) / (ended_s[last] - ended_s[first]))


def told(engine: dict[str, Any], load: dict[str, Any], rate_rps: float, runs: int) -> tuple[int, int]:
    """In how many of `runs` overload was said, and in how many there was too little to say."""
    arrivals = {"kind": "poisson", "rate": rate_rps}
    said = [overloaded(run_of(engine, {"arrivals": arrivals} | load, seed)) for seed in range(runs)]
    return said.count(True), said.count(None)


def main(runs: int) -> None:
    began_s = time.perf_counter()
    print(f"overload said, of {runs} runs a cell (?: too little to say); load average {load_average()}")
    print(
        f"{'engine':14}{'answers':12}{'capacity':>9}  {'window':14}", *(f"{f'at {x:g}':>10}" for x in LOADS)
    )
    rows = [*product(ENGINES, ["exponential"]), ("static", "even")]
    for name, answers in rows:
        capacity = capacity_rps(ENGINES[name], answers)
        for window, asked in WINDOWS.items():
            load = asked | {"output_tokens": ANSWERS[answers]}
            found = [told(ENGINES[name], load, capacity * share, runs) for share in LOADS]
            cells = [f"{said}" + f" ({unsaid}?)" * bool(unsaid) for said, unsaid in found]
            print(
                f"{name:14}{answers:12}{capacity:7.2f}/s  {window:14}",
                *(f"{c:>10}" for c in cells),
                flush=True,
            )
    print(f"took {time.perf_counter() - began_s:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
