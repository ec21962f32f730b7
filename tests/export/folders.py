"""Run folders of records, for tests of exports."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from loadgen.records import RequestRecord
from loadgen.run_folder import RunWriter
from tests.records import header


def kept(folder: Path, records: Iterable[RequestRecord], **header_changes: Any) -> Path:
    """`folder`, made a run folder of `records`."""
    with RunWriter(folder) as run:
        run.write_header(header(**header_changes))
        for record in records:
            run.append(record)
    return folder
