"""The fault matrix: every fault there is, what is expected of the real program, and what was seen.

python -m tests.bench.faults --work FOLDER [NAME...]: one fault after another, in some minutes; those whose
name holds a NAME, where one is given. JSON on stdout. Faults of the network need root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from loadgen.report.figures import clean
from tests import faults
from tests.bench.machine import machine
from tests.faults.fault import LIMITS_S, Fault, Seen, seen

COLUMNS = ["fault", "what happens", "expected", "seen", "ended by"]
COLUMNS += ["longest row, s", "run, s", "exit", "peak MB", "held"]
HELD = "yes"
LIMITS = f"Timeouts, unless a fault has its own: {', '.join(f'{n} {s:g} s' for n, s in LIMITS_S.items())}."


def rooms() -> Iterator[tuple[str, Sequence[Fault], bool]]:
    """Each module of faults: its name, what is in it, and whether this machine can set them up."""
    for found in pkgutil.iter_modules(faults.__path__):
        if found.name.startswith("test_"):
            continue
        module = import_module(f"{faults.__name__}.{found.name}")
        if hasattr(module, "FAULTS"):
            yield found.name, module.FAULTS, getattr(module, "CAN", True)


def measured(work: Path, names: Sequence[str] = ()) -> dict[str, Any]:
    """Every fault that can be set up here, or those whose name holds one of `names`."""
    work.mkdir(parents=True, exist_ok=True)
    rows, amiss, left_out = [], [], []
    for room, found, can in rooms():
        if not can:
            left_out.append(f"{room}: its {len(found)} faults cannot be set up here.")
            continue
        for fault in found:
            if not names or any(name in fault.name for name in names):
                got = asyncio.run(seen(fault, work))
                wrong = got.amiss(fault)
                rows.append(_row(fault, got, wrong))
                amiss += [f"{fault.name}: {clean(line)}" for line in wrong]
                print(f"{'NOT SO' if wrong else 'held'}: {fault.name}", file=sys.stderr, flush=True)
    return {
        "columns": COLUMNS,
        "rows": rows,
        "notes": [
            f"{len(rows)} faults, {sum(row[-1] == HELD for row in rows)} as expected. {LIMITS}",
            "Each is one run of the program, its start of a second or so counted. Every row has one record.",
            "Exit 4 where another code is expected: the machine was busy, and the run says that it was late.",
            *left_out,
            *amiss,
        ],
        "machine": machine(),
    }


def _row(fault: Fault, got: Seen, wrong: list[str]) -> list[str | float]:
    return [
        fault.name,
        fault.what,
        ", ".join(dict.fromkeys(outcome.replace("|", " or ") for outcome in fault.outcomes)) or "-",
        ", ".join(f"{n} {outcome}" for outcome, n in Counter(got.outcomes).items()) or "no row sent",
        got.ended_by,
        round(got.row_s, 2),
        round(got.wall_s, 1),
        got.code,
        round(got.rss_mb),
        "NO" if wrong else HELD,
    ]


def main(words: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--work", type=Path, required=True)
    flags.add_argument("names", nargs="*")
    asked = flags.parse_args(words)
    json.dump(measured(asked.work, asked.names), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
