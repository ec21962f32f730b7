"""What another client says of its own requests: a CSV with the columns xid,t_sched,t_sent,ok,stamps_ns.

One line a request, the stamps of its token events joined by `;`, all on the clock of the server's log.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from loadgen.records import Outcome, Records, RequestRecord
from loadgen.stats.truth import long_fields


def read_dump(path: Path) -> tuple[Records, int]:
    """Its requests as records, and the instant on the clock from which they count."""
    with path.open(newline="") as file, long_fields():
        lines = list(csv.DictReader(file))
    origin_ns = min(int(line["t_sched"]) for line in lines)
    return Records.from_records(_record(i, line, origin_ns) for i, line in enumerate(lines)), origin_ns


def _record(index: int, line: dict[str, str], origin_ns: int) -> RequestRecord:
    stamps = [int(stamp) for stamp in line["stamps_ns"].split(";") if stamp]
    events_us = np.rint((np.array(stamps, np.int64) - origin_ns) / 1e3).astype(np.int64)
    sent_s = (int(line["t_sent"]) - origin_ns) / 1e9
    return RequestRecord(
        index=index,
        request_id=line["xid"],
        phase="measured",
        due_s=(int(line["t_sched"]) - origin_ns) / 1e9,
        started_s=sent_s,
        sent_s=sent_s,
        first_token_s=events_us[0] / 1e6 if stamps else None,
        last_token_s=events_us[-1] / 1e6 if stamps else None,
        outcome=Outcome.OK if line["ok"] == "1" else Outcome.BROKEN,
        gaps_us=np.diff(events_us).tolist(),
        event_tokens=1,
    )
