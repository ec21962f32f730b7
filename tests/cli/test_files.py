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
    assert "belongs to a run itself" in refused("report", "run", "--html", to)
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
    assert Path("p.html").read_text() == "old"  # nothing is written by looking
    assert not Path("new").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_what_may_not_be_written_is_told_beforehand(here: Path) -> None:
    """A folder, or a file, without the permission."""
    (here / "run").chmod(0o500)
    with pytest.raises(ScenarioError, match="Permission denied"):
        files.refuse_unwritable(Path("run/x.html"), *files.PAGE)
    (here / "run").chmod(0o700)


def test_a_study_that_is_in_the_way_is_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one of its files is a folder: one line that names it, before the work."""
    monkeypatch.setattr("loadgen.studies.chunk_size.study", lambda: pytest.fail("work was done"))
    for name in ("report.md", "figures.json", "a.svg"):
        (here / name / name).mkdir(parents=True)
        assert refused("reproduce", "chunk-size", "--out", name) == f"{name}/{name} is no file to be written"


def test_an_interrupted_study_says_so_and_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is made when there is something to keep."""

    def make() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("loadgen.studies.chunk_size.study", make)
    done = CliRunner().invoke(app, ["reproduce", "chunk-size", "--out", "out"])
    assert "interrupted: nothing was written" in done.stderr
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("link", "leads_to", "words"),
    [
        ("p.html", "run/records.jsonl", ("report", "run", "--html")),
        ("p.html", "s.yaml", ("report", "run", "--html")),
        ("p.html", "p.html", ("report", "run", "--html")),
        ("p.html", "none/p.html", ("report", "run", "--html")),
        ("a.csv", "run/records.jsonl", ("export", "run")),
        ("a.csv", "s.yaml", ("export", "run")),
        ("a.csv", "/dev/null", ("export", "run")),
        ("a.csv", "s.yaml", ("plan", "s.yaml", "--export")),
    ],
)
def test_a_link_is_what_it_leads_to(here: Path, link: str, leads_to: str, words: tuple[str, ...]) -> None:
    """To a file of a run, of another kind, to a device, itself or nowhere: refused, and all stays."""
    Path(link).symlink_to(leads_to)
    before = state(here)
    assert refused(*words, link).startswith(link)
    assert Path(link).is_symlink()
    assert state(here) == before


@pytest.mark.parametrize(
    ("name", "words"), [("p.html", ("report", "one", "--html")), ("a.csv", ("export", "one"))]
)
def test_a_link_to_a_file_of_that_kind_stays_one(here: Path, name: str, words: tuple[str, ...]) -> None:
    """What it leads to is written; the other name of a file, a hard link, keeps what it had."""
    kept(here / "one", [ok(0)], source="virtual")
    Path("real" + name).write_text("old")
    os.link("real" + name, "other")
    Path(name).symlink_to("real" + name)
    CliRunner().invoke(app, [*words, name])
    assert Path(name).is_symlink()
    assert len(Path("real" + name).read_text()) > 100
    assert Path("other").read_text() == "old"


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_what_is_open_is_no_file_to_be_written(name: str) -> None:
    """It may be the file of `>> FILE`, with more in it; nothing is written here."""
    with pytest.raises(ScenarioError, match="is no file to be written"):
        files.refuse_unwritable(Path(name))


@pytest.mark.parametrize("name", ["s.yaml", "notes.md", "a.jsonl", "plain"])
def test_no_file_of_another_kind_is_exported_over(here: Path, name: str) -> None:
    """Whatever --format says; a new file may have any name."""
    assert CliRunner().invoke(app, ["export", "run", "new", "--format", "csv"]).exit_code == 0
    Path(name).write_text("mine")
    assert refused("export", "run", name, "--format", "csv") == f"{name}: its name must end in .csv"
    assert Path(name).read_text() == "mine"


@pytest.mark.parametrize("words", [("report", "run", "--svg"), ("reproduce", "chunk-size", "--out")])
@pytest.mark.parametrize(
    "there",
    [
        *({name: ""} for name in files.OWN),
        {"report.md": "", "comparison.json": ""},
        {"report.md": "mine"},
        {"report.md": "", "figures.json": '{"study": "other"}', "a.svg": ""},
        {"report.md": "", "figures.json": "[]"},
    ],
    ids=lambda there: "+".join(there),
)
def test_a_folder_of_something_else_takes_no_pictures(
    here: Path, words: tuple[str, ...], there: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line before any work, and all stays: of a comparison, a study, anyone's report.md."""
    monkeypatch.setattr("loadgen.studies.chunk_size.study", lambda: pytest.fail("work was done"))
    Path("c3").mkdir()
    for name, text in there.items():
        (Path("c3") / name).write_text(text)
    before = state(here)
    assert "c3 is the folder of something else, by its " in refused(*words, "c3")
    assert state(here) == before


def test_pictures_are_drawn_again_where_they_are(here: Path) -> None:
    """An older folder of the same command is its own."""
    kept(here / "one", [ok(0)], source="virtual")
    for _ in range(2):
        done = CliRunner().invoke(app, ["report", "one", "--svg", "pictures"])
        assert "pictures and report.md: pictures" in done.stderr
