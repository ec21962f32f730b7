"""What a calibration says: each rate that was tried, how far off the client was, and what that means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from loadgen.report.figures import UNDEFINED, number
from loadgen.report.tables import Column, Table
from loadgen.stats.truth import Spread

if TYPE_CHECKING:
    from loadgen.calibrate import Calibration, Ceiling, Rung

TITLES = {"events": "Token events", "requests": "Requests of one token"}
LIMITS = {
    "client": "the client was the limit",
    "server": "the server was the limit",
    "others": "other work had the client's core",
}
CLOCKS = {"kernel": "the kernel's clock", "user": "our own clock, in user space"}
UNITS = {"events": "token events/s", "requests": "requests/s"}
LEGEND = (
    "p50 / p99, claimed minus true by the server's own stamps; gaps by size. read lag: an event's instant - "
    "its write; send lag: started - due; late at server: it had the request - due; TTFT counts from "
    "sent, so that its error can be below the send lag; server late: its writes - due; CPU: of a core each."
)
COLUMNS = [
    Column("asked /s"),  # the notes name a rate by it
    Column("reached /s"),
    Column("TTFT off, us"),
    Column("gap off, us", drop=2),
    Column("read lag, us", drop=4),
    Column("send lag, us", drop=6),
    Column("late at server, us", drop=7),
    Column("CPU / server's", drop=1),
    Column("server late, us", drop=3),
    Column("limit", "label"),
]
SAME = 0.97  # of what was held before: less is lower
ALONE = 0.5  # of the cores: a load average above says that others worked meanwhile


def line(rung: Rung) -> str:
    """One rate as it was tried: progress."""
    how = "held" if rung.held else "did not hold"
    limit = f", {LIMITS[rung.limit]}" if rung.limit else ""
    ttft, gap = rung.accuracy.ttft_us, rung.accuracy.gap_us
    gaps = f", a gap by {_pair(gap)}" if gap.p50 is not None else ""
    return f"{number(rung.asked_per_s)} {UNITS[rung.of]}: {how}{limit}; TTFT off by {_pair(ttft)}{gaps} us"


def tables(found: Calibration) -> list[Table]:
    """One for each ladder."""
    return [
        _table(TITLES[of], rungs)
        for of in ("events", "requests")
        if (rungs := [rung for rung in found.rungs if rung.of == of])
    ]


def _table(title: str, rungs: list[Rung]) -> Table:
    found = [f"{number(rung.asked_per_s)}/s: {rung.findings[0]}." for rung in rungs if rung.findings]
    rows = [_row(rung) for rung in rungs]
    told = [i for i in range(len(COLUMNS)) if any(row[i] != UNDEFINED for row in rows)]
    return Table(title, [COLUMNS[i] for i in told], [[row[i] for i in told] for row in rows], found)


def _row(rung: Rung) -> list[str]:
    a = rung.accuracy
    return [
        number(rung.asked_per_s),
        number(rung.reached_per_s),
        *(_pair(spread) for spread in (a.ttft_us, a.gap_us, a.read_lag_us, a.send_lag_us, a.arrival_us)),
        f"{_share(rung.client_cpu_share)} / {_share(rung.server_cpu_share)}",
        _pair(rung.server_late_us),
        rung.limit or "",
    ]


def _pair(spread: Spread) -> str:
    if spread.p50 is None:
        return UNDEFINED
    return f"{number(spread.p50, 1)} / {number(spread.p99, 1)}"


def _share(share: float | None) -> str:
    return UNDEFINED if share is None else f"{share:.0%}"


def conclusion(found: Calibration) -> list[str]:
    """In plain words: what one process can do here, and how far off its figures are then."""
    ceilings = {of: limit for of in ("events", "requests") if (limit := getattr(found, of)) is not None}
    if not ceilings:
        least = f"{number(found.rungs[0].asked_per_s)} {UNITS[found.rungs[0].of]}"
        return [f"Not even the lowest rate, {least}, could be measured here: close other work, try again."]
    reached = ", and ".join(_most(limit, UNITS[of]) for of, limit in ceilings.items())
    said = [f"On this machine one process holds {reached}, by {CLOCKS[found.clock]}."]
    said += [_accuracy(limit, UNITS[of]) for of, limit in ceilings.items()]
    said += _given_out(found)
    if found.load_average is not None and found.load_average > ALONE * found.cpus:
        said.append(
            f"Other work was going on (load average {found.load_average:.1f} on {found.cpus} cores): "
            "left alone, it may do better."
        )
    return said


def _most(limit: Ceiling, unit: str) -> str:
    if limit.failed_at_per_s is None:
        return f"at least {number(limit.per_s)} {unit}"
    return f"{number(limit.per_s)} {unit}, not {number(limit.failed_at_per_s)}"


def _given_out(found: Calibration) -> Iterator[str]:
    """Where a climb ended though the client was not at its limit."""
    for of, unit in UNITS.items():
        rungs = [rung for rung in found.rungs if rung.of == of]
        if rungs and rungs[-1].limit in ("server", "others"):
            yield (
                f"The climb ended at {number(rungs[-1].asked_per_s)} {unit} since the server it runs "
                "against, or other work, gave out: higher rates were not tried."
            )


def lowered(found: Calibration, before: Calibration) -> Iterator[str]:
    """A line where the client held less than it did before."""
    less = [
        f"{number(new.per_s) if new else 'no'} {unit}, not {number(old.per_s)}"
        for of, unit in UNITS.items()
        if (old := getattr(before, of))
        and not ((new := getattr(found, of)) and new.per_s >= SAME * old.per_s)
    ]
    if less:
        yield (
            f"lower than the calibration of {before.taken_at[:10]}, which this one replaces: "
            f"{' and '.join(less)}; calibrate again when nothing else runs"
        )


def _accuracy(limit: Ceiling, unit: str) -> str:
    top, half = limit.at_ceiling, limit.at_half
    said = f"At {number(limit.per_s)} {unit} a TTFT is off by {_off(top.ttft_us)}"
    if top.gap_us.p50 is not None:
        said += f", a gap by {_off(top.gap_us)}"
    if limit.half_per_s < limit.per_s:
        said += f"; at {number(limit.half_per_s)} a TTFT by {_off(half.ttft_us)}"
    return f"{said}."


def _off(spread: Spread) -> str:
    if spread.p50 is None or spread.p99 is None:
        return UNDEFINED
    return f"{number(spread.p50, 1)} us (p50), {number(spread.p99, 1)} us (p99)"
