"""What watching a run costs: each frame, and the counting that it is drawn from.

python -m tests.bench.live [FRAMES]: so many (400) of a run with 5,000 requests in flight and 100,000 token
events a second, one JSON line. `of_a_core` is of FRAMES four times a second; `counting_of_a_core` of so many
events, each read alone; `merging_of_a_core` of two processes that tell theirs five times a second.
"""

from __future__ import annotations

import io
import json
import random
import sys
import time
from collections.abc import Callable
from functools import reduce
from operator import add

from rich.console import Console
from rich.live import Live

from loadgen.client.answer import Answer
from loadgen.client.control import Counters
from loadgen.client.pool import READS_A_SAMPLE
from loadgen.client.spread import Spread
from loadgen.client.worker import TELL_S, framed
from loadgen.report.live import FRAME_S, View
from tests.bench.machine import load_average

IN_FLIGHT = 5_000
EVENTS_PER_S = 100_000


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def cost_s(work: Callable[[], object], times: int) -> float:
    """CPU of one call, in the mean."""
    began_s = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began_s) / times


def busy() -> tuple[Counters, Answer]:
    """Counters of a run under load, and an answer half of whose tokens have come."""
    counters = Counters(due=50_000, sent=50_000, in_flight=IN_FLIGHT, done=45_000, ok=44_000, rejected=1_000)
    counters.errors.update(timeout_idle=300, broken=20)
    answer = Answer(0, lambda: None)
    for seed in range(10_000):
        at = random.Random(seed)
        counters.ttft.count(int(at.lognormvariate(11, 0.7)))
        counters.chunk_gaps.count(int(at.lognormvariate(9.8, 0.4)))
    answer.stream.gaps_us.extend([20_000] * 100)
    answer.stream.events = 101
    return counters, answer


def main(frames: int) -> None:
    counters, answer = busy()
    console = Console(file=Tty(), width=120, color_system="truecolor", _environ={"TERM": "xterm-256color"})
    view, now_s = View(counters, 100_000, "", 0.0, 200.0), 0.0

    def draw() -> None:
        nonlocal now_s
        now_s += FRAME_S
        counters.tokens += round(EVENTS_PER_S * FRAME_S)
        live.update(view.frame(now_s, console.width), refresh=True)

    with Live(console=console, auto_refresh=False, redirect_stdout=False) as live:
        frame_s = cost_s(draw, frames)
    heard_s = cost_s(lambda: counters.heard(answer, 1), 100_000) / READS_A_SAMPLE
    merge_s = cost_s(lambda: (framed(counters), reduce(add, [Spread(), counters.ttft, counters.ttft])), 1000)
    told = {
        "frame_ms": frame_s * 1e3,
        "of_a_core": frame_s / FRAME_S,
        "counting_us_an_event": heard_s * 1e6,
        "counting_of_a_core": heard_s * EVENTS_PER_S,
        "merging_of_a_core": 2 * 2 * merge_s / TELL_S,
    }
    print(json.dumps({key: round(value, 5) for key, value in told.items()} | {"load": load_average()}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
