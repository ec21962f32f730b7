"""Requests as rows: CSV for a spreadsheet, Parquet and JSON lines for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from loadgen.export.requests import COLUMNS, METRICS, Block, requests
from loadgen.report.figures import clean
from loadgen.run import RunHeader
from loadgen.scenario import ScenarioError

_WHOSE = ("run_id", "source")
HEADS = (*_WHOSE, *(column.key for column in COLUMNS), *METRICS)
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # what a spreadsheet would compute
_LONGEST = 2000
_BLOCKS_A_GROUP = 16  # of rows that are read together


def write_csv(folder: Path, file: BinaryIO) -> int:
    """One row a request, its lists left out; texts are such that neither spreadsheet nor terminal obeys them.

    How many rows there are. As all of these: raises ScenarioError.
    """
    header, blocks = requests(folder)
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        return _write_rows(header, blocks, csv.writer(text, lineterminator="\n"))
    finally:
        text.detach()  # else it would close the file, which may be stdout


def _write_rows(header: RunHeader, blocks: Iterable[Block], table: Any) -> int:
    table.writerow(HEADS)
    whose = [harmless(value) for value in _whose(header)]
    count = 0
    for block in blocks:
        columns = [_cells(column.of(block.records), column.kind) for column in COLUMNS]
        table.writerows((*whose, *row) for row in zip(*columns, *block.metrics.values(), strict=True))
        count += len(block.records)
    return count


def _whose(header: RunHeader) -> tuple[str, str]:
    return header.run_id, header.source


def _cells(values: list[Any], kind: str) -> list[Any]:
    if kind != "text":
        return values
    return [None if value is None else harmless(value) for value in values]


@lru_cache(256)  # most columns hold few texts
def harmless(text: str) -> str:
    """On one line, without marks that are not seen, and no formula."""
    shown = clean(text, _LONGEST)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def write_jsonl(folder: Path, file: BinaryIO) -> int:
    """One object a request: the record as it is, and the metrics."""
    header, blocks = requests(folder)
    encode = msgspec.json.Encoder().encode
    begin = encode(dict(zip(_WHOSE, _whose(header), strict=True)))[:-1]
    count = 0
    for block in blocks:
        for record, *values in zip(block.records, *block.metrics.values(), strict=True):
            metrics = encode(dict(zip(METRICS, values, strict=True)))
            file.write(b"%s,%s,%s\n" % (begin, encode(record)[1:-1], metrics[1:]))
        count += len(block.records)
    return count


def write_parquet(folder: Path, file: BinaryIO) -> int:
    """One row a request, as in CSV but for texts, which are as they came; and `gaps_us`."""
    arrow, parquet = _pyarrow()
    header, blocks = requests(folder)
    types = {
        "text": arrow.string(),
        "count": arrow.int64(),
        "number": arrow.float64(),
        "bool": arrow.bool_(),
    }
    schema = arrow.schema(
        [(name, types["text"]) for name in _WHOSE]
        + [(column.key, types[column.kind]) for column in COLUMNS]
        + [(name, types["number"]) for name in METRICS]
        + [("gaps_us", arrow.list_(arrow.uint32()))]
    )
    count = 0
    tables = (arrow.table(_arrays(header, block), schema=schema) for block in blocks)
    with parquet.ParquetWriter(file, schema, compression="zstd") as whole:
        while some := list(islice(tables, _BLOCKS_A_GROUP)):
            group = arrow.concat_tables(some)
            whole.write_table(group)
            count += len(group)
    return count


def _arrays(header: RunHeader, block: Block) -> list[list[Any]]:
    return [
        *([value] * len(block.records) for value in _whose(header)),
        *(column.of(block.records) for column in COLUMNS),
        *block.metrics.values(),
        [record.gaps_us for record in block.records],
    ]


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ScenarioError(
            "parquet needs pyarrow: pip install 'loadgen[parquet]', or choose csv or jsonl"
        ) from None
    return pa, pq
