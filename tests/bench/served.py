"""How well the served engine keeps time, and how near it comes to the same plan in virtual time.

python -m tests.bench.served: some 240 streams at once and about 9,000 tokens a second, the server on one core
and the client on another. Late steps and fan-out are the server's own figures, from /metrics.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from loadgen import drive
from loadgen.bundled import bundled_server
from loadgen.client.control import Counters, Stop
from loadgen.order import Order
from loadgen.scenario import Scenario, build
from loadgen.stats import summarize
from loadgen.stats.summary import Summary
from loadgen.target import Target
from loadgen.workload import draw
from tests.bench.machine import load_average

RUNS = 3
STEP = "25.6ms"  # 256 slots full: 10,000 tokens a second


def scenario(batching: str) -> Scenario:
    """Continuous: near its capacity. Dynamic: batches of 32 that gather for 200 ms at most."""
    knobs: dict[str, Any] = {"max_sequences": 256, "token_budget": 4096}
    load: dict[str, Any] = {"arrivals": {"kind": "poisson", "rate": 72}, "duration": "8s", "warmup": "4s"}
    if batching == "dynamic":
        knobs |= {"max_sequences": 32, "max_wait": "200ms"}
        load |= {"arrivals": {"kind": "poisson", "rate": 4}, "duration": "20s", "warmup": "0s"}
    return build(
        {
            "name": batching,
            "seed": 5,
            "engine": {"batching": batching, "cost": {"kind": "fixed", "step": STEP}, **knobs},
            "load": load
            | {
                "prompt_tokens": 64,
                "output_tokens": {"kind": "truncated_exponential", "mean": 128, "cap": 512},
            },
        }
    )


async def served(asked: Scenario, folder: Path) -> tuple[Summary, dict[str, float]]:
    """One run over HTTP, and what /metrics said after it."""
    run_id = folder.name
    order = Order(asked, draw(asked), folder, run_id)
    async with bundled_server(asked) as target:
        pin_the_server()
        run = await drive.fire(
            order, target, preflight=None, api_key=None, counters=Counters(), stop=Stop(), is_bundled=True
        )
        return summarize(run), await kept_time(target)


def pin_the_server() -> None:
    """Our one child to the last core, ourselves to the first."""
    (child,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    os.sched_setaffinity(int(child), {(os.cpu_count() or 2) - 1})


async def kept_time(target: Target) -> dict[str, float]:
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"{target.base_url}/metrics")).text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        if family.name in (
            "loadgen_engine_step_lateness_seconds",
            "loadgen_engine_fan_out_per_stream_seconds",
        ):
            bounds = [(float(s.labels["le"]), s.value) for s in family.samples if s.name.endswith("_bucket")]
            for share in (0.5, 0.99):
                found[f"{family.name} p{share * 100:.0f}"] = next(
                    le for le, n in bounds if n >= share * bounds[-1][1]
                )
        elif family.name == "loadgen_engine_slips":
            found["slips"] = family.samples[0].value
    return found


def beside_virtual(measured: Summary, virtual: Summary) -> str:
    """Each metric's p50 and p99, and how far they are from those of virtual time."""
    parts = []
    for metric in ("ttft_s", "itl_s", "e2e_s"):
        for share in ("p50", "p99"):
            ours = measured.metrics[metric].quantiles[share]
            theirs = virtual.metrics[metric].quantiles[share]
            assert ours is not None
            assert theirs is not None
            parts.append(f"{metric[:-2]} {share} {ours * 1e3:.1f} ms ({ours / theirs - 1:+.1%})")
    return ", ".join(parts)


async def main() -> None:
    os.sched_setaffinity(0, {0})
    with tempfile.TemporaryDirectory() as scratch:
        for batching in ("continuous", "dynamic"):
            asked = scenario(batching)
            virtual = summarize(drive.simulate(Order(asked, draw(asked), Path(scratch, "v" + batching), "v")))
            for i in range(RUNS):
                measured, kept = await served(asked, Path(scratch, f"{batching}{i}"))
                print(
                    f"{batching}: {measured.validity}, {measured.output_tokens_per_s or 0:,.0f} tokens/s;",
                    end=" ",
                )
                print(f"load {load_average()}")
                print(f"  {beside_virtual(measured, virtual)}")
                print("  " + ", ".join(f"{name} {value:g}" for name, value in kept.items()), flush=True)


if __name__ == "__main__":
    if sys.platform != "linux" or (os.cpu_count() or 1) < 2:
        raise SystemExit("two cores of Linux are needed: one for the server, one for the client")
    uvloop.run(main())
