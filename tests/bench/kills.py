"""What is left of a run when one of its processes is killed: twenty instants, drawn from a seed.

python -m tests.bench.kills --work FOLDER [--kills N]: JSON on stdout. Each is a real `loadgen run` of 1,500
requests within 6 s, of which `kill -9` ends the client, a client process of two, the one that looks at the
server's metrics, or the server.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from loadgen.records import Outcome
from loadgen.report.figures import clean
from loadgen.run import Run
from loadgen.run_folder import load
from tests.bench.machine import machine
from tests.bench.server import Served, Server
from tests.processes import children, is_alive, words

REQUESTS, RPS, TOKENS = 1500, 250, 4
LASTS_S = REQUESTS / RPS + 1.5  # with the start of its processes
MARGIN_NS = 100_000_000  # what a server had written so long before a kill was read, and recorded
ENGINE = f"{sys.executable} -m loadgen serve --port {{port}} --step 5ms --max-sequences 64 --model pulse"
COMMANDS = {"worker": "client.worker", "scraper": "client.scrape"}
WHO = ("client", "worker", "scraper", "server")
HELD = "yes"
PROMISE = "what was answered is recorded, and a report says what is missing."
HOW = (
    f"Each is a run of {REQUESTS:,} requests at {RPS}/s, with `kill -9` at that instant of it. What the "
    "server answered is by its own log or count, and unknown where it is the one that was killed. "
    f"Held to it is what was answered {MARGIN_NS // 1_000_000} ms before the kill or earlier."
)
COLUMNS = ["killed", "at, s", "processes", "recorded", "as lost", "server answered", "torn lines"]
COLUMNS += ["exit of the run", "exit of the report", "it says", "held"]


@dataclass(frozen=True, slots=True)
class Kill:
    """Whom, so long after that process is there, of a run of so many client processes."""

    who: str
    after_s: float
    processes: int = 1


@dataclass(slots=True)
class Left:
    """What there is afterwards: of the run, and of what a report makes of it.

    `answered`: how many requests the server answered, by its own log or count; None where it is gone.
    `answers`: those that it had answered whole well before the kill. `stays`: processes that did not end.
    """

    code: int
    said: str
    at_s: float
    is_hit: bool
    stays: list[int]
    answered: int | None = None
    answers: set[str] = field(default_factory=set)
    run: Run | None = None
    report_code: int = 0
    report: str = ""


def drawn(kills: int, seed: int = 1) -> list[Kill]:
    """Each of WHO in turn, at instants spread over a run and moved at random."""
    chance = random.Random(seed)
    instants_s = [LASTS_S * (i + chance.random()) / kills for i in range(kills)]
    chance.shuffle(instants_s)
    return [
        Kill(who, after_s, 2 if who == "worker" else 1 + number // 4 % 2)
        for number, (who, after_s) in enumerate(zip(cycle(WHO), instants_s, strict=False))
    ]


def measured(work: Path, kills: int = 20) -> dict[str, Any]:
    """All of them, one after another."""
    rows, amiss = [], []
    for number, kill in enumerate(drawn(kills), 1):
        left = left_by(kill, work / f"{number:02}-{kill.who}")
        wrong = [*off(kill, left)]
        rows.append(_row(kill, left, wrong))
        amiss += [f"Kill {number}, of the {kill.who}: {clean('; '.join(wrong))}."] if wrong else []
        print(f"{number}: {kill}: {'; '.join(wrong) or 'held'}", file=sys.stderr, flush=True)
    return {
        "columns": COLUMNS,
        "rows": rows,
        "notes": [f"{len(rows)} kills, {len(rows) - len(amiss)} as promised: {PROMISE}", HOW, *amiss],
        "machine": machine(),
    }


def left_by(kill: Kill, work: Path) -> Left:
    """Run, kill, and report on what is left."""
    work.mkdir(parents=True, exist_ok=True)
    server = Server(ENGINE) if kill.who in ("scraper", "server") else Server()
    with server.serving(work) as served:
        left, killed_ns = _killed(kill, work / "run", served)
        if kill.who == "scraper":
            left.answered = _counted(served.url)
    if served.log is not None:
        left.answered, left.answers = _logged(served.log, killed_ns - MARGIN_NS)
    with suppress(Exception):  # what a report says of it is looked at below
        left.run = load(work / "run")
    told = [sys.executable, "-m", "loadgen", "report", str(work / "run"), "--json"]
    done = subprocess.run(told, capture_output=True, text=True, timeout=60, check=False)
    left.report_code, left.report = done.returncode, _told(done.stdout) or done.stderr.strip()
    return left


def _killed(kill: Kill, folder: Path, served: Served) -> tuple[Left, int]:
    words = [
        *(sys.executable, "-m", "loadgen", "run", "--base-url", served.url, "--model", "pulse", "--quiet"),
        *("--request-rate", str(RPS), "--num-prompts", str(REQUESTS), "--no-tail", "--no-preflight"),
        *("--input-len", "8", "--output-len", str(TOKENS), "--processes", str(kill.processes)),
        *("--out", str(folder)),
    ]
    began_s = time.monotonic()
    run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        pid = _pid(kill.who, run.pid, served)
        time.sleep(kill.after_s)
        at_s, family = time.monotonic() - began_s, children(run.pid)
        is_hit = pid in (served.pid, *([run.pid] if run.poll() is None else ()), *family)
        killed_ns = time.perf_counter_ns()
        if is_hit:
            os.kill(pid, signal.SIGKILL)
        _, err = run.communicate(timeout=60)
    finally:
        if run.poll() is None:
            run.kill()
            run.communicate()
    stays = _after(10, family)
    return Left(run.returncode, err.strip(), at_s, is_hit, stays), killed_ns


def _pid(who: str, run: int, served: Served) -> int:
    """Of whom to kill, once that is there."""
    if who in ("client", "server"):
        return run if who == "client" else served.pid or 0
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        for pid in children(run):
            if COMMANDS[who] in words(pid):
                return pid
        time.sleep(0.005)
    raise RuntimeError(f"there was no {who}")


def _after(limit_s: float, pids: list[int]) -> list[int]:
    """Those that have not ended by then."""
    until_s = time.monotonic() + limit_s
    while stays := [pid for pid in pids if is_alive(pid)]:
        if time.monotonic() > until_s:
            return stays
        time.sleep(0.05)
    return []


def _logged(log: Path, by_ns: int) -> tuple[int, set[str]]:
    """How many requests a server answered whole, and which of them by then."""
    with log.open() as lines:
        whole = [row for row in csv.DictReader(lines) if row["outcome"] == "ok"]
    return len(whole), {row["xid"] for row in whole if int(row["t_last_token"]) < by_ns}


def _counted(url: str) -> int:
    """How many requests a server says that it has answered."""
    with urlopen(f"{url}/metrics", timeout=10) as got:
        lines = got.read().decode().splitlines()
    ended = [line for line in lines if re.match(r'vllm:request_success_total{.*="(length|stop)"', line)]
    return round(sum(float(line.rpartition(" ")[2]) for line in ended))


def _told(summary: str) -> str:
    """What speaks against the run; without anything, how its requests ended."""
    if not summary:
        return ""
    s = json.loads(summary)
    invalid = [finding["text"] for finding in s["findings"] if finding["effect"] == "invalid"]
    ended = ", ".join(f"{n} {name}" for name, n in s["outcomes"].items() if n)
    return next(iter(invalid), f"{s['validity']}: {ended}")


# --- what was promised --------------------------------------------------------------------------------------


def off(kill: Kill, left: Left) -> Iterator[str]:
    """Whatever is not as promised."""
    if left.stays:
        yield f"{len(left.stays)} processes were left"
    if "Traceback" in left.said + left.report:
        yield f"a traceback: {left.said}{left.report}"
    if left.run is None:
        yield from _off_before_the_start(kill, left)
        return
    r = left.run.records
    if unrecorded := left.answers - set(r.request_id):
        yield f"{len(unrecorded)} requests were answered and have no record"
    if kill.who == "client" and left.is_hit:
        yield from _off_cut(left, REQUESTS - len(r))
        return
    if not left.run.header.complete or len(r) != left.run.header.rows_due or len(r) != REQUESTS:
        yield f"{len(r)} of {REQUESTS} rows are recorded, and {left.run.header.rows_due} fell due"
    lost = int(r.has(Outcome.ABORTED).sum())
    if lost != left.run.header.rows_lost or (lost and kill.who != "worker"):
        yield f"{lost} rows are aborted, and {left.run.header.rows_lost} were lost"
    if kill.who == "worker" and left.is_hit and left.code not in (0, 4):
        yield f"the run ended with {left.code}"
    if kill.who == "scraper" and left.is_hit and "was lost" not in (left.run.header.server_absent or ""):
        yield f"of the server's metrics it is said: {left.run.header.server_absent}"
    if kill.who == "scraper" and left.answered != int(r.has(Outcome.OK).sum()):
        yield f"the server answered {left.answered}, and {r.has(Outcome.OK).sum()} are recorded as ok"


def _off_before_the_start(kill: Kill, left: Left) -> Iterator[str]:
    """There is no run to report on: then nothing was sent, and one line says that there is none."""
    if left.answered:
        yield f"the server answered {left.answered} requests of a run that cannot be read"
    if left.report_code != 2 or left.report.count("\n"):
        yield f"the report ended with {left.report_code}: {left.report}"
    if left.said.count("\n") or (kill.who == "worker" and left.code != 4):
        yield f"the run ended with {left.code}: {left.said}"


def _off_cut(left: Left, missing: int) -> Iterator[str]:
    assert left.run is not None
    if left.run.header.complete:
        return  # it was all but over
    if left.report_code != 4 or "did not come to its end" not in left.report:
        yield f"the report ended with {left.report_code}: {left.report}"
    if missing and f"{missing:,} are missing" not in left.report:
        yield f"{missing} rows are missing, and the report says: {left.report}"


def _row(kill: Kill, left: Left, wrong: list[str]) -> list[Any]:
    run = left.run
    return [
        kill.who if left.is_hit else f"{kill.who}, after it had ended",
        round(left.at_s, 2),
        kill.processes,
        0 if run is None else len(run.records),
        0 if run is None else run.header.rows_lost,
        "-" if left.answered is None else left.answered,
        0 if run is None else run.torn_lines,
        left.code,
        left.report_code,
        clean(left.report)[:200],
        "NO" if wrong else HELD,
    ]


def main(words: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--work", type=Path, required=True)
    flags.add_argument("--kills", type=int, default=20)
    asked = flags.parse_args(words)
    json.dump(measured(asked.work, asked.kills), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
