"""What one core of a client can do: the highest rates that are still VALID, many streams at once, a burst.

python -m tests.bench.ceiling: one JSON line on stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.bench.measured import Figures
from tests.bench.options import Setup, parser, setup
from tests.bench.search import highest
from tests.bench.shot import Work, median, shoot

TOKENS = 100
FRESH, WARM = ("--connections", "fresh"), ("--warm", "1000")


def events(per_s: float, seconds: float) -> Work:
    return requests(per_s / TOKENS, seconds, TOKENS)


def requests(per_s: float, seconds: float, tokens: int = 1) -> Work:
    return Work(max(2, round(per_s * seconds)), tokens, per_s)


def searched(work: Callable[[float], Work], bounds: tuple[float, float], asked: Setup) -> dict[str, Any]:
    """The highest rate at which a run is VALID, and all that were tried on the way."""
    tried: list[Figures] = []

    def holds(per_s: float) -> bool:
        tried.append({"asked_per_s": per_s, **shoot(work(per_s), asked, asked.seed + len(tried))})
        print(f"{per_s:,.0f}/s: {tried[-1]['validity']} {tried[-1]['because']}", file=sys.stderr, flush=True)
        return tried[-1]["validity"] == "VALID"

    return {"highest_per_s": highest(holds, *bounds, halvings=3), "tried": tried}


def repeated(work: Work, asked: Setup) -> dict[str, Any]:
    runs = [shoot(work, asked, asked.seed + i) for i in range(asked.runs)]
    print(f"{work.requests:,} requests: {runs[-1]['validity']}", file=sys.stderr, flush=True)
    return {"median": median(runs), "runs": runs}


def main(words: list[str] | None = None) -> None:
    flags = parser(__doc__)
    flags.add_argument("--seconds", type=float, default=5.0, help="how long the load of each try lasts")
    flags.add_argument("--events", type=float, nargs=2, default=(10_000, 320_000), metavar="PER_S")
    flags.add_argument("--requests", type=float, nargs=2, default=(1_000, 32_000), metavar="PER_S")
    flags.add_argument("--streams", type=int, default=10_000, help="at once, of a token a second each")
    flags.add_argument("--burst", type=int, default=1_000, help="requests at one instant")
    told = flags.parse_args(words)
    asked = setup(told)

    def also(*flags: str) -> Setup:
        return replace(asked, flags=(*asked.flags, *flags))

    def new(per_s: float) -> Work:
        return requests(per_s, told.seconds)

    burst = Work(told.burst, 64)
    found = {
        "events": searched(lambda per_s: events(per_s, told.seconds), told.events, asked),
        "requests": searched(new, told.requests, asked),
        "requests_fresh": searched(new, told.requests, also(*FRESH)),
        # all begin within 5 s, and none ends before 9 s
        "streams": repeated(Work(told.streams, 10, told.streams / 5, gap_ms=1000.0), asked),
        "burst_cold": repeated(burst, asked),
        "burst_warm": repeated(burst, also("--warm", str(told.burst))),
    }
    print(json.dumps({"bench": "ceiling", "server": told.url or told.server, **found}))


if __name__ == "__main__":
    main()
