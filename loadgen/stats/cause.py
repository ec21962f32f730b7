"""What held the client up, as far as can be told, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from loadgen.run import Health, Run
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
    late_s, share = health.stalled_s or 0.0, health.busiest_share or 0.0
    waiting_s, asleep_s = health.stalled_waiting_s, health.stalled_asleep_s or 0.0
    if share > LIMITS.cpu_share:
        at_limit = f": the client process is at its limit, {share:.0%} of a core"
        return Cause(at_limit, more_cores(run), less)
    if not late_s:
        return Cause("", f"close other work on this machine, give the client more cores, or {less}", less)
    did_s = {
        _WORKED: (late_s - (waiting_s or 0.0) - asleep_s, more_cores(run)),
        _WAITED: (waiting_s or 0.0, "close that work, or give the client a core of its own (taskset)"),
        _SLEPT if waiting_s is not None else _OFF: (asleep_s, "let nothing stop it, and run it again"),
    }
    what, (for_s, remedy) = max(did_s.items(), key=lambda item: item[1][0])
    return Cause(f": {what} for {about(for_s)} of the {about(late_s)} that it was late in all", remedy, less)


_WORKED = "the client's own work kept it busy"
_WAITED = "other work had the client's core"
_SLEPT = "the client was stopped or asleep (a signal, a debugger, swap, a slow disk, a paused machine)"
_OFF = "the client did not run (other work had its core, or something stopped it)"


def more_cores(run: Run) -> str:
    """What helps a client process that is full."""
    processes = (run.header.health or Health()).processes
    has_more = processes < run.header.host.get("cpus", processes + 1)
    use = "give the client more processes (--processes)" if has_more else "use a machine with more cores"
    return f"{use}, or {_less(run)}"


def _less(run: Run) -> str:
    at_once = run.header.window_by == "burst" or run.asked("load", "arrivals", "kind") == "burst"
    return "send fewer at once" if at_once else "lower the rate"
