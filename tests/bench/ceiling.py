"""What one core of a client can do: the highest rates that are still VALID, many streams at once, a burst.

python -m tests.bench.ceiling: one JSON line on stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.bench.measured import Figures
from tests.bench.options import Setup, parser, setup
from tests.bench.search import highest
from tests.bench.shot import Work, lasting, median, shoot

TOKENS = 100


def searched(work: Callable[[float], Work], bounds: list[float], asked: Setup) -> dict[str, Any]:
    """The highest rate at which a run was VALID, and all that were tried on the way.

    A rate has failed when `runs` tries have: what else the machine does can only lower it.
    """
    tried: list[Figures] = []

    def is_valid(per_s: float) -> bool:
        tried.append({"asked_per_s": per_s, **shoot(work(per_s), asked, asked.seed + len(tried))})
        print(f"{per_s:,.0f}/s: {tried[-1]['validity']} {tried[-1]['because']}", file=sys.stderr, flush=True)
        return tried[-1]["validity"] == "VALID"

    def holds(per_s: float) -> bool:
        return any(is_valid(per_s) for _ in range(asked.runs))

    lowest, most = bounds
    return {"highest_per_s": highest(holds, lowest, most, halvings=3), "tried": tried}


def repeated(work: Work, asked: Setup) -> dict[str, Any]:
    runs = [shoot(work, asked, asked.seed + i) for i in range(asked.runs)]
    print(f"{work.requests:,} requests: {runs[-1]['validity']}", file=sys.stderr, flush=True)
    return {"median": median(runs), "runs": runs}


def parts(told: argparse.Namespace) -> dict[str, Callable[[], dict[str, Any]]]:
    """What there is to measure, by name."""
    asked = setup(told)
    fresh, warm = (
        replace(asked, flags=(*asked.flags, *flags))
        for flags in (("--connections", "fresh"), ("--warm", str(told.burst)))
    )
    burst = Work(told.burst, 64)
    # all have begun after 5 s; hardly one in a million has ended by then
    streams = Work(told.streams, 20, told.streams / 5, gap_ms=1000.0)

    def tokens(per_s: float) -> Work:
        return lasting(told.seconds, per_s / TOKENS, TOKENS)

    def new(per_s: float) -> Work:
        return lasting(told.seconds, per_s, 1)

    return {
        "events": lambda: searched(tokens, told.events, asked),
        "requests": lambda: searched(new, told.requests, asked),
        "requests_fresh": lambda: searched(new, told.requests, fresh),
        "streams": lambda: repeated(streams, asked),
        "burst_cold": lambda: repeated(burst, asked),
        "burst_warm": lambda: repeated(burst, warm),
    }


PARTS = ("events", "requests", "requests_fresh", "streams", "burst_cold", "burst_warm")


def main(words: list[str] | None = None) -> None:
    flags = parser(__doc__)
    flags.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    flags.add_argument("--seconds", type=float, default=5.0, help="how long the load of each try lasts")
    flags.add_argument("--events", type=float, nargs=2, default=[10_000, 320_000], metavar="PER_S")
    flags.add_argument("--requests", type=float, nargs=2, default=[1_000, 32_000], metavar="PER_S")
    flags.add_argument("--streams", type=int, default=10_000, help="at once, of a token a second each")
    flags.add_argument("--burst", type=int, default=1_000, help="requests at one instant")
    told = flags.parse_args(words)
    found = {name: measure() for name, measure in parts(told).items() if name in told.parts}
    print(json.dumps({"bench": "ceiling", "server": told.url or told.server, **found}))


if __name__ == "__main__":
    main()
