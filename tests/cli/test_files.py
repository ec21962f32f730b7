"""Files that a user names: nothing of a run is written over, and what cannot be is told before any work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadgen.cli import files
from loadgen.cli.app import app
from loadgen.scenario import ScenarioError
from tests.export.folders import kept
from tests.records import ok

SCENARIO = "load: {arrivals: {kind: constant, rate: 10}, num_requests: 3, output_tokens: 2}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a scenario, and a run in `run`, with everything that a folder of results may hold."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO)
    kept(tmp_path / "run", [ok(0)], source="virtual")
    for name in files.OWN:
        path = tmp_path / "run" / name
        path.write_bytes(path.read_bytes() if path.exists() else b"{}")
    return tmp_path


def state(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refused(*words: str) -> str:
    done = CliRunner().invoke(app, [*words])
    assert isinstance(done.exception, ScenarioError), done.output
    assert "\n" not in str(done.exception)
    return str(done.exception)


@pytest.mark.parametrize("name", files.OWN)
def test_no_file_of_a_run_is_written_over(here: Path, name: str) -> None:
    """By whatever command, of whichever run, by any name of its folder; one beside them may be."""
    before = state(here)
    to = f"run/../run/{name}"
    assert "belongs to a run itself" in refused("export", "run", to, "--format", "csv")
    with pytest.raises(ScenarioError, match="belongs to a run itself"):
        files.written(Path(to), "text")
    if name.endswith((".jsonl", ".csv")):
        assert "belongs to a run itself" in refused("plan", "s.yaml", "--export", to)
    assert "must end in" in refused("report", "run", "--html", to)
    assert state(here) == before
    assert CliRunner().invoke(app, ["export", "run", "run/requests.jsonl"]).exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("run", "s.yaml", "--virtual", "--out", "new", "--html", "s.yaml"),
        ("run", "s.yaml", "--virtual", "--out", "new", "--html", "new/run.json"),
        ("run", "s.yaml", "--virtual", "--out", "new", "--html", "none/x.html"),
        ("run", "s.yaml", "--virtual", "--out", "new", "--html", "s.yaml/x.html"),
        ("run", "s.yaml", "--virtual", "--out", "new", "--html", "folder.html"),
        ("capacity", "s.yaml", "--virtual", "--out", "new", "--html", "none/x.html"),
        ("capacity", "s.yaml", "--virtual", "--out", "new", "--html", "new/capacity.json"),
        ("compare", "static-vs-continuous", "--virtual", "--out", "new", "--html", "new/comparison.json"),
        ("compare", "static-vs-continuous", "--virtual", "--out", "new", "--html", "none/x.html"),
        ("report", "run", "--html", "none/x.html"),
        ("report", "run", "--svg", "s.yaml"),
        ("report", "run", "--svg", "s.yaml/x"),
        ("plan", "s.yaml", "--svg", "s.yaml"),
        ("plan", "s.yaml", "--html", "s.yaml"),
        ("plan", "s.yaml", "--export", "none/x.csv"),
        ("reproduce", "chunk-size", "--out", "s.yaml"),
        ("reproduce", "chunk-size", "--out", "new", "--html", "none/x.html"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_told_before_any_work(
    here: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, and nothing is made: no folder, no run, no file that is not whole."""
    (here / "folder.html").mkdir()

    def worked(*_: object, **__: object) -> None:
        raise AssertionError("work was done")

    for work in (
        "loadgen.cli.firing.carried_out",
        "loadgen.capacity.find_capacity",
        "loadgen.studies.chunk_size.study",
    ):
        monkeypatch.setattr(work, worked)
    before = state(here)
    assert refused(*words)
    assert state(here) == before
    assert not (here / "new").exists()


def test_a_page_may_lie_in_the_folder_that_the_run_makes(here: Path) -> None:
    """Or in any that is there, over an older page."""
    Path("p.html").write_text("old")
    for page in ("new/p.html", "p.html"):
        files.refuse_unwritable(Path(page), *files.PAGE, made=Path("new"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_what_may_not_be_written_is_told_beforehand(here: Path) -> None:
    """A folder, or a file, without the permission."""
    (here / "run").chmod(0o500)
    with pytest.raises(ScenarioError, match="Permission denied"):
        files.refuse_unwritable(Path("run/x.html"), *files.PAGE)
    (here / "run").chmod(0o700)


def test_a_study_that_is_in_the_way_is_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one of its files is a folder: one line that names it; and interrupted, a word and no folder."""
    monkeypatch.setattr("loadgen.studies.chunk_size.study", lambda: None)
    monkeypatch.setattr("loadgen.studies.written.files", lambda *_: {"report.md": "text"})
    (here / "out" / "report.md").mkdir(parents=True)
    assert refused("reproduce", "chunk-size", "--out", "out") == "out/report.md is no file to be written"


def test_an_interrupted_study_says_so_and_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is made when there is something to keep."""

    def make() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("loadgen.studies.chunk_size.study", make)
    done = CliRunner().invoke(app, ["reproduce", "chunk-size", "--out", "out"])
    assert "interrupted: nothing was written" in done.stderr
    assert not (here / "out").exists()
