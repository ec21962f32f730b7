"""How quick virtual time is: simulation alone, nothing written, on one core.

python -m tests.bench.virtual [REQUESTS]: a thousand at once, then so many (100,000) at a steady load.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from typing import Any

from loadgen.engine import simulate
from loadgen.knobs import Engine
from loadgen.plan import Plan
from loadgen.scenario import build
from loadgen.studies import simulated
from loadgen.studies.anyscale import all_at_once, on_a100, paged
from loadgen.workload import draw
from tests.bench.machine import load_average


def seconds(asked: Plan, engine: Engine, *, each_step: bool = False) -> float:
    started_s = time.perf_counter()
    for _ in simulate(asked, engine, run_id="bench", each_step=each_step):
        pass
    return time.perf_counter() - started_s


def burst() -> None:
    rows = all_at_once(1536)
    answers = [tokens for _, _, tokens in rows]
    asked, engine = simulated.plan(rows), simulated.engine(on_a100(paged(1536)))
    jumping = statistics.median(seconds(asked, engine) for _ in range(5))
    stepping = statistics.median(seconds(asked, engine, each_step=True) for _ in range(3))
    print(f"burst of {len(answers):,}, {sum(answers):,} output tokens, paged: {jumping:.3f} s")
    print(f"  step by step {stepping:.3f} s, {stepping / jumping:.1f} times as long; load {load_average()}")


def steady(requests: int) -> None:
    for memory in (None, {"reserve": "paged"}):
        scenario = build(_steady(requests, memory))
        asked = draw(scenario)
        took_s = seconds(asked, scenario.engine)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        kind = "paged" if memory else "no bound on memory"
        print(
            f"steady, {requests:,} requests, {kind}: {took_s:.1f} s, {took_s / requests * 1e6:.0f} us each;"
        )
        print(f"  at most {peak_mb:.0f} MB; load {load_average()}")


def _steady(requests: int, memory: dict[str, Any] | None) -> dict[str, Any]:
    cost = {"gpu": "h100-80gb", "model": "llama-3-8b"}
    return {
        "engine": {"max_sequences": 256, "kv": memory, "cost": cost},
        "load": {
            "arrivals": {"kind": "poisson", "rate": 20},
            "num_requests": requests,
            "prompt_tokens": 512,
            "output_tokens": {"kind": "truncated_exponential", "mean": 128, "cap": 1024},
            "tail": False,
        },
    }


if __name__ == "__main__":
    burst()
    steady(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
