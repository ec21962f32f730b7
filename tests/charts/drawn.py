"""Random runs of every kind of request, and what a test asks of any Picture."""

from __future__ import annotations

import json
import random
from typing import Any

from loadgen.charts.picture import Picture
from loadgen.records import Outcome, RequestRecord
from loadgen.run import Run
from tests.records import failed, ok, run_of

_ENDINGS = [*[Outcome.OK] * 6, Outcome.REJECTED, Outcome.BROKEN, Outcome.ABORTED, Outcome.UNSENT]


def any_record(index: int, dice: random.Random) -> RequestRecord:
    """Of any outcome and phase; some that failed had tokens before."""
    due_s, outcome = round(dice.uniform(0, 12), 6), dice.choice(_ENDINGS)
    changes: dict[str, Any] = {
        "outcome": outcome,
        "phase": dice.choice(["warmup", *["measured"] * 5, "tail"]),
    }
    if outcome is Outcome.UNSENT:
        return failed(index, due_s, **changes, started_s=None, sent_s=None, ended_s=None)
    if outcome is Outcome.REJECTED or dice.random() < 0.1:
        return failed(index, due_s, **changes | {"outcome": Outcome.REJECTED})
    gaps_us = [round(dice.expovariate(1 / 20_000)) for _ in range(dice.randrange(9))]
    return ok(index, due_s, ttft_s=round(dice.lognormvariate(-2, 1), 6), gaps_us=gaps_us, **changes)


def any_run(seed: int, n: int = 60, **header: Any) -> Run:
    dice = random.Random(seed)
    return run_of([any_record(index, dice) for index in range(n)], **header)


def is_whole(picture: Picture) -> bool:
    """Its data are strict JSON, columns of one length, and all that its spec names."""
    text = json.dumps([picture.spec, picture.data], allow_nan=False)
    lengths = [{len(values) for values in columns.values()} for columns in picture.data.values()]
    return (
        all(len(each) == 1 for each in lengths)
        and _names(picture.spec) == set(picture.data)
        and "NaN" not in text
        and all(len(row) == len(picture.table.columns) for row in picture.table.rows)
        and len(picture.table.rows) <= 60
    )


def _names(spec: Any) -> set[str]:
    """The data that a spec is of."""
    if isinstance(spec, list):
        return set().union(*map(_names, spec))
    if not isinstance(spec, dict):
        return set()
    own = {spec["data"]["name"]} if "name" in spec.get("data", {}) else set()
    return own.union(*(_names(each) for each in spec.values()))
