"""No name that a file or a user gives leads out of the folder that it is for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from loadgen.fields import Name
from loadgen.grid import _name
from loadgen.order import new_run_id
from loadgen.run import NAMED

FOLDER = Path("/runs/of/mine")
PARTS = [
    ".",
    "..",
    "/",
    "\\",
    "~",
    "a",
    "run",
    "\0",
    "\n",
    " ",
    "-",
    "_",
    "%2e",
    "\u2024",
    "\uff0f",
    "é",
    ":",
]
names = st.lists(st.sampled_from(PARTS), max_size=8).map("".join) | st.text(max_size=12)


def is_one_entry(name: str) -> bool:
    """By the system's own way to read a path: an entry of the folder itself, and no other."""
    whole = os.path.normpath(f"{FOLDER}/{name}")
    return "\0" not in name and os.path.dirname(whole) == str(FOLDER) and os.path.basename(whole) == name  # noqa: PTH119, PTH120


def of_a_scenario(name: str) -> str | None:
    try:
        return new_run_id(TypeAdapter(Name).validate_python(name))
    except ValidationError:
        return None


def of_a_run(name: str) -> str | None:
    return name if re.search(NAMED, name) else None


def of_a_cell(name: str) -> str | None:
    return _name(1, {f"load.{name}": name, name: {"kind": name}})


@pytest.mark.parametrize("named", [of_a_scenario, of_a_run, of_a_cell])
@given(name=names)
@example("..")
@example("../x")
@example("a\n")
def test_what_becomes_of_a_name_is_one_entry_of_its_folder(
    named: Callable[[str], str | None], name: str
) -> None:
    """A scenario's, a run's in a file, a grid cell's by what varies: refused, or one entry."""
    made = named(name)
    assert made is None or is_one_entry(made)
