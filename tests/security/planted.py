"""Secrets planted in every place that can hold one, and the search for them in all that is left behind."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from urllib.parse import quote


def spellings(secret: str) -> set[str]:
    """How a secret may stand in a file: as it is, in JSON, in HTML, in a URL, in base64 from any bit."""
    plain = {secret, json.dumps(secret)[1:-1], escape(secret), quote(secret), quote(secret, safe="")}
    return plain | {quote(secret, safe="").lower(), secret.encode().hex(), *base64_cores(secret)}


def base64_cores(secret: str) -> Iterator[str]:
    """What base64 makes of it whatever stands before and after it: less the letters shared with these."""
    for before in range(3):
        coded = base64.b64encode(bytes(before) + secret.encode()).decode().rstrip("=")
        yield coded[-(-before * 8 // 6) : len(coded) - 1]


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Each file below `folder` and its name, unpacked where it is packed."""
    for path in sorted(folder.rglob("*")):
        yield "a file's name", str(path.relative_to(folder))
        if not path.is_file():
            continue
        raw = path.read_bytes()
        yield path.name, raw.decode(errors="replace")
        if zipfile.is_zipfile(io.BytesIO(raw)):
            with zipfile.ZipFile(io.BytesIO(raw)) as packed:
                yield from (
                    (f"{path.name}/{n}", packed.read(n).decode(errors="replace")) for n in packed.namelist()
                )
        if path.suffix == ".parquet":
            import pyarrow.parquet as parquet

            table = parquet.read_table(path)
            yield f"{path.name}'s rows", json.dumps(table.to_pylist(), default=str)
            yield f"{path.name}'s schema", str(table.schema.metadata)


def leaks(secrets: dict[str, str], said: Iterable[tuple[str, str]]) -> set[str]:
    """`which secret in which text`, for each that is found."""
    known = {name: {word.lower() for word in spellings(secret)} for name, secret in secrets.items()}
    return {
        f"{name} in {where}"
        for where, text in said
        for name, words in known.items()
        if any(word in text.lower() for word in words)
    }
