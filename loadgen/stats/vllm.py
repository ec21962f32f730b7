"""A run under the keys and by the definitions of `vllm bench serve`, for scripts that read its results."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import numpy as np

from loadgen.backends import BACKENDS, CHAT, dialect_at
from loadgen.laws import Constant, Gamma, Poisson, Ramp
from loadgen.records import OUTCOMES, Floats, Mask, Outcome, Records
from loadgen.run import Run
from loadgen.stats.certificate import declared
from loadgen.stats.counted import Counted, Tally
from loadgen.stats.flow import window_s
from loadgen.stats.metrics import gaps_of, span_s
from loadgen.stats.quantiles import Ordered, of_ordered
from loadgen.stats.summary import Summary
from loadgen.stats.warmup import settled


def vllm_result(run: Run, summary: Summary) -> dict[str, Any]:
    """The measured rows as vLLM's benchmark would print them; ms, and null (not 0) where nothing answered.

    Its definitions, which are not loadgen's: latencies count from the start of the request, not from when it
    was due; only events with `choices` in them count, though they bear a mere role or an empty text; TTFT
    ends with the first of them and E2EL with the last; ITL is one sample for every later one, however many
    tokens it has; TPOT = (E2EL - TTFT) / (n - 1), for n > 1; throughput is over the whole time, drain
    included.

    Of events without a token, records have only the first and the last: ITL lacks a sample for each one
    between, and for a first or last one that came in one read with a token. `max_output_tokens_per_s` and
    `rtfx` are not computed. `loadgen_invalid`, which it has not: the findings by which the run is INVALID.
    """
    run = settled(run)
    r, ok = run.records, run.records.answered
    first_s, last_s = _or(r.first_choice_s, r.first_event_s), _or(r.last_choice_s, r.last_token_s)
    ttft_s, e2el_s = span_s(first_s, r.started_s), span_s(last_s, r.started_s)
    outputs = r.received_tokens
    tpot_s = np.divide(e2el_s - ttft_s, outputs - 1, out=np.full(len(r), np.nan), where=outputs > 1)
    prompts = _or(r.prompt_tokens, r.asked_prompt_tokens)
    seconds = _duration_s(run)
    totals = {"input": float(np.nansum(prompts[ok])), "output": float(outputs[ok].sum())}
    good = _good(summary, ok, ttft_s, tpot_s, e2el_s)
    asked = _asked(run, summary)
    return asked | {
        "duration": seconds,
        "completed": int(ok.sum()),
        "failed": summary.offered - int(ok.sum()),
        "total_input_tokens": int(totals["input"]),
        "total_output_tokens": int(totals["output"]),
        "request_throughput": _per(int(ok.sum()), seconds),
        "request_goodput": None if good is None else _per(good, seconds),
        "output_throughput": _per(totals["output"], seconds),
        "total_token_throughput": _per(totals["input"] + totals["output"], seconds),
        "max_output_tokens_per_s": None,
        "max_concurrent_requests": _busiest_second(r.started_s[ok], last_s[ok]),
        "rtfx": None,
        **_milliseconds("ttft", _known(ttft_s[ok]), per_ms=1e-3),
        **_milliseconds("tpot", _known(tpot_s[ok]), per_ms=1e-3),
        **_milliseconds("itl", _itl_us(r, ok, first_s, last_s), per_ms=1e3),
        **_milliseconds("e2el", _known(e2el_s[ok]), per_ms=1e-3),
        **(_queued(span_s(r.ready_s, r.due_s)[ok], e2el_s[ok]) if asked["max_concurrency"] else {}),
        "loadgen_invalid": [finding.name for finding in summary.findings if finding.effect == "invalid"],
    }


def _asked(run: Run, summary: Summary) -> dict[str, Any]:
    endpoint = _endpoint(run)
    return {
        "date": run.header.started_at,
        "endpoint_type": endpoint,
        "backend": run.asked("target", "backend") or _name(endpoint),
        "label": None,
        "model_id": summary.model,
        "tokenizer_id": None,
        "num_prompts": summary.offered,
        **_arrivals(run),
        "max_concurrency": run.asked("load", "max_concurrency"),
    }


def with_requests(run: Run, summary: Summary) -> dict[str, Any]:
    """The same with its requests one by one, as under `--save-detailed`, but without texts.

    Those that were never started are left out: it knows none. A failed one has the words of its status where
    it has one, as there, else what it said or how it ended.
    """
    run = settled(run)
    r = run.records.only(run.records.offered & ~np.isnan(run.records.started_s))
    first_s, last_s = _or(r.first_choice_s, r.first_event_s), _or(r.last_choice_s, r.last_token_s)
    prompts = _or(r.prompt_tokens, r.asked_prompt_tokens)
    return vllm_result(run, summary) | {
        "input_lens": np.nan_to_num(prompts).astype(int).tolist(),
        "output_lens": np.where(r.answered, r.received_tokens, 0).astype(int).tolist(),
        "start_times": r.started_s.tolist(),
        "ttfts": np.nan_to_num(span_s(first_s, r.started_s)).tolist(),
        "itls": [_itls_s(r, row, first_s[row], last_s[row]) for row in range(len(r))],
        "errors": [_error(r, row) for row in range(len(r))],
        "queue_times": span_s(r.started_s, r.due_s).tolist(),
    }


def _itls_s(r: Records, row: int, first_s: float, last_s: float) -> list[float]:
    """Its gaps, those to and from events without a token with them, where these came at another instant."""
    gaps_us = r.gaps_us[r.gap_start[row] : r.gap_start[row + 1]].tolist()
    ends_us = np.rint([(r.first_token_s[row] - first_s) * 1e6, (last_s - r.last_token_s[row]) * 1e6])
    before, after = ([gap] if gap > 0 else [] for gap in ends_us.tolist())  # NaN is no gap
    return [gap / 1e6 for gap in (*before, *gaps_us, *after)]


def _error(r: Records, row: int) -> str:
    outcome, status = OUTCOMES[r.outcome[row]], r.status[row]
    if outcome is Outcome.OK:
        return ""
    if status != 200 and status in {known.value for known in HTTPStatus}:
        return HTTPStatus(int(status)).phrase
    return r.error[row] or outcome.value


def _or(values: Floats, others: Floats) -> Floats:
    return np.where(np.isnan(values), others, values)


def _itl_us(r: Records, ok: Mask, first_s: Floats, last_s: Floats) -> Counted:
    """Gaps between token events, and to these from a first event without one, and on to a last."""
    ends_s = np.concatenate([(r.first_token_s - first_s)[ok], (last_s - r.last_token_s)[ok]])
    ends_us = np.rint(ends_s * 1e6)
    tally = Tally()
    tally.add(Counted.of(ends_us[ends_us > 0]))
    for some in r.blocks():
        tally.add(Counted.of(gaps_of(some, some.answered)))
    return tally.counted()


def _name(endpoint: str | None) -> str | None:
    """The first of the backends' names for what is spoken there."""
    dialect = dialect_at(endpoint or "")
    return next((name for name, spoken in BACKENDS.items() if spoken == dialect), None)


def _endpoint(run: Run) -> str | None:
    """That of the bundled engine where there is no target; None where none is known."""
    found: str | None = run.asked("target", "endpoint")
    return found or (None if run.header.source == "imported" else CHAT)


def _duration_s(run: Run) -> float | None:
    ended_s = run.records.ended_s[run.records.offered & ~np.isnan(run.records.ended_s)]
    start_s = (window_s(run) or (run.header.window_start_s,))[0]
    return float(ended_s.max() - start_s) if len(ended_s) else None


def _arrivals(run: Run) -> dict[str, Any]:
    """Its burstiness is the gamma shape: infinity, as text, for constant gaps. A burst's rate is infinite;
    so is, to it, that of a ramp.
    """
    law = declared(run)
    if isinstance(law, Ramp):
        ends = {"ramp_up_start_rps": law.from_rps, "ramp_up_end_rps": law.to_rps}
        return {"request_rate": "inf", "burstiness": 1.0, "ramp_up_strategy": "linear", **ends}
    if not isinstance(law, Poisson | Gamma | Constant):
        return {"request_rate": "inf" if run.header.window_by == "burst" else None, "burstiness": None}
    shape = "inf" if isinstance(law, Constant) else law.shape if isinstance(law, Gamma) else 1.0
    return {"request_rate": law.rate_rps, "burstiness": shape}


def _good(summary: Summary, ok: Mask, ttft_s: Floats, tpot_s: Floats, e2el_s: Floats) -> int | None:
    if summary.goodput is None or not summary.goodput.limits_s or summary.goodput.per_token_s:
        return None  # it knows one set of limits, the same for every prompt
    values = {"ttft": ttft_s, "tpot": np.nan_to_num(tpot_s), "e2e": e2el_s}  # a TPOT of one token is 0 there
    met = [values[name] <= limit_s for name, limit_s in summary.goodput.limits_s.items()]
    return int(np.all([ok, *met], axis=0).sum())


def _busiest_second(began: Floats, over: Floats) -> int:
    """Most requests that touched one and the same second, counted from the first start."""
    known = ~np.isnan(began) & ~np.isnan(over)
    if not known.any():
        return 0
    origin = began[known].min()
    first, last = (began[known] - origin).astype(int), (over[known] - origin).astype(int)
    begun = np.arange(1, len(first) + 1)  # the most are there when one begins: seconds between are not made
    return int((begun - np.searchsorted(np.sort(last), np.sort(first))).max())


def _known(values: Floats) -> Floats:
    """Ascending, without NaN."""
    return np.sort(values[~np.isnan(values)])


def _milliseconds(name: str, ordered: Ordered, per_ms: float) -> dict[str, float | None]:
    d = of_ordered(ordered, len(ordered), per_ms)
    population = None if d.mean is None else (d.sd or 0.0) * ((d.n - 1) / d.n) ** 0.5
    stats = {"mean": d.mean, "median": d.quantiles["p50"], "std": population, "p99": d.quantiles["p99"]}
    return {f"{stat}_{name}_ms": value for stat, value in stats.items()}


def _queued(queue_s: Floats, e2el_s: Floats) -> dict[str, float | None]:
    return {
        **_milliseconds("client_queue_time", _known(queue_s), per_ms=1e-3),
        **_milliseconds("e2el_including_client_queue", _known(queue_s + e2el_s), per_ms=1e-3),
    }


def _per(count: float, seconds: float | None) -> float | None:
    return count / seconds if seconds else None
