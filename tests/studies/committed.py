"""What stands in reports/, which a test of its own holds to what is made today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REPORTS = Path(__file__).parents[2] / "reports"


def figures(name: str) -> Any:
    """The figures of a study, as committed."""
    return json.loads((REPORTS / name / "figures.json").read_text(encoding="utf-8"))["figures"]
