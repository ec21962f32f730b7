"""How the client fared during a run, for validity: of one process, and of several together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

StartBy = Literal["clock", "measured", "ntp", "wall"]  # from the surest on
_SUMS = {  # of the health of several processes; of all else the worst
    *("cpu_s", "stalled_s", "stalled_waiting_s", "stalled_asleep_s", "loop_probes"),
    *("reads", "reads_unstamped", "reads_with_several_events", "warm"),
}


class Health(msgspec.Struct, kw_only=True):
    """How the client process fared, for validity. Null where the run had no wall clock (virtual).

    Loop stalls: how late a periodic probe in the event loop woke, from the window's start until the last
    measured answer: the mean over all probes, a quantile, and the maximum.

    Read waits: how long what was read had been there, by the kernel's stamps; the longest between two probes.

    `clock`: whose instants the reads have; `reads_unstamped`: those that had to do with ours all the same.
    `warm`: the connections opened beforehand that were still open as the first request was sent.
    `address_faults`: of a name with several addresses, those that took no connection, and what came of it.
    `cpu_s` is what was used within `wall_s`, and `cpu_wait_s` how long the process was ready to run meanwhile
    and had no core (null where the system does not tell). `stalled_s`: how late the probe was in all, of its
    wakes over 2 ms late; of that, it waited for a core, or was asleep: stopped, or at a disk. Of several
    processes, sums of what is counted, and of the rest the worst; `busiest_share` is the CPU of the busiest
    over its `wall_s`.

    `start_error_s`: how far this process's start may lie from the instant that all agreed on; of several, how
    far two may lie apart. `start_by`: how that is known: one clock for all; each clock `measured` against
    the run's own; or the wall clock that `ntp` keeps, or that nothing is known to keep (`wall`: null).
    """

    clock: Literal["kernel", "user"] | None = None
    processes: int = 1
    processes_lost: int = 0
    reads_unstamped: int = 0
    warm: int | None = None
    wall_s: float | None = None
    cpu_wait_s: float | None = None
    busiest_share: float | None = None
    stalled_s: float | None = None
    stalled_waiting_s: float | None = None
    stalled_asleep_s: float | None = None
    loop_stall_mean_s: float | None = None
    loop_stall_p99_9_s: float | None = None
    loop_stall_max_s: float | None = None
    read_wait_p99_9_s: float | None = None
    read_wait_max_s: float | None = None
    loop_probes: int = 0
    cpu_s: float | None = None
    in_flight_max: int = 0
    reads: int = 0
    reads_with_several_events: int = 0
    descriptors_exhausted: bool = False
    ports_exhausted: bool = False
    address_faults: dict[str, str] = {}
    clock_jump_s: float | None = None
    start_error_s: float | None = None
    start_by: StartBy = "clock"


def merged_health(healths: Sequence[Health | None], in_flight_max: int) -> Health:
    """How several processes fared; None stands for one that was lost."""
    known = [health for health in healths if health is not None]
    lost = len(healths) - len(known)
    whole = Health(
        processes=lost + sum(health.processes for health in known),
        processes_lost=lost + sum(health.processes_lost for health in known),
    )
    for name in Health.__struct_fields__:
        values = [value for health in known if (value := getattr(health, name)) is not None]
        if not values or name in ("processes", "processes_lost"):
            continue
        if name == "clock":
            whole.clock = "user" if "user" in values else "kernel"
        elif name == "start_error_s":  # so far apart may the two be that are off the most
            whole.start_error_s = sum(sorted(values)[-2:])
        elif name == "start_by":
            whole.start_by = max(values, key=get_args(StartBy).index)
        elif name == "address_faults":
            whole.address_faults = dict(sorted(fault for faults in values for fault in faults.items()))
        else:
            setattr(whole, name, sum(values) if name in _SUMS else max(values, key=abs))
    whole.in_flight_max = max(whole.in_flight_max, in_flight_max)
    return whole
