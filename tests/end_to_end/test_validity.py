"""Whether a run can be trusted, with the real client, the real clock and a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from loadgen.client import Counters, Stop
from loadgen.drive import Order, conclude, fire
from loadgen.scenario import Scenario, Target, build
from loadgen.stats.summary import Summary
from loadgen.workload import draw
from tests.end_to_end.process import serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving("--step", "10ms", cwd=tmp_path_factory.mktemp("server")) as (url, _):
        yield url


def scenario(seed: int) -> Scenario:
    load = {
        "arrivals": {"kind": "poisson", "rate": "40/s"},
        "duration": "3s",
        "prompt_tokens": 16,
        "output_tokens": 16,
        "tail": False,
    }
    return build({"seed": seed, "load": load})


async def block_the_loop(blocked_s: float, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s - blocked_s)
        time.sleep(blocked_s)  # noqa: ASYNC251  what a busy client does to its own loop


def measured(server: str, folder: Path, seed: int, *, blocked_s: float = 0.0) -> Summary:
    """One run of three seconds, its loop blocked so long in every 100 ms."""

    async def run() -> Summary:
        asked = scenario(seed)
        order = Order(asked, draw(asked), folder, f"run-{seed}")
        blocker = asyncio.create_task(block_the_loop(blocked_s, 0.1)) if blocked_s else None
        target = Target(base_url=server, model="mini-engine")
        run = await fire(order, target, preflight=None, api_key=None, counters=Counters(), stop=Stop())
        if blocker is not None:
            blocker.cancel()
        return conclude(run, folder)

    return uvloop.run(run())


def test_a_loop_blocked_a_fifth_of_the_time_makes_the_run_invalid(server: str, tmp_path: Path) -> None:
    """20 ms in every 100: the client is at fault, and says so."""
    summary = measured(server, tmp_path / "r", 1, blocked_s=0.02)
    assert summary.validity == "INVALID"
    assert "send_lag" in {finding.name for finding in summary.findings}
    assert not summary.itl_valid


def test_clean_seeds_are_valid(server: str, tmp_path: Path) -> None:
    """Ten seeds on a machine that is left alone: nothing makes any of them invalid."""
    summaries = [measured(server, tmp_path / str(seed), seed) for seed in range(10)]
    invalid = {s.run_id: [f.text for f in s.findings] for s in summaries if s.validity == "INVALID"}
    assert not invalid
    assert all(s.outcomes == {"ok": s.offered} for s in summaries)
