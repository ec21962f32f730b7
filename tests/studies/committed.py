"""What stands in reports/, which a test of its own holds to what is made today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REPORTS = Path(__file__).parents[2] / "reports"
MEASURED = {
    "real-engines": "python -m tests.bench.real_engines",
    "second-opinion": "python -m tests.bench.second_opinion",
    "robustness": "python -m tests.bench.robustness",
}
"""Reports that are no study's, by what makes them: measured over HTTP."""


def figures(name: str) -> Any:
    """The figures of a study, as committed."""
    return json.loads((REPORTS / name / "figures.json").read_text(encoding="utf-8"))["figures"]
