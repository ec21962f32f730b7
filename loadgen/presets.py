"""Named systems' knobs for the bundled engine: one YAML file each, with where it was read and when."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from loadgen import strict_yaml
from loadgen.faults import InsideError, nearest
from loadgen.units import quoted

FOLDER = Path(__file__).parent / "engine" / "presets"


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def document(name: str) -> dict[str, Any]:
    """The file of a preset: `about` (one line), `source`, `date` (of what was read, or when that was read),
    `rules` (sentences: what it does in the order in which it matters, then what is left out), `engine` (its
    knobs).

    Raises ValueError, with the nearest known name, where there is none.
    """
    known = names()
    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean {near}? " if near else ""
        raise ValueError(f"no preset {quoted(name)}; {hint}known: {', '.join(known)}")
    return strict_yaml.read((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")).data


def under(name: str, knobs: dict[str, Any]) -> dict[str, Any]:
    """The preset's knobs with `knobs`, of which `preset` is one, laid over them. Raises InsideError."""
    try:
        below = document(name)["engine"]
    except ValueError as unknown:
        raise InsideError(("preset",), str(unknown)) from None
    return laid(below, knobs)


def laid(below: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`below` with `over` laid over it; groups (kv, cost, jitter ...) of one kind are laid over by key."""
    both = below | over
    for key, value in over.items():
        if not (isinstance(value, dict) and isinstance(base := below.get(key), dict)):
            continue
        if value.get("kind") in (None, base.get("kind")):
            both[key] = laid(base, value)
    return both
