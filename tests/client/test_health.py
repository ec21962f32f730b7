"""The probe of the client's own loop, in virtual time."""

from __future__ import annotations

from loadgen.client.health import Probe
from loadgen.plan import Window
from loadgen.run import Health
from loadgen.timer import LoopTimer
from tests.virtual_loop import VirtualLoop, run_virtual


def test_a_stall_that_lasts_to_the_end_is_seen() -> None:
    """The probe is left before it can wake: it has been 400 ms late all the same."""
    health = Health()

    async def main(loop: VirtualLoop) -> None:
        timer, window = LoopTimer(loop.now_ns), Window(0, 0, "burst")
        async with Probe(window, health, origin_ns=loop.now_ns(), timer=timer, now_ns=loop.now_ns):
            loop.block(0.4)

    run_virtual(main)
    assert (health.loop_probes, health.loop_stall_max_s) == (41, 0.4)
