"""How far a client's instants are from the server's own: records beside a server's log of truth."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadgen.records import Floats, Records
from loadgen.scenario import ScenarioError
from loadgen.stats.quantiles import plain
from loadgen.units import told

COLUMNS = (
    *("xid", "status", "outcome", "t_request_read", "t_first_token", "t_last_token", "n_chunks"),
    "offsets_ns",
)
Nanoseconds = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Truth:
    """A server's own stamps, by X-Request-ID: nanoseconds of the monotonic clock that we share with it.

    `read_ns`: when the last byte of a request had been read. `written_ns`: for each content chunk, the
    instant just before its write; request i's are `written_ns[start[i] : start[i + 1]]`.
    """

    place: dict[str, int]
    read_ns: Nanoseconds
    written_ns: Nanoseconds
    start: Nanoseconds

    def written(self, place: int) -> Nanoseconds:
        return self.written_ns[self.start[place] : self.start[place + 1]]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds; None where there was nothing to measure."""

    p50: float | None
    p99: float | None
    max: float | None


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """The spreads of Errors, and how many requests they are of. `gap_us` is of sizes, whatever their sign."""

    requests: int
    events: int
    unmatched: int
    miscounted: int
    read_lag_us: Spread
    send_lag_us: Spread
    arrival_us: Spread
    ttft_us: Spread
    gap_us: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Microseconds, a value for each request or event; what is claimed minus what is true, so that negative
    values are claims that something came earlier than it was written.

    `read_lag_us`: an event's instant - the server's stamp before its write. `send_lag_us`: started - due.
    `arrival_us`: the server had read the request - due. `ttft_us`: first token - sent, against first token
    written - request read. `gap_us`: between successive token events.

    `unmatched`: requests of which the server's log says nothing. `miscounted`: that have not as many token
    events as the server wrote; no event of theirs is compared.
    """

    read_lag_us: Floats
    send_lag_us: Floats
    arrival_us: Floats
    ttft_us: Floats
    gap_us: Floats
    unmatched: int
    miscounted: int

    def accuracy(self) -> Accuracy:
        return Accuracy(
            requests=len(self.send_lag_us),
            events=len(self.read_lag_us),
            unmatched=self.unmatched,
            miscounted=self.miscounted,
            read_lag_us=spread(self.read_lag_us),
            send_lag_us=spread(self.send_lag_us),
            arrival_us=spread(self.arrival_us),
            ttft_us=spread(self.ttft_us),
            gap_us=spread(np.abs(self.gap_us)),
        )


def spread(values_us: Floats) -> Spread:
    ordered = np.sort(values_us)
    p50, p99, most = (plain(ordered, p) for p in (50, 99, 100))
    return Spread(p50=p50, p99=p99, max=most)


def read_truth(path: Path) -> Truth:
    """A server's log: CSV with a header that names COLUMNS; others are not looked at.

    Of several rows with one X-Request-ID the last counts. Raises ScenarioError for a log that is no such.
    """
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as file, long_fields():
            rows = csv.DictReader(file)
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                raise ScenarioError(f"{path}: not a server's log: it has no column {missing[0]}")
            return _truth_of(rows, path)
    except (OSError, csv.Error) as problem:
        raise ScenarioError(f"{path}: cannot be read: {told(problem)}") from None


@contextmanager
def long_fields() -> Iterator[None]:
    """A long answer has a long list of offsets; the limit is the whole process's."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _truth_of(rows: csv.DictReader[str], path: Path) -> Truth:
    place: dict[str, int] = {}
    reads, written, start = array("q"), array("q"), array("q", [0])
    for row in rows:
        try:
            read_ns = int(row["t_request_read"])
            reads.append(read_ns)
            written.extend(read_ns + int(offset) for offset in row["offsets_ns"].split(";") if offset)
        except (AttributeError, OverflowError, TypeError, ValueError):
            raise ScenarioError(f"{path}:{rows.line_num}: a stamp is no whole number") from None
        place[row["xid"]] = len(reads) - 1
        start.append(len(written))
    return Truth(place, *(np.frombuffer(column, np.int64) for column in (reads, written, start)))


def errors(records: Records, origin_ns: int, truth: Truth) -> Errors:
    """Of the measured requests that ended ok. `origin_ns`: the monotonic instant their times count from."""
    answered = np.flatnonzero(records.answered).tolist()
    rows = [row for row in answered if records.request_id[row] in truth.place]
    places = [truth.place[records.request_id[row]] for row in rows]
    due_us, started_us, sent_us = (1e6 * getattr(records, f"{name}_s")[rows] for name in _INSTANTS)
    read_us = (truth.read_ns[places] - origin_ns) / 1e3
    read_lags, ttfts, gaps = [_NOTHING], [_NOTHING], [_NOTHING]
    miscounted = 0
    for i, (row, place) in enumerate(zip(rows, places, strict=True)):
        claimed_us, written_us = _claimed_us(records, row), (truth.written(place) - origin_ns) / 1e3
        if len(claimed_us) != len(written_us):
            miscounted += 1
            continue
        read_lags.append(claimed_us - written_us)
        gaps.append(np.diff(read_lags[-1]))
        ttfts.append((claimed_us[:1] - sent_us[i]) - (written_us[:1] - read_us[i]))
    return Errors(
        read_lag_us=np.concatenate(read_lags),
        send_lag_us=started_us - due_us,
        arrival_us=read_us - due_us,
        ttft_us=np.concatenate(ttfts),
        gap_us=np.concatenate(gaps),
        unmatched=len(answered) - len(rows),
        miscounted=miscounted,
    )


_INSTANTS = ("due", "started", "sent")
_NOTHING: Floats = np.array([])


def _claimed_us(records: Records, row: int) -> Floats:
    """The instant of each of its token events, as recorded."""
    first_us = 1e6 * records.first_token_s[row : row + 1]
    gaps_us = records.gaps_us[records.gap_start[row] : records.gap_start[row + 1]]
    return np.cumsum(np.concatenate((first_us[~np.isnan(first_us)], gaps_us)))
