"""What a client claimed of its requests, and how far off that is by the server's own stamps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from loadgen.records import Floats, Records
from loadgen.stats.quantiles import plain
from loadgen.stats.truth import Truth, errors, read_truth

Figures = dict[str, float | int | str | None]
"""By name; the unit stands at its end. p50 and p99 of everything that has many values."""
SHARES = (50, 99)


def claimed(records: Records) -> Figures:
    """Without any log: counts, send lag, TTFT from when it was due, started and sent, gaps."""
    ok = records.only(records.answered)
    events = int(ok.events.sum())
    span_s = _span(np.concatenate([ok.first_token_s, ok.last_token_s]))
    figures: Figures = {
        "requests": len(records),
        "ok": len(ok),
        "events": events,
        "events_per_s": round(events / span_s, 1) if span_s else None,
        **_spread("send_lag", "us", 1e6 * (records.started_s - records.due_s)),
    }
    for name in ("due", "started", "sent"):
        figures |= _spread(f"ttft_from_{name}", "ms", 1e3 * (ok.first_token_s - getattr(ok, f"{name}_s")))
    return figures | _spread("gap", "ms", ok.gaps_us / 1e3)


def off_truth(records: Records, origin_ns: int, log: Path) -> Figures:
    """Each claim minus the truth: of every event, of every request, and of the quantiles themselves.

    `arrival`: from when a request was due until the server had read it. `rate_kept`: the span of the
    plan over that of the arrivals.
    """
    truth = read_truth(log)
    wrong = errors(records, origin_ns, truth)
    ok = records.only(records.answered)
    places = [place for name in ok.request_id if (place := truth.place.get(name)) is not None]
    true_ttft_ms = np.array([at - truth.read_ns[p] for p in places for at in truth.written(p)[:1]]) / 1e6
    true_gap_ms = np.concatenate([[], *(np.diff(truth.written(p)) for p in places)]) / 1e6
    return {
        "unmatched": wrong.unmatched,
        "miscounted": wrong.miscounted,
        **_spread("read_lag", "us", wrong.read_lag_us),
        **_spread("ttft_error", "us", wrong.ttft_us),
        **_spread("gap_error", "us", np.abs(wrong.gap_us)),
        **_spread("arrival", "us", wrong.arrival_us),
        **_spread("true_ttft", "ms", true_ttft_ms),
        **_spread("true_gap", "ms", true_gap_ms),
        **_off("ttft_off", 1e3 * (ok.first_token_s - ok.due_s), true_ttft_ms),
        **_off("gap_off", ok.gaps_us / 1e3, true_gap_ms),
        **_arrivals(records, truth),
    }


def _arrivals(records: Records, truth: Truth) -> Figures:
    known = [i for i, name in enumerate(records.request_id) if name in truth.place]
    arrived_s = truth.read_ns[[truth.place[records.request_id[i]] for i in known]] / 1e9
    span_s, planned_s = _span(arrived_s), _span(records.due_s[known])
    return {
        "arrived": len(known),
        "arrivals_within_ms": round(1e3 * span_s, 2),
        "rate_kept": round(planned_s / span_s, 4) if span_s and planned_s else None,
    }


def _spread(name: str, unit: str, values: Floats) -> Figures:
    return {
        f"{name}_p{p}_{unit}": None if value is None else round(value, 3)
        for p, value in zip(SHARES, _quantiles(values), strict=True)
    }


def _off(name: str, claims_ms: Floats, truths_ms: Floats) -> Figures:
    pairs = zip(SHARES, _quantiles(claims_ms), _quantiles(truths_ms), strict=True)
    return {
        f"{name}_p{p}_ms": None if claim is None or true is None else round(claim - true, 3)
        for p, claim, true in pairs
    }


def _quantiles(values: Floats) -> list[float | None]:
    ordered = np.sort(values[~np.isnan(values)])
    return [plain(ordered, p) for p in SHARES]


def _span(instants_s: Floats) -> float:
    return float(np.ptp(instants_s)) if len(instants_s) else 0.0
