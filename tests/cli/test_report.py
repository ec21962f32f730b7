"""`loadgen report`: what it says of folders that are no run's."""

from __future__ import annotations

import json
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadgen.cli.app import app
from loadgen.cli.reporting import reported
from loadgen.run_folder import RunWriter
from loadgen.scenario import ScenarioError
from tests.records import header, ok


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("gate.json", "holds a gate's verdict, which loadgen gate makes again: "),
        ("sweep.json", "holds the capacity of several settings, "),
    ],
)
def test_a_folder_of_another_command_is_named_and_what_to_do(tmp_path: Path, file: str, said: str) -> None:
    """Though run folders lie in it, it is no comparison that was not finished."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "run.json").touch()
    (tmp_path / file).touch()
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(done.exception, ScenarioError)
    assert said in str(done.exception)
    assert str(done.exception).endswith(f"{tmp_path / file}. loadgen report takes a run folder")


def kept(folder: Path, **changes: object) -> Path:
    """A run of ten requests in `folder`."""
    with RunWriter(folder) as writer:
        for i in range(10):
            writer.append(ok(i, i * 0.1, **changes))  # type: ignore[arg-type]
        writer.write_header(header(plan_rows=10, rows_due=10))
    return folder


def refused(*given: Path) -> str:
    with pytest.raises(ScenarioError) as trouble:
        reported([*given])
    return str(trouble.value)


def test_a_broken_search_says_where_and_nothing_of_out(tmp_path: Path) -> None:
    """There is no --out here to choose another folder with."""
    (tmp_path / "capacity.json").write_text('{"schema": 1, "na')
    said = refused(tmp_path)
    assert said.startswith(f"{tmp_path / 'capacity.json'}: ")
    assert "--out" not in said
    assert said.endswith("it is cut short or damaged, search again into another folder")


def test_runs_of_one_folder_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    """By as much of them as it takes; a run beside itself is no comparison."""
    a, b = kept(tmp_path / "old" / "x"), kept(tmp_path / "new" / "x")
    done = CliRunner().invoke(app, ["report", str(a), str(b), "--json"])
    assert [*json.loads(done.stdout)["variants"]] == ["old/x", "new/x"]
    assert "is given twice" in refused(a, a)


@pytest.mark.parametrize("name", ["../base", "/etc", "a/b", "", "..", "a\\b"])
def test_a_comparison_names_folders_beside_it(tmp_path: Path, name: str) -> None:
    """A file from elsewhere cannot have others read."""
    (tmp_path / "comparison.json").write_text(json.dumps({"variants": {"base": {}, name: {}}}))
    assert f"{name!r} is no variant" in refused(tmp_path)


def test_one_variant_is_no_comparison(tmp_path: Path) -> None:
    """And it says how many there are."""
    (tmp_path / "comparison.json").write_text(json.dumps({"variants": {"base": {}}}))
    assert "a comparison has two or more" in refused(tmp_path)


def test_a_command_that_is_printed_can_be_pasted(tmp_path: Path) -> None:
    """Whatever the folders are called: read by a shell, it names them."""
    folder = tmp_path / "my runs; rm"
    kept(folder / "a b")
    kept(folder / "c")
    words = shlex.split(refused(folder).partition("but runs: ")[2])
    assert words == ["loadgen", "report", str(folder / "a b"), str(folder / "c")]


def test_a_grid_says_where_its_figures_are(tmp_path: Path) -> None:
    """All its runs are whole, so that no other is looked for; what was set aside is no run of it."""
    cell = kept(tmp_path / "001-seed=1")
    kept(tmp_path / "unused-a1b2c3-001-seed=1")
    (tmp_path / "cells.csv").touch()
    assert refused(tmp_path) == (
        f"{tmp_path} holds no run or finished comparison itself (the figures of its grid are in "
        f"{tmp_path / 'cells.csv'}), but runs: loadgen report {cell}"
    )


@pytest.mark.parametrize(
    ("names", "cut", "hint"),
    [
        (["1", "2"], {}, False),
        (["1", "2"], {"complete": False}, True),
        (["1", "2"], {"interrupted": True}, True),
        (["a", "b"], {}, True),
    ],
    ids=["repeats", "a kill", "an interrupt", "a comparison"],
)
def test_going_on_is_offered_where_something_may_be_missing(
    tmp_path: Path, names: list[str], cut: dict[str, bool], hint: bool
) -> None:
    """The runs of a comparison are not all: it has a file of its own in the end."""
    last = [kept(tmp_path / name) for name in names][-1] / "run.json"
    last.write_text(json.dumps(json.loads(last.read_bytes()) | cut))
    assert ("(the same command again makes what is missing)" in refused(tmp_path)) == hint


@pytest.mark.parametrize("sign", ["\x1b[31m", "\ufffe", "\uffff", "\x01"], ids=ascii)
def test_pictures_of_odd_names_are_pictures(tmp_path: Path, sign: str) -> None:
    """Names of folders and of requests hold signs that no SVG may: the process goes on without them."""
    runs = [kept(tmp_path / f"{name}{sign}", request_id=f"r{sign}") for name in "ab"]
    out = tmp_path / "out"
    for given in (runs, runs[:1]):
        done = CliRunner().invoke(app, ["report", *map(str, given), "--svg", str(out)])
        assert done.exit_code == 0, done.output
    assert all(ET.parse(path).getroot().tag.endswith("svg") for path in out.glob("*.svg"))


def test_pictures_that_fail_leave_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are drawn before anything is written."""

    def stopped(_: object) -> str:
        raise KeyboardInterrupt

    run = kept(tmp_path / "run")
    monkeypatch.setattr("loadgen.charts.picture.svg", stopped)
    CliRunner().invoke(app, ["report", str(run), "--svg", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
