"""Requests that met every limit the scenario set for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from loadgen.records import Floats, Mask, Records
from loadgen.run import Run
from loadgen.slo import FLUIDITY, Limit, Limits, ttft_limit
from loadgen.stats.metrics import EXCUSED, per_request
from loadgen.stats.summary import Goodput
from loadgen.units import duration_s


def goodput(run: Run, offered_rps: float | None) -> Goodput | None:
    """The good requests among the offered, TTFT and E2E from due; None where the scenario sets no limit.

    `rps`: good requests due in the window per second, by the same rule as the offered rate.
    """
    r, by_class = run.records, limits_by_class(run)
    if not any(by_class.values()):
        return None
    good, offered, rows = int(are_good(run).sum()), int(r.offered.sum()), int(r.measured.sum())
    first, *others = by_class.values()
    common = first if all(limits == first for limits in others) else {}
    return Goodput(
        limits_s={metric: limit.value for metric, limit in common.items()},
        per_token_s={metric: limit.per_token_s for metric, limit in common.items() if limit.per_token_s},
        good=good,
        attainment=good / offered if offered else None,
        rps=offered_rps * good / rows if offered_rps is not None and rows else None,
    )


def limits_by_class(run: Run) -> dict[str | None, Limits]:
    """The limits of a good request, of each class that was measured."""
    return {name: _limits(asked) for name, asked in asked_by_class(run, "goodput").items()}


def asked_by_class(run: Run, key: str) -> dict[str | None, Any]:
    """What the scenario says under `key` of each class that was measured: its own, the load's, or of all."""
    names = {name for name, here in zip(run.records.class_, run.records.measured, strict=True) if here}
    of_all = run.asked("load", key) or run.asked(key) or {}
    return {
        name: (name and run.asked("load", "classes", name, key)) or of_all for name in sorted(names, key=str)
    } or {None: of_all}


def are_good(run: Run, slack: float = 1.0) -> Mask:
    """Answered rows that met the limits of their class, each limit times `slack`."""
    r, by_class = run.records, limits_by_class(run)
    columns = per_request(r)
    of_class = np.array(r.class_, object)
    good = np.zeros(len(r), bool)
    for name, limits in by_class.items():
        slackened = {key: Limit(slack * at.value, slack * at.per_token_s) for key, at in limits.items()}
        good |= (of_class == name) & meets(r, columns, slackened)
    return good


def meets(r: Records, columns: Mapping[str, Floats], limits: Limits) -> Mask:
    """Answered rows within every limit. `columns`: as of per_request, and the fluidity where it is limited.

    A TPOT that is not defined (one token) is no miss; an answer without any token misses TTFT and E2E.
    """
    met = r.answered
    for name, limit in limits.items():
        if name == FLUIDITY:
            met = met & (columns[name] >= limit.value)
            continue
        values = columns[f"{name}_s"]
        met = met & ((values <= allowed_s(r, limit)) | (np.isnan(values) & (f"{name}_s" in EXCUSED)))
    return met


def allowed_s(r: Records, limit: Limit) -> Floats:
    """What each row may take, by the tokens of its prompt: asked for, else as the server counted them.

    Where neither is known the limit is that of no prompt. In whole nanoseconds, so that 100 ms and 16 times
    1 ms are the 116 ms that were written.
    """
    tokens = np.where(np.isnan(r.asked_prompt_tokens), r.prompt_tokens, r.asked_prompt_tokens)
    whole: Floats = np.rint((limit.value + limit.per_token_s * np.nan_to_num(tokens)) * 1e9) / 1e9
    return whole


def _limits(asked: dict[str, Any]) -> Limits:
    given = {metric: limit for metric, limit in asked.items() if limit is not None}
    return {
        metric: ttft_limit(limit) if metric == "ttft" else Limit(duration_s(limit))
        for metric, limit in given.items()
    }
