"""Plans of every kind: split over processes they hold every row once, and anywhere they are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from loadgen.engine import simulate
from loadgen.plan import COLUMNS, NONE, Plan
from loadgen.scenario import build
from loadgen.workload import draw

SAMPLES = Path(__file__).parents[2] / "workloads" / "samples"
SPREAD = {"kind": "uniform", "min": 1, "max": 99}
POISSON = {"kind": "poisson", "rate": 8}
SESSIONS = {
    "turns": {"kind": "truncated_exponential", "mean": 3, "cap": 9},
    "think": {"kind": "lognormal", "median": "2s", "sigma": 0.7, "max": "30s"},
}
CLASSES: dict[str, Any] = {
    "chat": {"weight": 3, "prompt_tokens": SPREAD, "priority": -1},
    "talk": {"weight": 1, "sessions": SESSIONS},
    "tool": {"weight": 2, "output_tokens": 1, "prompts": {"prefix": {"kind": "shared", "tokens": 300}}},
}


def sample(name: str, form: str, **more: Any) -> dict[str, Any]:
    return {"file": str(SAMPLES / name), "format": form} | more


def drawn(load: dict[str, Any]) -> Plan:
    return draw(build({"seed": 7, "load": load}))


# --- shards ----

KINDS: dict[str, dict[str, Any]] = {
    "poisson": {"arrivals": POISSON, "num_requests": 300, "warmup_requests": 7, "prompt_tokens": SPREAD},
    "sessions": {"arrivals": POISSON, "num_sessions": 100, "sessions": SESSIONS, "output_tokens": SPREAD},
    "sessions in one class": {"arrivals": POISSON, "num_sessions": 200, "classes": CLASSES},
    "closed": {"arrivals": {"kind": "closed", "concurrency": 11, "think": "1s"}, "num_requests": 200},
    "closed for a time": {"arrivals": {"kind": "closed", "concurrency": 11}, "duration": "9s"},
    "closed, two users": {"arrivals": {"kind": "closed", "concurrency": 2}, "num_requests": 20},
    "trace": {"arrivals": {"kind": "trace", "loop": True}, "duration": "5m"}
    | {"trace": sample("burstgpt.csv", "burstgpt")},
    "trace with sessions": {"arrivals": {"kind": "trace"}}
    | {"trace": sample("bailian.jsonl", "bailian", sessions=True)},
    "trace's sessions anew": {"arrivals": POISSON, "num_sessions": 40}
    | {"trace": sample("mooncake-conversation.jsonl", "mooncake", sessions=True, order="shuffle")},
}


def rows_of(blocks: Iterable[Plan]) -> list[tuple[int, ...]]:
    """Every column of every row, by index."""
    return sorted(row for b in blocks for row in zip(*(getattr(b, c).tolist() for c in COLUMNS), strict=True))


@pytest.mark.parametrize("of", [2, 3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_shards_together_hold_every_row_once_at_its_own_instant(kind: str, of: int) -> None:
    """Those of the plan, and those of three blocks of its tail; no turn waits for a row of another shard."""
    plan = drawn(KINDS[kind])
    shards = [plan.shard(k, of) for k in range(of)]
    assert rows_of(shards) == rows_of([plan])
    tails = [block for shard in shards for block in islice(shard.tail(), 3)]
    assert rows_of(tails) == rows_of(islice(plan.tail(), 3))
    for shard in shards:
        for block in (shard, *islice(shard.tail(), 3)):
            assert {*block.after.tolist()} <= {NONE, *block.index.tolist()}
    if plan.users is not None:
        assert sum(shard.users or 0 for shard in shards) == plan.users


@pytest.mark.parametrize("of", [1, 2, 3, 8])
def test_every_row_of_a_split_closed_loop_is_sent(of: int) -> None:
    """More processes than users: those without a user have no rows either."""
    scenario = build({"load": KINDS["closed, two users"] | {"tail": False}})
    plan = draw(scenario)
    sent = [
        record.index
        for k in range(of)
        for record in simulate(plan.shard(k, of), scenario.engine, run_id="r", tail=False)
    ]
    assert sorted(sent) == list(range(20))


# --- digests ----


def of_law(law: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"arrivals": law, "num_requests": 200} | more


def of_length(law: Any) -> dict[str, Any]:
    return {"arrivals": {"kind": "burst"}, "num_requests": 500, "output_tokens": law}


POINTS = [{"at": "0s", "rate": 1}, {"at": "9s", "rate": 9}]
LOADS: dict[str, dict[str, Any]] = {
    "gamma": of_law({"kind": "gamma", "rate": 8, "cv": 2}),
    "weibull": of_law({"kind": "weibull", "rate": 8, "shape": 0.6}),
    "batches": of_law({"kind": "batches", "size": 4, "sizes": "geometric", "every": "1s"}),
    "on off": of_law({"kind": "on_off", "rate": 20, "off_rate": 1, "on_for": "3s", "off_for": "5s"}),
    "mmpp": of_law(
        {"kind": "mmpp", "states": [{"rate": 1, "dwell": "5s"}, {"rate": 20, "dwell": "2s"}]},
    ),
    "steps": of_law({"kind": "steps", "points": POINTS, "every": "12s"}),
    "curve": of_law({"kind": "curve", "points": POINTS, "repeat": True}),
    "ramp": of_law({"kind": "ramp", "from": 1, "to": 20, "over": "30s"}),
    "sine": of_law({"kind": "sine", "rate": 8, "amplitude": 0.6, "period": "10s"}),
    "stages": {
        "arrivals": {
            "kind": "stages",
            "stages": [
                {"arrivals": POISSON, "duration": "5s"},
                {"arrivals": {"kind": "burst"}, "num_requests": 20},
                {"arrivals": {"kind": "constant", "rate": 3}, "duration": "5s"},
            ],
        },
    },
    "rescaled": of_law(POISSON, duration="10s", rescale=True),
    "lognormal": of_length({"kind": "lognormal", "median": 100, "sigma": 0.8, "max": 4000}),
    "normal": of_length({"kind": "normal", "mean": 100, "sd": 30, "max": 400}),
    "gamma lengths": of_length({"kind": "gamma", "mean": 100, "cv": 0.8, "max": 4000}),
    "exponential": of_length({"kind": "exponential", "mean": 100, "max": 4000}),
    "zipf": of_length({"kind": "zipf", "alpha": 1.2, "max": 64}),
    "vllm range": of_length({"kind": "vllm_range", "tokens": 100, "ratio": 0.25}),
    "sglang range": of_length({"kind": "sglang_range", "tokens": 100, "ratio": 0.25}),
    "empirical": of_length({"kind": "empirical", "values": [1, 20, 300], "weights": [3, 5, 2]}),
    "sessions": KINDS["sessions"],
    "classes": KINDS["sessions in one class"],
    "groups": of_law(POISSON, prompts={"prefix": {"kind": "groups", "groups": 9, "tokens": 99, "zipf": 1.1}}),
    "closed": KINDS["closed"],
    "closed for a time": KINDS["closed for a time"],
    "trace": {"trace": sample("azure-code.csv", "azure"), "arrivals": {"kind": "trace"}},
    "trace with sessions": KINDS["trace with sessions"],
    "trace's sessions anew": KINDS["trace's sessions anew"],
    "texts": of_law(POISSON, trace=sample("sharegpt.json", "sharegpt", order="sample")),
    "servegen": {"trace": sample("servegen", "servegen", duration="1m"), "arrivals": {"kind": "trace"}},
}
DIGESTS = {
    "gamma": "c088c38632f6d27a",
    "weibull": "dbf7f6d24caef0a9",
    "batches": "a9ec2ec34f4717a8",
    "on off": "d11ca4e5f6d995ed",
    "mmpp": "c05ef65e40f9c334",
    "steps": "1f58387393be1f1f",
    "curve": "f142c68cda7e0429",
    "ramp": "b883c9ed2c2ae940",
    "sine": "194cedaca55fb808",
    "stages": "8ffaf6bd3fedd82d",
    "rescaled": "67df4ad7dbd6c592",
    "lognormal": "20b7ac4b0beede08",
    "normal": "8ef2a1d00516de3c",
    "gamma lengths": "3ab74332a814fd8f",
    "exponential": "a5c1b9fd13123a9a",
    "zipf": "16fe5f854bda55c5",
    "vllm range": "29e8ab20698c2c3f",
    "sglang range": "acdb598b81928266",
    "empirical": "cef6d732fcf54c36",
    "sessions": "aea2b4f2d1b83e3b",
    "classes": "cd51b9881d34b1e5",
    "groups": "07c39aa74a9037f7",
    "closed": "c183e1e79a896b89",
    "closed for a time": "978008ec8754f10e",
    "trace": "21541e325ecc0576",
    "trace with sessions": "58384e6e2d7567f1",
    "trace's sessions anew": "07fe1ca3fad69847",
    "texts": "f1bb809cac8ed43e",
    "servegen": "ac374aa867a9865f",
}


@pytest.mark.parametrize("name", LOADS)
def test_the_digest_of_every_kind_is_pinned(name: str) -> None:
    """Same seed, same plan, on any machine and with any NumPy; a change of the drawing must be meant."""
    assert drawn(LOADS[name]).digest()[:16] == DIGESTS[name]


DRAWN = """
import json, sys
from loadgen.scenario import build
from loadgen.workload import draw
for name, load in json.load(sys.stdin).items():
    print(json.dumps([name, draw(build({"seed": 7, "load": load})).digest()[:16]]))
"""


def test_another_process_draws_the_same_plans() -> None:
    """Whose hashes of texts are others."""
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", DRAWN],
        input=json.dumps(LOADS),
        env=os.environ | {"PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert dict(map(json.loads, told.stdout.splitlines())) == DIGESTS
