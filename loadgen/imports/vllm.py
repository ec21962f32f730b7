"""The result of vLLM's serving benchmark as a run: what it measured, and nothing that it did not.

Its requests have no due instants, so each is due when it was started (under a cap on concurrency: when it
asked for a place, where the file tells); RunHeader.due_known says so. Its TTFT ends with the first event that
has `choices` in it, and its gaps are between such events. On chat that first event mostly names a role
alone: it is kept as the first choice then, and the next one as the first token. The file does not tell.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from loadgen import __version__
from loadgen.backends import BACKENDS
from loadgen.fields import MAX_COUNT
from loadgen.order import RUNS, new_run_id
from loadgen.records import Outcome, RequestRecord
from loadgen.run import Run, RunHeader
from loadgen.run_folder import RunWriter, load
from loadgen.scenario import ScenarioError, build
from loadgen.units import told

_DETAILS = "run vLLM's benchmark with --save-result --save-detailed"
_LISTS = ("ttfts", "itls", "input_lens", "output_lens", "errors")  # in the order of a _Request
_CLUMPED_S = 0.01  # requests that follow each other faster were asked for all at once
_WAITED_S = 1e-3  # what a free place costs is far less
_MOST_GAP_S = 4294  # as whole microseconds it fits in 32 bits
_WORDS = 2000
_MOST_BYTES = 2**30


class Result(msgspec.Struct, kw_only=True):
    """What is read of the file; all else in it is passed over."""

    input_lens: list[int] | None = None
    output_lens: list[int] | None = None
    start_times: list[float] | None = None
    ttfts: list[float] | None = None
    itls: list[list[float]] | None = None
    errors: list[str] | None = None
    queue_times: list[float] | None = None
    date: str | None = None
    backend: str | None = None
    model_id: str | None = None
    request_rate: float | str | None = None
    burstiness: float | str | None = None
    ramp_up_strategy: str | None = None
    max_concurrency: int | None = None


class _Request(NamedTuple):
    """One of them. `wait_s`: for a place, where there is a cap on concurrency."""

    start_s: float
    wait_s: float
    ttft_s: float
    gaps_s: list[float]
    prompt_tokens: int
    output_tokens: int
    error: str


def bring_in(
    path: Path, folder: Path | None = None, name: str | None = None, slos: Sequence[str] = ()
) -> tuple[Run, Path]:
    """Write what is in `path` as a run folder (by default a new one under runs/), and read it.

    Raises ScenarioError for a file that is no such result, holds no requests one by one, or contradicts
    itself.
    """
    content = _content(path)
    result = _decoded(content, path)
    requests = _requests(result, path)
    origin_s = min(request.start_s - request.wait_s for request in requests)
    opens = _opens_with_role(result, requests)
    records = [_record(i, request, origin_s, result.model_id, opens) for i, request in enumerate(requests)]
    header = _header(result, records, path, name, slos)
    header.first_token_known = not opens
    header.plan_digest = hashlib.sha256(content).hexdigest()
    at = folder or RUNS / header.run_id
    with RunWriter(at) as writer:
        writer.write_header(header)
        for record in records:
            writer.append(record)
    return load(at), at


# --- reading ------------------------------------------------------------------------------------------------


def _content(path: Path) -> bytes:
    try:
        if not path.is_file() and path.exists():
            raise ScenarioError(f"{path}: cannot be read: it is no regular file")
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise ScenarioError(f"{path}: cannot be read: {size:,} bytes, and a result has 1 GiB at most")
        return path.read_bytes()
    except OSError as problem:
        raise ScenarioError(f"{path}: cannot be read: {problem.strerror}") from None


def _decoded(content: bytes, path: Path) -> Result:
    """Python's own reader takes the NaN and Infinity that vLLM writes; msgspec's is sparing with memory."""
    try:
        try:
            return msgspec.json.decode(content, type=Result)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.convert(json.loads(content), Result)
    except msgspec.ValidationError as problem:
        raise ScenarioError(f"{path}: not a result of vLLM's serving benchmark: {told(problem)}") from None
    except (ValueError, RecursionError) as problem:
        several = "Extra data" in str(problem)
        why = "it holds several results (--append-result): cut out one" if several else told(problem)
        raise ScenarioError(f"{path}: not the JSON of one result: {why}") from None


def _requests(result: Result, path: Path) -> list[_Request]:
    """Raises ScenarioError where the lists do not make requests."""
    lists = {name: getattr(result, name) for name in _LISTS}
    if lacking := [name for name, found in lists.items() if found is None]:
        raise ScenarioError(f"{path}: has no {lacking[0]}, so no single request: {_DETAILS}")
    if result.start_times is None:
        raise ScenarioError(
            f"{path}: has no start_times, so nothing tells how requests came: "
            "measure with a newer vLLM, whose results have them"
        )
    n = len(result.start_times)
    waits = result.queue_times if result.max_concurrency else None
    columns = {
        "start_times": result.start_times,
        "queue_times": [0.0] * n if waits is None else waits,
        **lists,
    }
    if len({len(found) for found in columns.values()}) > 1:
        said = ", ".join(f"{len(found)} {name}" for name, found in columns.items())
        raise ScenarioError(f"{path}: its lists are not of one length: {said}")
    if not n:
        raise ScenarioError(f"{path}: it holds no request")
    for name in columns.keys() - {"errors"}:
        _refuse_wrong(columns[name], name, path)
    return list(map(_Request, *columns.values()))


def _refuse_wrong(found: list[Any], name: str, path: Path, most: int = MAX_COUNT) -> None:
    for i, value in enumerate(found):
        if isinstance(value, list):
            _refuse_wrong(value, f"{name}[{i}]", path, _MOST_GAP_S)
        elif not 0 <= value <= most:
            raise ScenarioError(f"{path}: {name}[{i}] is {value!r:.40}: it must be from 0 to {most}")


# --- records ------------------------------------------------------------------------------------------------


def _record(index: int, asked: _Request, origin_s: float, model: str | None, opens: bool) -> RequestRecord:
    """One request, in whole microseconds from the first."""
    started_s = asked.start_s - origin_s
    events_s = started_s + asked.ttft_s + np.cumsum([0.0, *asked.gaps_s])
    events_us = np.rint(events_s * 1e6).astype(int).tolist() if asked.ttft_s else []
    is_ok = bool(events_us) and not asked.error
    tokens_us = events_us
    if opens and (len(events_us) > 1 or not is_ok):
        tokens_us = events_us[1:]
    choice_s, first_s, last_s, end_s = map(
        _seconds, (events_us[:1], tokens_us[:1], tokens_us[-1:], events_us[-1:])
    )
    tokens = asked.output_tokens if is_ok else None
    answered: dict[str, Any] = {"outcome": Outcome.OK, "ended_s": end_s, "tokens_from": "usage"}
    return RequestRecord(
        index=index,
        request_id=str(index),
        phase="measured",
        model=model,
        due_s=max(0.0, round(started_s - asked.wait_s, 6)),
        slot_s=round(started_s, 6) if asked.wait_s > _WAITED_S else None,
        started_s=round(started_s, 6),
        attempts=1,
        first_event_s=choice_s,
        first_choice_s=choice_s,
        first_token_s=first_s,
        last_token_s=last_s,
        last_choice_s=end_s,
        prompt_tokens=asked.prompt_tokens,
        output_tokens=tokens,
        gaps_us=[later - earlier for earlier, later in pairwise(tokens_us)],
        event_tokens=1 if tokens == len(tokens_us) > 0 else None,
        **(answered if is_ok else _failure(asked.error, has_token=bool(events_us))),
    )


def _is_chat(result: Result) -> bool:
    return any(name == result.backend and spoken == "chat" for name, spoken in BACKENDS.items())


def _opens_with_role(result: Result, requests: list[_Request]) -> bool:
    """Whether the first event of an answer names a role alone: on chat, but where most answers have as many
    events as tokens.
    """
    more = Counter(len(r.gaps_s) + 1 - r.output_tokens for r in requests if r.ttft_s and not r.error)
    return _is_chat(result) and more.most_common(1)[:1] != [(0, more[0])]


def _seconds(some_us: list[int]) -> float | None:
    return some_us[0] / 1e6 if some_us else None


_STATUSES = {status.phrase.lower(): status.value for status in HTTPStatus}
_OUTCOMES = {
    "TimeoutError": Outcome.TIMEOUT_TOTAL,
    "ServerTimeoutError": Outcome.TIMEOUT_TOTAL,
    "SocketTimeoutError": Outcome.TIMEOUT_TOTAL,
    "ConnectionTimeoutError": Outcome.TIMEOUT_CONNECT,
    "ClientConnectorError": Outcome.CONNECT_ERROR,
    "ClientConnectorDNSError": Outcome.CONNECT_ERROR,
    "ClientConnectorSSLError": Outcome.CONNECT_ERROR,
    "ClientConnectorCertificateError": Outcome.CONNECT_ERROR,
    "ServerDisconnectedError": Outcome.BROKEN,
    "ClientPayloadError": Outcome.BROKEN,
    "ClientOSError": Outcome.BROKEN,
    "ConnectionResetError": Outcome.BROKEN,
    "JSONDecodeError": Outcome.MALFORMED,
    "Never received a valid chunk to calculate TTFT": Outcome.EMPTY,
}


def _failure(error: str, *, has_token: bool) -> dict[str, Any]:
    """How a request failed, by the words of the file: a status in words, or the end of a traceback."""
    words = error.strip().rpartition("\n")[2].strip()
    said = {"error": words[:_WORDS] or "the file does not say why it failed"}
    status = _STATUSES.get(words.partition(":")[0].lower())
    if found := re.search(r"\b(429|503)\b", words):
        status = int(found[1])
    if status is not None and not has_token:
        refused = status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
        return said | {"status": status, "outcome": Outcome.REJECTED if refused else Outcome.HTTP_ERROR}
    kind = re.split(r"[:.](?:\s|This|$)", words)[0]
    named = _OUTCOMES.get(kind) or _OUTCOMES.get(kind.rpartition(".")[2])
    return said | {"outcome": named or (Outcome.STREAM_ERROR if has_token else Outcome.HTTP_ERROR)}


# --- the header ---------------------------------------------------------------------------------------------


def _header(
    result: Result, records: list[RequestRecord], path: Path, name: str | None, slos: Sequence[str]
) -> RunHeader:
    name = name or re.sub(r"[^\w.-]+", "-", path.stem, flags=re.ASCII).strip("-._")[:64] or "imported"
    law = _law(result, records)
    scenario = build({"name": name, "load": _asked(result, records, law), "slos": [*slos]}, str(path))
    due_s = [record.due_s for record in records]
    is_burst = law == {"kind": "burst"}
    return RunHeader(
        run_id=new_run_id(name),
        name=name,
        source="imported",
        due_known=False,
        complete=True,
        scenario={key: value for key, value in scenario.as_asked().items() if key != "seed"},
        plan_digest="",
        plan_rows=len(records),
        rows_due=len(records),
        rows_not_sent=0,
        window_start_s=min(due_s),
        window_end_s=min(due_s) if is_burst else max(due_s),
        window_by="burst" if is_burst else "count",
        target=f"a server that {path.name} does not name",
        model=result.model_id,
        versions={"loadgen": __version__},
        started_at=_instant(result.date),
        notes=[f"imported from {path.name}, a result of vLLM's serving benchmark, {_backend(result)}"],
    )


def _backend(result: Result) -> str:
    return f"backend {result.backend}" if result.backend else "of an unknown backend"


def _instant(date: str | None) -> str | None:
    """Its local time, of whatever zone."""
    try:
        return None if date is None else datetime.strptime(date, "%Y%m%d-%H%M%S").isoformat()
    except ValueError:
        return date


def _law(result: Result, records: list[RequestRecord]) -> dict[str, Any] | None:
    """The arrivals that were asked for; None where the file does not say."""
    if result.ramp_up_strategy is not None or result.request_rate is None:
        return None
    try:
        rate, shape = float(result.request_rate), float(result.burstiness or 1)
    except ValueError:
        return None
    if rate == inf:
        started = [record.due_s for record in records]
        return {"kind": "burst"} if np.ptp(started) <= _CLUMPED_S * len(started) else None
    if not (rate > 0 and isfinite(rate) and shape > 0):
        return None
    if shape == 1:
        return {"kind": "poisson", "rate": rate}
    return (
        {"kind": "constant", "rate": rate}
        if shape == inf
        else {"kind": "gamma", "rate": rate, "burstiness": shape}
    )


def _asked(result: Result, records: list[RequestRecord], law: dict[str, Any] | None) -> dict[str, Any]:
    """The load as the file tells of it. Answers have the lengths that came: those asked for are not in it."""
    cap = {"max_concurrency": result.max_concurrency} if result.max_concurrency else {}
    common = {"ignore_eos": False, "tail": False, **cap}
    if law is None:
        return common | {
            "requests": [
                {
                    "due": f"{record.due_s:.6f}s",
                    "prompt": max(1, record.prompt_tokens or 0),
                    "output": max(1, record.output_tokens or 0),
                }
                for record in sorted(records, key=lambda record: record.due_s)
            ]
        }
    lengths = {
        "prompt_tokens": Counter(record.prompt_tokens for record in records if record.prompt_tokens),
        "output_tokens": Counter(record.output_tokens for record in records if record.output_tokens),
    }
    kept = {key: _spread(counts) for key, counts in lengths.items() if counts}
    return common | {"arrivals": law, "num_requests": len(records), **kept}


def _spread(counts: Counter[int]) -> int | dict[str, Any]:
    if len(counts) == 1:
        return next(iter(counts))
    values = sorted(counts)
    return {"kind": "empirical", "values": values, "weights": [counts[value] for value in values]}
