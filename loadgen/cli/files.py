"""Files that a user names: written, or one clear line why not."""

from __future__ import annotations

from pathlib import Path


def written(path: Path, text: str) -> None:
    """`text` in the file at `path`, whatever it held. Raises ScenarioError."""
    from loadgen.scenario import ScenarioError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise ScenarioError(f"{path}: cannot be written: {problem.strerror}") from None


def folder(path: Path) -> Path:
    """The folder at `path`, made where it is not there yet. Raises ScenarioError."""
    from loadgen.scenario import ScenarioError

    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ScenarioError(f"{path}: cannot be made: {problem.strerror}") from None
    return path
