"""A scenario from a stranger sends nothing of this machine that does not lie beside it."""

from __future__ import annotations

import os
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.cli import flags
from loadgen.scenario import ScenarioError, load
from loadgen.shipped import folder, read

TEXTS = """\
load:
  arrivals: {kind: burst}
  num_requests: 1
  output_tokens: 1
  trace: {format: text, file: 'FILE'}
"""
LENGTHS = TEXTS.replace("trace: {format: text,", "prompt_tokens: {kind: empirical, column: n,")
BESIDE = TEXTS.replace("FILE", "beside.txt")
VARIED = BESIDE + "vary: {load.trace.file: [beside.txt, 'FILE']}\n"
VARIED_WHOLE = BESIDE + "vary: {load.trace: [{format: text, file: 'FILE'}]}\n"
OUTSIDE = [
    "../secret.txt",
    "deep/../../secret.txt",
    "/etc/passwd",
    "link.txt",
    "up/secret.txt",
    "../boxer/near.txt",
]
LOAD = "{arrivals: {kind: burst}, num_requests: 1, output_tokens: 1, trace: {format: text, file: 'FILE'}}"
VARIANT = BESIDE + f"variants: {{a: {{load: {LOAD}}}, b: {{}}}}\n"


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A folder with a stranger's scenario to come, a file beside it, a secret outside, and links to that."""
    inside = tmp_path / "box"
    (inside / "deep").mkdir(parents=True)
    (inside / "beside.txt").write_text("hello\n")
    (inside / "deep" / "er.txt").write_text("hello\n")
    (tmp_path / "secret.txt").write_text("the key\n")
    (tmp_path / "boxer").mkdir()
    (tmp_path / "boxer" / "near.txt").write_text("its name begins alike\n")
    (inside / "link.txt").symlink_to("../secret.txt")
    (inside / "up").symlink_to("..")
    (inside / "own.txt").symlink_to("beside.txt")
    return inside


def written(box: Path, text: str, file: str) -> Path:
    path = box / "s.yaml"
    path.write_text(text.replace("FILE", file))
    return path


@pytest.mark.parametrize("text", [TEXTS, LENGTHS, VARIED, VARIED_WHOLE, VARIANT])
@pytest.mark.parametrize("file", OUTSIDE)
def test_what_lies_outside_is_refused(box: Path, text: str, file: str) -> None:
    """By whatever way out, wherever the scenario names it; the line says how to allow it."""
    with pytest.raises(ScenarioError, match=r"lies outside of the scenario's folder.*LOADGEN_FILES") as told:
        load(written(box, text, file))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("text", [TEXTS, LENGTHS, VARIED])
@pytest.mark.parametrize("file", ["beside.txt", "deep/er.txt", "./deep/../beside.txt", "own.txt"])
def test_what_lies_inside_is_read(box: Path, text: str, file: str) -> None:
    """Also when the scenario is reached by a link, or named from its own folder."""
    load(written(box, text, file))
    load(box / "up" / "box" / "s.yaml")


def test_an_absolute_path_inside_is_inside(box: Path) -> None:
    """It is where a path leads that counts."""
    load(written(box, TEXTS, str(box / "beside.txt")))


def test_what_the_user_names_is_read(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable, of folders; and the error tells what to set it to."""
    path = written(box, TEXTS, "../secret.txt")
    with pytest.raises(ScenarioError) as told:
        flags.overlay(str(path), {})
    named = str(told.value).rpartition("LOADGEN_FILES=")[2]
    monkeypatch.setenv("LOADGEN_FILES", os.pathsep.join(["/nowhere", named]))
    found = flags.overlay(str(path), {}).load.trace
    assert found
    assert Path(found.file).read_text() == "the key\n"


@given(st.lists(st.sampled_from(["..", ".", "deep", "up", "beside.txt", "secret.txt", "box"]), max_size=6))
def test_a_path_is_taken_where_it_leads_inside_and_nowhere_else(parts: list[str]) -> None:
    """By the operating system's own resolution of it."""
    with tempfile.TemporaryDirectory() as made:
        inside = Path(made) / "box"
        (inside / "deep").mkdir(parents=True)
        (inside / "up").symlink_to("..")
        file = "/".join(parts) or "."
        leads_to = os.path.realpath(inside / file)
        is_inside = f"{leads_to}/".startswith(f"{os.path.realpath(inside)}/")
        path = written(inside, TEXTS, file)
        with nullcontext() if is_inside else pytest.raises(ScenarioError, match="outside"):
            load(path)


def test_every_shipped_scenario_keeps_to_its_folder() -> None:
    """None needs an allowance."""
    for path in folder().glob("*.yaml"):
        read(path.stem)
