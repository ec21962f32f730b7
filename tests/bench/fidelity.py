"""The fidelity ladder: how far off `loadgen run` is at each rate of events, from its command line.

python -m tests.bench.fidelity: one JSON line on stdout; each rung has all its runs and their median.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.bench.measured import Figures
from tests.bench.options import Setup, parser, setup
from tests.bench.shot import lasting, median, ratios, refer, shoot

LADDER = (1_000, 5_000, 20_000, 40_000, 60_000)  # events per second
TOKENS = 100


def rung(events_per_s: int, seconds: float, asked: Setup) -> dict[str, Any]:
    """All runs of one rate; those of the reference in between, so that both meet the same machine."""
    work = lasting(seconds, events_per_s / TOKENS, TOKENS)
    ours: list[Figures] = []
    theirs: list[Figures] = []
    for i in range(asked.runs):
        ours.append(shoot(work, asked, asked.seed + i))
        if asked.reference is not None:
            theirs.append(refer(work, asked, asked.reference))
        print(f"{events_per_s:,} events/s: {ours[-1]['validity']}", file=sys.stderr, flush=True)
    found = {"asked_events_per_s": events_per_s, "median": median(ours), "runs": ours}
    if theirs:
        beside = {"median": median(theirs), "runs": theirs}
        found |= {"ratio": ratios(median(ours), median(theirs)), "reference": beside}
    return found


def main(words: list[str] | None = None) -> None:
    flags = parser(__doc__)
    flags.add_argument("--events", type=int, nargs="+", default=LADDER, metavar="PER_S", help="the rungs")
    flags.add_argument("--seconds", type=float, default=10.0, help="how long each run's load lasts")
    flags.add_argument(
        "--reference", metavar="COMMAND", help="another client: {port} {rate} {requests} {tokens} {dump}"
    )
    asked = flags.parse_args(words)
    rungs = [rung(events, asked.seconds, setup(asked)) for events in asked.events]
    print(json.dumps({"bench": "fidelity", "server": asked.url or asked.server, "rungs": rungs}))


if __name__ == "__main__":
    main()
