"""The house stands: imports go down only, and pure rooms stay pure."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "loadgen"

# The level of each module or room; a module may import its own room and any lower level.
LEVELS = {
    "units": 0, "strict_yaml": 0, "fields": 0, "faults": 0, "laws": 0, "presets": 0, "knobs": 0, "load": 0,
    "prompts": 0, "manners": 0, "trace_source": 0,
    "backends": 0, "terms": 0, "traits": 0, "server_log": 0,
    "scenario": 0, "target": 0, "shipped": 0, "slo": 0, "slo_sets": 0, "schema": 0,
    "plan": 0, "plan_file": 0, "agenda": 0, "records": 0, "run": 0, "run_folder": 0, "merging": 0,
    "whole_file": 0, "strict_json": 0, "health": 0,
    "workload": 1, "engine": 1, "timer": 1,
    "stats": 2, "client": 2, "pulse": 2,
    "engine.device": 2, "engine.door": 2, "engine.faults": 2, "engine.reply": 2, "engine.serve": 2,
    "engine.model.compute": 2,
    "order": 3, "bundled": 3, "iterations": 3, "drive": 3,
    "compare": 3, "grid": 3, "repeats": 3, "earlier": 3, "calibrate": 3, "baseline": 3, "gate": 3,
    "imports": 3, "level": 3, "looks": 3, "probe": 3, "edges": 3, "capacity": 3, "replicas": 3, "sweep": 3,
    "ladder": 3, "cluster": 3,
    "report": 4, "api": 4,
    "export": 5, "charts": 5, "pages": 6, "studies": 7,
    "cli": 8, "__main__": 8,
}  # fmt: skip
PURE = {place for place, level in LEVELS.items() if level < 2} - {"timer"} | {"stats"}  # a timer waits
IMPURE_MODULES = {"asyncio", "socket", "time", "random", "httpx", "aiohttp", "uvloop", "threading"}
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.stat().st_size)


def place(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    dotted = ".".join(p for p in parts if p != "__init__")
    return dotted if dotted in LEVELS else (parts[0] if parts[0] in LEVELS else "")


def imports(path: Path) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path) -> None:
    """No module imports from a higher level, nor from a sibling room of its own level above 0."""
    here = place(path)
    if not here:  # the package's own __init__ and data files
        return
    for line, name in imports(path):
        if not name.startswith("loadgen."):
            continue
        inner = name.removeprefix("loadgen.")
        longest_first = sorted(LEVELS, key=len, reverse=True)
        there = next((key for key in longest_first if f"{inner}.".startswith(f"{key}.")), None)
        if there is None or there.split(".")[0] == here.split(".")[0]:
            continue
        same_floor = LEVELS[there] == LEVELS[here] and LEVELS[here] in (0, 3, 8)
        assert LEVELS[there] < LEVELS[here] or same_floor, f"{path}:{line}: {here} imports {there}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_pure_rooms_touch_no_world(path: Path) -> None:
    """Levels 0 and 1, and statistics, hold no clock, socket, event loop, unseeded random or print."""
    here = place(path)
    if here not in PURE:
        return
    for line, name in imports(path):
        assert name.split(".")[0] not in IMPURE_MODULES, f"{path}:{line}: {here} imports {name}"
    for node in ast.walk(ast.parse(path.read_text())):
        is_print = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        assert not is_print, f"{path}: {here} prints"


def test_the_client_knows_nothing_of_the_engine_nor_the_engine_of_the_client() -> None:
    """They meet only over HTTP or through Plan and Run."""
    for room, other in (("client", "loadgen.engine"), ("engine", "loadgen.client")):
        for path in (PACKAGE / room).rglob("*.py"):
            assert not [n for _, n in imports(path) if n.startswith(other)], path
