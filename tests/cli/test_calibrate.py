"""`loadgen calibrate` at the command line, and what a saved one says before a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from loadgen import calibrate
from loadgen.calibrate import Ladder, Rung, concluded
from loadgen.cli.app import app
from loadgen.cli.calibrate import saved, warnings
from loadgen.run import WriteError
from loadgen.scenario import build
from loadgen.workload import draw
from tests.calibrations import rung
from tests.end_to_end.process import loadgen

SCENARIO = build(
    {"load": {"arrivals": {"kind": "constant", "rate": 100}, "num_requests": 1000, "output_tokens": 90}}
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's calibration but the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "loadgen" / "calibration.json"


def climbing(monkeypatch: pytest.MonkeyPatch, *rungs: Rung) -> None:
    """Let each ladder have these rungs, those that are of its kind."""

    async def climb(ladder: Ladder, clock: str) -> object:
        for one in rungs:
            if one.of == ladder.of:
                yield one

    monkeypatch.setattr(calibrate, "climb", climb)


def test_a_calibration_is_shown_and_saved(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rung as it ends, the table, the conclusion, and where it is kept."""
    climbing(monkeypatch, rung(20_000), rung(5000, of="requests"))
    done = CliRunner().invoke(app, ["calibrate", "--quick"])
    assert done.exit_code == 0, done.output
    assert "20,000 token events/s: held" in done.stderr
    assert "On this machine one process reaches at least 20,000 token events/s" in done.stdout
    assert str(cache) in done.stderr.replace("\n", "")
    assert "loadgen run warns" in " ".join(done.stderr.split())
    assert calibrate.load(cache).requests is not None


def test_json_is_alone_on_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole Calibration, also in the file that --out names."""
    climbing(monkeypatch, rung(20_000))
    out = tmp_path / "c.json"
    done = CliRunner().invoke(app, ["calibrate", "--json", "--out", str(out)])
    assert json.loads(done.stdout)["events"]["per_s"] == 20_000
    assert json.loads(out.read_text()) == json.loads(done.stdout)
    assert not saved().exists()


def test_what_cannot_be_saved_is_shown_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute's work is not lost to a wrong path."""
    climbing(monkeypatch, rung(20_000))
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["calibrate", "--out", str(tmp_path / "file" / "c.json")])
    assert isinstance(done.exception, WriteError)
    assert "20,000 token events/s" in done.stdout


def test_where_nothing_held_nothing_is_saved(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 4, as for any measurement that cannot be trusted; an earlier calibration stays."""
    climbing(monkeypatch, rung(20_000, limit="client"))
    done = CliRunner().invoke(app, ["calibrate"])
    assert done.exit_code == 4
    assert "nothing saved" in done.stderr
    assert not cache.exists()


def test_the_cache_is_in_the_users_home_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """~/.cache/loadgen/calibration.json."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    if sys.platform != "win32":
        assert saved() == Path("/home/someone/.cache/loadgen/calibration.json")


def test_a_plan_is_held_against_the_saved_calibration(cache: Path) -> None:
    """9,000 token events a second where one process reached 10,000; nothing without a calibration."""
    plan = draw(SCENARIO)
    assert warnings(plan, SCENARIO) == []
    found = concluded([rung(10_000), rung(20_000, limit="client")], None)
    found.save(cache)
    (said,) = warnings(plan, SCENARIO)
    assert "token events/s a process are expected, and one reaches 10,000" in said
    msgspec.structs.replace(found, host="elsewhere").save(cache)
    assert warnings(plan, SCENARIO) == []


def test_a_broken_calibration_hinders_no_run(cache: Path) -> None:
    """It is said, with the remedy, and the run goes on."""
    cache.parent.mkdir()
    cache.write_text("{")
    (said,) = warnings(draw(SCENARIO), SCENARIO)
    assert "run loadgen calibrate again" in said


def test_a_run_says_so_before_it_starts(cache: Path, tmp_path: Path) -> None:
    """On stderr, and in the notes of the run; a simulation has no client to overburden."""
    concluded([rung(10), rung(20, limit="client")], None).save(cache)
    words = ("--rate", "50", "--num-prompts", "5", "--output-len", "4", "--input-len", "4")
    real = loadgen("run", *words, "--out", tmp_path / "r", "--no-tail", cwd=tmp_path)
    assert "the client may be the limit" in real.err
    assert "the client may be the limit" in (tmp_path / "r" / "run.json").read_text()
    virtual = loadgen("run", *words, "--virtual", "--out", tmp_path / "v", cwd=tmp_path)
    assert "the client may be the limit" not in virtual.err


def test_a_wrong_clock_is_a_usage_error(tmp_path: Path) -> None:
    """Exit 2, and one line that says what there is."""
    done = loadgen("calibrate", "--clock", "sun", cwd=tmp_path)
    assert done.code == 2
    assert "choose from auto, kernel, user" in done.err
