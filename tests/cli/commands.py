"""The commands as typer builds them."""

from __future__ import annotations

from typing import Any

import typer.main

from loadgen.cli.app import app


def commands() -> dict[str, Any]:
    """Every command by its name."""
    found: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return found


def flags_of(command: str) -> set[str]:
    """Every spelling of every flag of a command."""
    options = commands()[command].params
    return {flag for option in options for flag in (*option.opts, *option.secondary_opts) if flag[:1] == "-"}
