"""What held the client up, as far as can be told, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from loadgen.health import Health
from loadgen.run import Run
from loadgen.stats.limits import LIMITS
from loadgen.units import about


@dataclass(frozen=True, slots=True)
class Cause:
    """`words`, if any, go on after a limit that was passed. `less`: how to ask less of the client."""

    words: str
    remedy: str
    less: str


def cause(run: Run) -> Cause:
    """A process that has all of its core, or what it did in most of the time that its loop was late."""
    health, less = run.header.health or Health(), _less(run)
    share, waited_s = health.busiest_share or 0.0, health.cpu_wait_s or 0.0
    if share > LIMITS.cpu_share:
        words = f": the client process is at its limit, {share:.0%} of a core"
        return Cause(words, more_cores(run), less)
    if health.stalled_s:
        return _of_stalls(run, health, less)
    if waited_s > (ran_s := health.cpu_s or 0.0):
        words = f": {_WAITED}: it waited for one for {about(waited_s)} in all, and ran for {about(ran_s)}"
        return Cause(words, _ALONE, less)
    return Cause("", f"close other work on this machine, give the client more cores, {_or_less(run)}", less)


def _of_stalls(run: Run, health: Health, less: str) -> Cause:
    late_s, asleep_s = health.stalled_s or 0.0, health.stalled_asleep_s or 0.0
    waiting_s = health.stalled_waiting_s
    did = [
        (late_s - (waiting_s or 0.0) - asleep_s, _WORKED, more_cores(run)),
        (waiting_s or 0.0, _WAITED, _ALONE),
        (asleep_s, _OFF if waiting_s is None else _SLEPT, "let nothing stop it, and run it again"),
    ]
    for_s, what, remedy = max(did)
    return Cause(f": {what} for {about(for_s)} of the {about(late_s)} that it was late in all", remedy, less)


_ALONE = "close that work, or give the client a core of its own (taskset)"
_WORKED = "the client's own work kept it busy"
_WAITED = "other work had the client's core"
_SLEPT = "the client was stopped or asleep (a signal, a debugger, swap, a slow disk, a paused machine)"
_OFF = "the client did not run (other work had its core, or something stopped it)"


def more_cores(run: Run) -> str:
    """What helps a client process that is full."""
    processes = (run.header.health or Health()).processes
    has_more = processes < run.header.host.get("cpus", processes + 1)
    use = "give the client more processes (--processes)" if has_more else "use a machine with more cores"
    return f"{use}, {_or_less(run)}; loadgen calibrate tells what this machine can do"


def _or_less(run: Run) -> str:
    """A burst's connections take longer to open than its requests to write."""
    opens = _is_burst(run) and not run.asked("client", "warm")
    return f"open its connections beforehand (--warm), or {_less(run)}" if opens else f"or {_less(run)}"


def _less(run: Run) -> str:
    return "send fewer at once" if _is_burst(run) else "lower the rate"


def _is_burst(run: Run) -> bool:
    return run.header.window_by == "burst" or run.asked("load", "arrivals", "kind") == "burst"
