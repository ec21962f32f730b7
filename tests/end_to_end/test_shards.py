"""One plan sent by three hosts that know of each other nothing but when they start; here, three processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from loadgen.cli.exits import Exit
from loadgen.laws import Poisson
from loadgen.run_folder import load
from loadgen.scenario import build
from loadgen.stats import uniform
from loadgen.stats.limits import LIMITS
from loadgen.workload import arrivals, draw
from tests.end_to_end.process import loadgen, running
from tests.fakes import Received, ScriptedServer, stream_reply

pytestmark = pytest.mark.slow

QUICK = replace(stream_reply(("Once", " upon")), end="keep")
RATE_RPS, ROWS, OF = 150, 600, 3
READY_S = 8  # for three hosts to be ready, where others keep the machine busy
MANY_S = 14  # for those of two processes each
FLAGS = (
    *("--model", "m", "--metrics", "none", "--no-preflight", "--no-tail", "--quiet"),
    *("--request-rate", str(RATE_RPS), "--num-prompts", str(ROWS), "--input-len", "8", "--output-len", "2"),
)


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


@contextmanager
def hosts(url: str, start_at: str, folder: Path, *flags: str) -> Iterator[list[subprocess.Popen[str]]]:
    """The three shards, in folders 1 to 3."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                running(
                    *("run", "--base-url", url, *FLAGS, *flags, "--start-at", start_at),
                    *("--shard", f"{k}/{OF}", "--out", str(k)),
                    cwd=folder,
                )
            )
            for k in range(1, OF + 1)
        ]


def sent(folder: Path, start_at: str, *flags: str) -> list[Received]:
    """What a server received of the three."""

    async def main() -> list[Received]:
        async with ScriptedServer(QUICK) as server:
            with hosts(server.url, start_at, folder, *flags) as processes:
                for process in processes:
                    _, said = await asyncio.to_thread(process.communicate, timeout=60)
                    assert process.returncode in (Exit.OK, Exit.INVALID), said  # here no NTP, or little time
            return server.requests

    return asyncio.run(main())


def test_three_hosts_send_the_plan_of_one(tmp_path: Path) -> None:
    """By two processes each: every row once, at its due time and not before, counted from one start, each in
    words of its own; the instants at which they arrive follow the law that one process would have kept.
    """
    requests = sent(tmp_path, soon(MANY_S), "--processes", "2")
    shards = [load(tmp_path / str(k)) for k in range(1, OF + 1)]
    origins_ns = [shard.header.clock_origin_monotonic_ns or 0 for shard in shards]
    assert max(origins_ns) - min(origins_ns) < 1e6
    asked = build(
        {
            "load": {
                "arrivals": {"kind": "poisson", "rate": f"{RATE_RPS}/s"},
                "num_requests": ROWS,
                "prompt_tokens": 8,
                "output_tokens": 2,
            }
        }
    )
    plan = draw(asked)
    assert {shard.header.plan_digest for shard in shards} == {plan.digest()}
    by_index = sorted((int(r.headers["x-request-id"].rpartition("-")[2]), r.received_at_ns) for r in requests)
    assert [index for index, _ in by_index] == list(range(ROWS))
    late_s = (np.array([at for _, at in by_index]) - origins_ns[0] - plan.due_ns) / 1e9
    assert late_s.min() > -1e-3
    assert np.median(late_s) < 0.05
    came_ns = np.sort(plan.due_ns + np.rint(np.maximum(late_s, 0) * 1e6).astype(np.int64) * 1000)
    u = arrivals.residuals(Poisson(kind="poisson", rate=RATE_RPS), 0, came_ns)
    assert u is not None
    p_values = uniform.p_values(np.clip(u, 1e-15, 1 - 1e-15))
    assert min(p_values.values()) * len(p_values) >= LIMITS.arrivals_p, p_values
    assert len({request.body for request in requests}) == ROWS
    lines = [line for k in (1, 2, 3) for line in (tmp_path / f"{k}/records.jsonl").read_text().splitlines()]
    assert {(row["worker"], row["index"] % 6) for row in map(json.loads, lines)} == {(k, k) for k in range(6)}


def test_what_they_measured_merges_into_one_run(tmp_path: Path) -> None:
    """The merged file is the shards' lines, sorted; its law stands; without a salt all said the same words,
    and on one machine their starts lie no further apart than its clock tells.
    """
    sent(tmp_path, soon(READY_S))
    done = loadgen("merge", "3", "1", "2", "--out", "m", "--json", "--html", "m.html", cwd=tmp_path)
    assert done.code in (Exit.OK, Exit.INVALID), done.err
    summary = json.loads(done.out)
    assert (summary["offered"], summary["outcomes"]["ok"], summary["source"]) == (ROWS, ROWS, "merged")
    assert summary["certificate"]["p"] >= LIMITS.arrivals_p
    assert not {finding["name"] for finding in summary["findings"]} & {"start", "incomplete", "shard"}
    files = [tmp_path / str(k) / "records.jsonl" for k in (1, 2, 3)]
    in_order = subprocess.run(["sort", "-t:", "-k2n", *files], capture_output=True, check=True).stdout
    assert (tmp_path / "m" / "records.jsonl").read_bytes() == in_order
    whole = load(tmp_path / "m").header
    assert {load(tmp_path / str(k)).header.salt for k in (1, 2, 3)} == {whole.salt}
    assert whole.salt == whole.run_id.replace("-run-", "-shared-")
    assert whole.health is not None
    assert (whole.health.start_by, whole.health.processes) == ("clock", OF)
    assert "<html" in (tmp_path / "m.html").read_text()[:200]
    again = loadgen("report", "m", "--json", cwd=tmp_path)
    assert again.out == done.out


def test_a_host_that_is_killed_is_missed_by_name(tmp_path: Path) -> None:
    """What it recorded is in the merged run, which is INVALID: it says which shard, how much is missing."""

    async def main() -> None:
        async with ScriptedServer(QUICK) as server:
            with hosts(server.url, soon(READY_S), tmp_path) as processes:
                await server.until(lambda: len(server.requests) > ROWS // 2, 30)
                os.kill(processes[1].pid, signal.SIGKILL)
                for process in processes:
                    await asyncio.to_thread(process.communicate, timeout=60)

    asyncio.run(main())
    of_killed = len(load(tmp_path / "2").records)
    assert 0 < of_killed < ROWS // OF
    done = loadgen("merge", "1", "2", "3", "--out", "m", cwd=tmp_path, COLUMNS="300")
    assert done.code == Exit.INVALID
    missing = ROWS // OF - of_killed
    said = " ".join(done.out.split())
    assert f"shard 2 was cut short; {missing} of the plan's {ROWS} rows are missing" in said
    assert len(load(tmp_path / "m").records) == ROWS - missing
    without = loadgen("merge", "1", "3", "--out", "n", cwd=tmp_path)
    assert (without.code, without.err) == (
        Exit.USAGE,
        "loadgen: shard 2 of 3 is missing: give all of them\n",
    )


def test_ctrl_c_while_it_waits_ends_it_with_nothing_sent(tmp_path: Path) -> None:
    """Long before the start, and in its last seconds: one line, no folder."""

    async def main(start_s: float, processes: int) -> tuple[int, str, int]:
        async with ScriptedServer(QUICK) as server:
            words = ["run", "--base-url", server.url, *FLAGS, "--start-at", soon(start_s), "--out", "r"]
            words = [word for word in words if word != "--quiet"] + ["--processes", str(processes)]
            with running(*words, cwd=tmp_path) as process:
                assert process.stderr is not None
                line = await asyncio.to_thread(process.stderr.readline)
                while "waiting for the start" not in line:
                    line = await asyncio.to_thread(process.stderr.readline)
                await asyncio.sleep(3 if start_s < 20 else 0.5)  # for the processes to be there
                process.send_signal(signal.SIGINT)
                _, said = await asyncio.to_thread(process.communicate, timeout=30)
            return process.returncode, said, len(server.requests)

    for start_s, processes in ((300, 1), (18, 1), (18, 2)):
        code, said, requests = asyncio.run(main(start_s, processes))
        assert (code, requests) == (Exit.INTERRUPTED, 0)
        assert said.splitlines()[-1] == "loadgen: interrupted before anything was sent; nothing is kept"
        assert not (tmp_path / "r").exists()


def test_a_look_at_the_server_that_takes_too_long_sends_nothing(tmp_path: Path) -> None:
    """The start passes while the server is asked: one line, exit code 2."""

    async def main() -> tuple[int, str]:
        async with ScriptedServer([replace(QUICK, header_delay_s=8.0), QUICK]) as server:
            words = [word for word in FLAGS if word not in ("--no-preflight", "--quiet")]
            with running(
                "run", "--base-url", server.url, *words, "--start-at", soon(6), "--out", "r", cwd=tmp_path
            ) as process:
                _, said = await asyncio.to_thread(process.communicate, timeout=30)
            return process.returncode, said

    code, said = asyncio.run(main())
    assert code == Exit.USAGE, said
    assert "had passed before all was ready; nothing was sent" in said.splitlines()[-1]
    assert not (tmp_path / "r").exists()
