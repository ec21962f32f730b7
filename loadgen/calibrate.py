"""The instrument's own error on this machine: our client against a server that knows what is true.

A ladder of rates, each a run of its own against `loadgen.pulse` in another process, until one is too much;
then some between.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec

from loadgen import __version__, drive
from loadgen.client.control import Counters, Stop
from loadgen.health import Health
from loadgen.order import Order
from loadgen.run import Run
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.stats import summarize
from loadgen.stats.limits import LIMITS
from loadgen.stats.truth import Accuracy, Spread, Truth, errors, read_truth
from loadgen.strict_json import as_json, read_json
from loadgen.whole_file import write_whole, writing
from loadgen.workload import draw
from loadgen.workload.demand import Demand

SCHEMA = 2
LATE_US = 1000.0  # a server whose p99 is later than this is behind
BUSY = 0.95  # of a core
SHORT = 0.97  # of the rate asked for; less was not reached
END_S = 30.0  # for the server to write its log

Limit = Literal["client", "server", "others"]


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rates to try, lowest first: of token events, or of requests with one token each."""

    of: Literal["events", "requests"]
    rates: tuple[int, ...]
    tokens: int  # of each answer
    ttft_ms: float
    warmup_s: float  # until as many streams are open as will be
    window_s: float
    halvings: int  # between the last rate that held and the first that did not

    def scenario(self, rate: int, url: str, clock: str) -> Scenario:
        load = {
            "arrivals": {"kind": "poisson", "rate": rate / self.tokens},
            "warmup": f"{self.warmup_s}s",
            "duration": f"{self.window_s}s",
            "prompt_tokens": 1,
            "output_tokens": self.tokens,
        }
        return build(
            {
                "name": f"{self.of}-{rate}",
                "target": {"base_url": url, "model": "pulse"},
                "client": {"processes": 1, "clock": clock},
                "load": load,
            }
        )


LADDERS = (
    Ladder("events", (1000, 5000, 10_000, 20_000, 40_000, 80_000, 120_000), 64, 50.0, 0.8, 2.0, 2),
    Ladder("requests", (500, 1000, 2000, 4000, 8000, 16_000), 1, 10.0, 0.3, 1.5, 2),
)
QUICK = (
    Ladder("events", (20_000, 80_000), 64, 50.0, 0.7, 1.0, 1),
    Ladder("requests", (2000, 8000), 1, 10.0, 0.2, 0.8, 2),
)


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One rate of a ladder, and what came of it. `held`: the run can be trusted, and every token event is
    accounted for.

    `limit`: who could not do more; None: neither side; others: what had the client's core meanwhile.
    `*_cpu_share`: of a core.
    `server_late_us`: how long after they were due the server wrote its tokens.
    """

    of: Literal["events", "requests"]
    asked_per_s: float
    reached_per_s: float
    held: bool
    findings: list[str]
    limit: Limit | None
    clock: Literal["kernel", "user"]
    accuracy: Accuracy
    client_cpu_share: float | None
    server_cpu_share: float | None
    server_late_us: Spread


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """The highest rate that held, and how far off the client was there and at about half of it.

    `failed_at_per_s`: the lowest rate that was too much for the client; None: it may do more, since it was
    held up, the server could not, or nothing higher was tried.
    """

    per_s: float
    failed_at_per_s: float | None
    at_ceiling: Accuracy
    half_per_s: float
    at_half: Accuracy


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of this client can do on one machine, and how well. None: not even the lowest rate.

    `clock`: whose instants its reads had. `load_average`: of the last minute before, None where unknown.
    `rungs`: of one ladder after the other, lowest first.
    """

    schema: int = SCHEMA
    taken_at: str
    quick: bool
    host: str
    cpus: int
    python: str
    loadgen: str
    clock: Literal["kernel", "user"]
    load_average: float | None
    rungs: list[Rung]
    events: Ceiling | None
    requests: Ceiling | None

    def save(self, path: Path) -> None:
        """Raises WriteError."""
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, as_json(self))

    def is_of_here(self, clock: str) -> bool:
        """Whether it was taken on this host, by this version, with the clock of a run."""
        here = (platform.node(), os.cpu_count() or 1, __version__)
        return (self.host, self.cpus, self.loadgen) == here and clock == self.clock


def load(path: Path) -> Calibration:
    """A saved one. Raises ScenarioError where it is none, or of another schema."""
    again = "run loadgen calibrate again"
    try:
        return read_json(path, Calibration, SCHEMA)
    except ScenarioError as problem:
        raise ScenarioError(f"{problem}: {again}") from None
    except OSError as problem:
        raise ScenarioError(f"{path}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise ScenarioError(f"{path}: not a calibration: {problem}: {again}") from None


def concluded(rungs: list[Rung], load_average: float | None, *, quick: bool = False) -> Calibration:
    """What the rungs say, taken here and now."""
    of = {ladder.of: _sorted(rungs, ladder.of) for ladder in LADDERS}
    return Calibration(
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        quick=quick,
        host=platform.node(),
        cpus=os.cpu_count() or 1,
        python=platform.python_version(),
        loadgen=__version__,
        clock=rungs[0].clock,
        load_average=load_average,
        rungs=of["events"] + of["requests"],
        events=ceiling(of["events"]),
        requests=ceiling(of["requests"]),
    )


def _sorted(rungs: list[Rung], of: str) -> list[Rung]:
    return sorted((rung for rung in rungs if rung.of == of), key=lambda rung: rung.asked_per_s)


def ceiling(rungs: list[Rung]) -> Ceiling | None:
    """Of one ladder, lowest first."""
    held = [rung for rung in rungs if rung.held]
    if not held:
        return None
    top = held[-1]
    half = min(held, key=lambda rung: abs(rung.reached_per_s - top.reached_per_s / 2))
    failed = [_sent_per_s(rung) for rung in rungs[rungs.index(top) :] if rung.limit == "client"]
    return Ceiling(
        per_s=top.reached_per_s,
        failed_at_per_s=failed[0] if failed else None,
        at_ceiling=top.accuracy,
        half_per_s=half.reached_per_s,
        at_half=half.accuracy,
    )


def _sent_per_s(rung: Rung) -> float:
    """What was asked of the client in truth: chance draws a little more or less."""
    return rung.asked_per_s if _is_short(rung.reached_per_s, rung.asked_per_s) else rung.reached_per_s


def _is_short(reached_per_s: float, asked_per_s: float) -> bool:
    return reached_per_s < SHORT * asked_per_s


def beyond(demand: Demand, found: Calibration, processes: int) -> list[str]:
    """What to know before a plan of such a demand, shared by so many processes, is sent."""
    each = demand.of_each(processes)
    asked = (
        ("requests/s", each.requests_rps, found.requests),
        ("token events/s", each.events_per_s, found.events),
    )
    return [
        _warning(found, limit, what, needed, processes)
        for what, needed, limit in asked
        if limit is not None and needed > limit.per_s
    ]


def _warning(found: Calibration, limit: Ceiling, what: str, needed: float, processes: int) -> str:
    failed, by = limit.failed_at_per_s, "loadgen calibrate --quick" if found.quick else "loadgen calibrate"
    sure = failed is not None and needed > failed
    most = "nothing higher was measured" if failed is None else f"failed at {failed:,.0f}"
    enough = math.ceil(processes * needed / limit.per_s)
    more = f"--processes {enough}, " if enough <= found.cpus else ""
    again = "" if sure else "calibrate again when nothing else runs, or take "
    return (
        f"the plan {'is' if sure else 'may be'} beyond the client: {needed:,.0f} {what} a process are "
        f"expected; on this machine one held {limit.per_s:,.0f}, and {most} ({by}, {found.taken_at[:10]}): "
        f"{again}{more}another machine, or fewer requests"
    )


# --- the runs -----------------------------------------------------------------------------------------------


async def climb(ladder: Ladder, clock: str = "auto") -> AsyncIterator[Rung]:
    """Rung after rung, up to the first that client or server could not, or the second that others spoiled.

    Where the client could not, then some between that one and the last that held. Server and client have a
    core each, where there are two.
    """
    held = spoiled = 0
    for rate in ladder.rates:
        rung = await _settled(ladder, rate, clock)
        yield rung
        spoiled += rung.limit == "others"
        if rung.limit in ("client", "server") or spoiled > 1:
            break
        held = rate if rung.held else held
    if not held or rung.held or rung.limit != "client":
        return
    failed = rate
    for _ in range(ladder.halvings):
        rate = (held + failed) // 2
        rung = await _settled(ladder, rate, clock)
        yield rung
        if rung.limit in ("server", "others"):
            return
        held, failed = (rate, failed) if rung.held else (held, rate)


async def _settled(ladder: Ladder, rate: int, clock: str) -> Rung:
    """Tried again where other work may have come between."""
    tries = 1
    while tries < _tries(rung := await _tried(ladder, rate, clock)):
        tries += 1
    return rung


def _tries(rung: Rung) -> int:
    """How many it takes to believe it. A client that had all of its core was not kept from it."""
    if rung.limit is None or (rung.client_cpu_share or 0.0) > LIMITS.cpu_share:
        return 1
    return 3 if rung.limit == "server" else 2


async def _tried(ladder: Ladder, rate: int, clock: str) -> Rung:
    with TemporaryDirectory(prefix="loadgen-calibrate-") as scratch:
        log, folder = Path(scratch, "truth.csv"), Path(scratch, "run")
        async with _pulse(log, ladder.ttft_ms) as (url, process):
            scenario = ladder.scenario(rate, url, clock)
            assert scenario.target is not None
            order = Order(scenario, draw(scenario), folder, scenario.name)
            with _a_core_each(process.pid):
                run = await drive.fire(
                    *(order, scenario.target),
                    preflight=None,
                    api_key=None,
                    counters=Counters(),
                    stop=Stop(),
                )
            kept, _ = await asyncio.wait_for(process.communicate(b""), END_S)
        return judged(ladder, rate, run, read_truth(log), msgspec.json.decode(kept, type=KeptTime))


@asynccontextmanager
async def _pulse(log: Path, ttft_ms: float) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """The pulse server in a process of its own: its URL, and the process, which ends with its stdin."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadgen.pulse", "--log", str(log), "--ttft-ms", str(ttft_ms)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C is meant for us
    )
    assert process.stdout is not None
    try:
        if not (url := (await process.stdout.readline()).decode().strip()):
            raise RuntimeError("the pulse server did not start; its message stands above")
        yield url, process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@contextmanager
def _a_core_each(pid: int) -> Iterator[None]:
    """The server's process on the last of our cores and ourselves on the first, where there are two."""
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    if len(cores) < 2:
        yield
        return
    os.sched_setaffinity(pid, cores[-1:])
    os.sched_setaffinity(0, cores[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


class KeptTime(msgspec.Struct, frozen=True, kw_only=True):
    """What the pulse server says of itself as it ends."""

    late_us: Spread
    cpu_share: float | None


def judged(ladder: Ladder, rate: int, run: Run, truth: Truth, server: KeptTime) -> Rung:
    """What came of a run at one rate, and whose limit it was."""
    summary, origin_ns, health = summarize(run), run.header.clock_origin_monotonic_ns, run.header.health
    assert origin_ns is not None
    assert health is not None
    accuracy = errors(run.records, origin_ns, truth).accuracy()
    held = summary.validity == "VALID" and not accuracy.unmatched and not accuracy.miscounted
    reached_per_s = summary.output_tokens_per_s or 0.0
    short = not held or _is_short(reached_per_s, rate)
    return Rung(
        of=ladder.of,
        asked_per_s=rate,
        reached_per_s=reached_per_s,
        held=held,
        findings=[finding.text for finding in summary.findings if finding.effect == "invalid"],
        limit=_limit(health, server, held=held) if short else None,
        clock=health.clock or "user",
        accuracy=accuracy,
        client_cpu_share=health.busiest_share,
        server_cpu_share=server.cpu_share,
        server_late_us=server.late_us,
    )


def _limit(health: Health, server: KeptTime, *, held: bool) -> Limit | None:
    """Who could not do more. A client whose core is full is its own limit, whatever the server did."""
    if (health.busiest_share or 0.0) > LIMITS.cpu_share:
        return "client"
    if (server.cpu_share or 0.0) > BUSY:
        return "server"
    if held:  # short by chance
        return None
    held_up_s = (health.stalled_waiting_s or 0.0) + (health.stalled_asleep_s or 0.0)
    others = held_up_s > 0.5 * (health.stalled_s or 0.0)
    if others:  # they made the server late, too
        return "others"
    if (server.late_us.p99 or 0.0) > LATE_US:
        return "server"
    return "client"
