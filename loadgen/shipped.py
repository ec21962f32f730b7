"""The scenarios that come with the package, by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from loadgen.faults import nearest
from loadgen.scenario import Scenario, ScenarioError, load


def folder() -> Path:
    """Where they are: in the wheel, or beside the package in a clone."""
    packaged = Path(__file__).parent / "workloads"
    return packaged if packaged.is_dir() else Path(__file__).parents[1] / "workloads"


def read(name: str, readable: Sequence[Path] = ()) -> Scenario:
    """The scenario in the file of that name, or the shipped one of that name; see `scenario.load`."""
    return load(located(name), readable)


def located(name: str) -> Path:
    """The file of that name, or the shipped scenario's. Raises ScenarioError where there is neither."""
    if re.match(r"https?://", name):
        raise ScenarioError("a server's address goes to --base-url; what stands alone is a scenario")
    if not re.fullmatch(r"[\w-]{1,60}", name) or Path(name).exists():
        return Path(name)
    ours = {path.stem: path for path in sorted(folder().glob("*.yaml"))}
    if name not in ours:
        near = nearest(name, ours)
        hint = f", did you mean {near}?" if near else ";"
        raise ScenarioError(f"{name}: no such file or shipped scenario{hint} shipped: {', '.join(ours)}")
    return ours[name]
