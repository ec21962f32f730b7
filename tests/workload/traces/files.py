"""Small files for these tests, and what is read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loadgen.scenario import ScenarioError
from loadgen.trace_source import TraceSource
from loadgen.workload.traces import Trace, read

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def trace(folder: Path, form: str, text: str | bytes, **asked: Any) -> Trace:
    """What is read from a file with this text; `asked` as YAML would have it."""
    file = folder / "it"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(TraceSource.model_validate({"file": str(file), "format": form} | asked))


def refusal(folder: Path, form: str, text: str | bytes, **asked: Any) -> str:
    """What is said of it, without the folder."""
    with pytest.raises(ScenarioError) as caught:
        trace(folder, form, text, **asked)
    said = str(caught.value)
    assert "\n" not in said
    return said.removeprefix(f"{folder}/")


def azure_rows(*rows: tuple[str, int, int]) -> str:
    """Rows of Azure's columns: a time of day, tokens in, tokens out."""
    return AZURE + "".join(f"2031-05-04 {at},{prompt},{output}\n" for at, prompt, output in rows)
