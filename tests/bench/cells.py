"""Three pieces of work on which other load testers were measured as well, by `loadgen run`.

python -m tests.bench.cells: one JSON line on stdout. Setting A: the client has both cores, one of them shared
with the server; B: a core of its own. The server has core 0 and real-time priority, since it plays a machine
elsewhere, which a client's load does not slow.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from tests.bench.options import Setup, parser, setup
from tests.bench.process import Place
from tests.bench.shot import Work, median, shoot

CELLS = {
    "P4": Work(3200, 100, 400),
    "P5": Work(1000, 64),
    "P7": Work(240, 100, 20),
}
SETTINGS = {"A": Place(), "B": Place(cpu=1)}


def cell(name: str, setting: str, asked: Setup, stalls: str) -> dict[str, Any]:
    if name == "P7":
        stalling = replace(asked.server, command=f"{asked.server.command} {stalls}")
        asked = replace(asked, server=stalling)
    asked = replace(asked, client=SETTINGS[setting])
    runs = []
    for i in range(asked.runs):
        runs.append(shoot(CELLS[name], asked, asked.seed + i))
        print(f"{name} {setting}: {runs[-1]['validity']}", file=sys.stderr, flush=True)
    return {"cell": name, "setting": setting, "median": median(runs), "runs": runs}


def main(words: list[str] | None = None) -> None:
    flags = parser(__doc__)
    flags.set_defaults(server_cpu=0)
    flags.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    flags.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    flags.add_argument(
        "--stalls",
        default="--stall-every 80 --stall-ms 500",
        metavar="FLAGS",
        help="what makes the server's every 80th gap half a second longer, for P7",
    )
    asked = flags.parse_args(words)
    found = [cell(n, s, setup(asked), asked.stalls) for n in asked.cells for s in asked.settings]
    print(json.dumps({"bench": "cells", "server": asked.url or asked.server, "cells": found}))


if __name__ == "__main__":
    main()
