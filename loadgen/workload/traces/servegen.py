"""ServeGen: clients whose arrivals and lengths are given as laws by window of time; requests are drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from loadgen.laws import Gamma, Weibull
from loadgen.units import quoted
from loadgen.workload import exact, streams
from loadgen.workload.arrivals import renewal
from loadgen.workload.traces.columns import Columns
from loadgen.workload.traces.lines import RowError, json_object, mistake, opened, table
from loadgen.workload.traces.values import NS

MAX_ROWS = 20_000_000
WINDOW_S = 600  # of a client with one window only
_ENTRY = re.compile(
    r"""['"]?([0-9]{1,9})['"]?\s*:\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)\s*(?:,|\})"""
)
_LENGTHS = ("input_tokens", "output_tokens")
Instants = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Table:
    """Numbers of tokens, and the sum of the probabilities up to each."""

    tokens: NDArray[np.int32]
    up_to: NDArray[np.float64]

    def draw(self, seed: int, purpose: str, n: int) -> NDArray[np.int32]:
        u = streams.uniforms(seed, purpose, 0, n) * self.up_to[-1]
        place = np.minimum(np.searchsorted(self.up_to, u, side="right"), len(self.tokens) - 1)
        drawn: NDArray[np.int32] = self.tokens[place]
        return drawn


@dataclass(frozen=True, slots=True)
class _Window:
    """A stretch of a client's time, with the laws that hold in it."""

    client: int
    start_s: int
    end_s: int
    gaps: Gamma | Weibull
    lengths: tuple[_Table, _Table]

    @property
    def expected(self) -> float:
        return self.gaps.rate_rps * (self.end_s - self.start_s)


def servegen(into: Columns) -> None:
    """A folder of `chunk-i-trace.csv` and `chunk-i-dataset.json`, a pair a client; the load is all of theirs.

    trace: without a header, window start (s), rate, cv, Gamma or Weibull (blank: idle), shape, scale.
    dataset: by window start, input_tokens and output_tokens as probabilities by number of tokens.

    In each window a client's requests are a stationary renewal process of the window's rate and shape, the
    windows independent: so the mean rate is the window's own (the scale, which would say it again, is not
    used). Prompt and output are drawn independently. `start` counts from the first window.
    """
    windows = [window for client, files in _clients(into) for window in _windows(into, client, *files)]
    if not windows:
        raise mistake(into.asked.file, "no usable rows: no client has a window with a rate and lengths")
    asked, first_s = into.asked, min(window.start_s for window in windows)
    start_s = first_s + asked.start_s
    end_s = start_s + (math.inf if asked.duration_s is None else asked.duration_s)
    inside = [window for window in windows if window.end_s > start_s and window.start_s < end_s]
    if (expected := sum(window.expected for window in inside)) > MAX_ROWS:
        raise mistake(
            asked.file, f"about {expected:,.0f} requests: take a part by load.trace.start and duration"
        )
    _fill(into, inside, (start_s, end_s))
    into.asked = asked.model_copy(update={"start_s": 0.0, "duration_s": None})  # it is sliced by now


def _fill(into: Columns, windows: list[_Window], slice_s: tuple[float, float]) -> None:
    if not windows:
        return
    due = [_due_ns(window, into.seed) for window in windows]
    lengths = [_drawn(window, into.seed, len(some)) for window, some in zip(windows, due, strict=True)]
    columns = [np.concatenate(due), *(np.concatenate([pair[k] for pair in lengths]) for k in (0, 1))]
    order = np.argsort(columns[0], kind="stable")
    start, end = (np.searchsorted(columns[0], at_s * NS, sorter=order) for at_s in slice_s)
    for row in zip(*(column[order[start:end]].tolist() for column in columns), strict=True):
        into.row(0, *row)


# --- reading ------------------------------------------------------------------------------------------------


def _clients(into: Columns) -> Iterator[tuple[int, tuple[Path, Path]]]:
    folder = Path(into.asked.file)
    found = {
        int(m[1]): p for p in _files(folder) if (m := re.fullmatch(r"chunk-([0-9]{1,9})-trace\.csv", p.name))
    }
    if not found:
        raise mistake(
            folder, "no usable rows: a folder with chunk-1-trace.csv, chunk-1-dataset.json and so on"
        )
    for client, trace in sorted(found.items()):
        yield client, (trace, folder / f"chunk-{client}-dataset.json")


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (OSError, ValueError) as problem:
        raise mistake(folder, f"cannot be read: {getattr(problem, 'strerror', None) or problem}") from None


def _windows(into: Columns, client: int, trace: Path, dataset: Path) -> Iterator[_Window]:
    by_start = _dataset(dataset)
    rows = dict(_trace(into, trace))
    starts = sorted(rows)
    lasts = [*(after - start for start, after in pairwise(starts)), 0][: len(starts)]
    if starts:
        lasts[-1] = lasts[-2] if len(lasts) > 1 else WINDOW_S
    for start, last in zip(starts, lasts, strict=True):
        law = rows[start]
        known = [other for other in by_start if other <= start]
        if law is not None and known:
            yield _Window(client, start, start + last, law, by_start[max(known)])
        elif law is not None:
            into.odd["windows left out: the client has no lengths that early"] += 1


def _trace(into: Columns, path: Path) -> Iterator[tuple[int, Gamma | Weibull | None]]:
    for line, cells in table(path, lambda line, problem: into.bad(line, problem, str(path))):
        try:
            if len(cells) != 6:
                raise RowError(f"has {len(cells)} columns, not 6")
            start, rate, _, pattern, shape, _ = (cell.strip() for cell in cells)
            yield int(_number(start)), _law(pattern, rate, shape)
        except RowError as problem:
            into.bad(line, problem, str(path))


def _law(pattern: str, rate: str, shape: str) -> Gamma | Weibull | None:
    if not pattern or _number(rate) == 0:
        return None
    try:
        if pattern == "Gamma":
            return Gamma(kind="gamma", rate=_number(rate), burstiness=_number(shape))
        if pattern == "Weibull":
            return Weibull(kind="weibull", rate=_number(rate), shape=_number(shape))
    except ValidationError as problem:
        raise RowError(f"{pattern} of rate {rate} and shape {shape}: {problem.errors()[0]['msg']}") from None
    raise RowError(f"unknown pattern {quoted(pattern)}: it must be Gamma or Weibull")


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 <= number <= 4e9:
        raise RowError(f"{quoted(text)} must be a number, not below zero")
    return number


def _dataset(path: Path) -> dict[int, tuple[_Table, _Table]]:
    """The tables by window start; windows where one is empty are left out, so the one before goes on."""
    with opened(path) as file:
        raw = file.read()
    try:
        plain = json_object(raw)
        tables = {int(_number(start)): _tables(fields) for start, fields in plain.items()}
    except RowError as problem:
        raise mistake(path, str(problem)) from None
    return {start: pair for start, pair in tables.items() if pair is not None}


def _tables(fields: Any) -> tuple[_Table, _Table] | None:
    if not isinstance(fields, dict) or not all(name in fields for name in _LENGTHS):
        raise RowError(f"each window must have {' and '.join(_LENGTHS)}")
    first, second = (_table(fields[name]) for name in _LENGTHS)
    return None if first is None or second is None else (first, second)


def _table(said: Any) -> _Table | None:
    """From `{12: 0.25, ...}`, as an object or as text."""
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    entries = _ENTRY.findall(text)
    if _ENTRY.sub("", text).strip(" {}\n"):
        raise RowError("lengths must be probabilities by number of tokens, as {12: 0.25}")
    chances = dict(sorted((int(tokens), float(chance)) for tokens, chance in entries))
    up_to = np.cumsum(list(chances.values()))
    if not chances or not 0 < up_to[-1] < np.inf:
        return None
    return _Table(np.array(list(chances), np.int32), up_to)


# --- drawing ------------------------------------------------------------------------------------------------


def _due_ns(window: _Window, seed: int) -> Instants:
    """The instants of a stationary renewal process in the window."""
    purpose, end_ns = f"servegen {window.client} {window.start_s}", (window.end_s - window.start_s) * NS
    gaps_ns = _whole_ns(_first_s(window.gaps, seed, purpose), end_ns)
    while gaps_ns.sum() < end_ns:
        more = _gaps_s(window.gaps, seed, purpose, len(gaps_ns), int(window.expected) + 16)
        gaps_ns = np.concatenate((gaps_ns, _whole_ns(more, end_ns)))
    due = np.cumsum(gaps_ns)
    return window.start_s * NS + due[: np.searchsorted(due, end_ns)]


def _whole_ns(gaps_s: Floats, longest_ns: int) -> Instants:
    """A gap that leads out of the window may be too long for an integer, and is as good shorter."""
    return np.rint(np.minimum(gaps_s * NS, longest_ns)).astype(np.int64)


def _gaps_s(law: Gamma | Weibull, seed: int, purpose: str, start: int, n: int) -> Floats:
    return renewal.unit_gaps(law, seed, purpose)(start, n) / law.rate_rps


def _first_s(law: Gamma | Weibull, seed: int, purpose: str) -> Floats:
    """From the window's start to its first request: a part, uniformly, of a gap chosen by its length.

    Such a gap of a gamma law of shape k is one of shape k + 1; of a Weibull law it is scale x G^(1/k), where
    G is of a gamma law of shape 1 + 1/k.
    """
    part = streams.uniforms(seed, f"{purpose}/part", 0, 1)
    if isinstance(law, Gamma):
        unit = renewal.unit_gammas(law.shape + 1, seed, f"{purpose}/first", 0, 1) * (1 + 1 / law.shape)
    else:
        shape = 1 + 1 / law.shape
        drawn = renewal.unit_gammas(shape, seed, f"{purpose}/first", 0, 1) * shape
        unit = exact.power(drawn, 1 / law.shape) / renewal.mean_of_weibull(law.shape)
    return part * unit / law.rate_rps


def _drawn(window: _Window, seed: int, n: int) -> list[NDArray[np.int32]]:
    names = zip(_LENGTHS, window.lengths, strict=True)
    return [law.draw(seed, f"servegen {window.client} {window.start_s} {name}", n) for name, law in names]
