"""How far a clock elsewhere is ahead of ours: asked many times, the quickest answer tells best."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from loadgen.client.link import Clock

ASKED = 60  # a quick answer is rare where a machine is busy


async def compared(ask: Callable[[], Awaitable[int]], now_ns: Callable[[], int], times: int = ASKED) -> Clock:
    """The clock that `ask` reads, against `now_ns`. Its reading was taken between asking and hearing, so that
    half the time between is the most that the midpoint can be wrong (Cristian, 1989).
    """
    best: Clock | None = None
    for _ in range(times):
        asked_ns = now_ns()
        read_ns = await ask()
        heard_ns = now_ns()
        error_ns = (heard_ns - asked_ns + 1) // 2
        if best is None or error_ns < best.error_ns:
            best = Clock(read_ns - (asked_ns + heard_ns) // 2, error_ns, "measured")
    assert best is not None, "asked at least once"
    return best


def drifted(before: Clock, after: Clock) -> Clock:
    """What to say of a clock that was compared before a run and after it, which went by `before`: if the rate
    is steady, it was never further off than at one of the two ends.
    """
    moved_ns = abs(after.ahead_ns - before.ahead_ns)
    return replace(before, error_ns=max(before.error_ns, moved_ns + after.error_ns))
