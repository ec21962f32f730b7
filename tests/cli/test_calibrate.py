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
from loadgen.client.pool import clock_of
from loadgen.scenario import build
from loadgen.target import Target
from loadgen.whole_file import WriteError
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
    monkeypatch.setattr("loadgen.client.pool.is_stamping", lambda: False)  # one clock on any system
    return tmp_path / "loadgen" / "calibration-user.json"


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
    assert "On this machine one process holds at least 20,000 token events/s" in done.stdout
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
    assert not saved("user").exists()


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
    """~/.cache/loadgen, a file for each clock."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    if sys.platform != "win32":
        assert saved("user") == Path("/home/someone/.cache/loadgen/calibration-user.json")


def test_a_plan_is_held_against_the_saved_calibration(cache: Path) -> None:
    """9,000 token events a second where one process held 8,000; nothing without a calibration."""
    plan = draw(SCENARIO)
    assert warnings(plan, SCENARIO) == []
    found = concluded([rung(8_000), rung(20_000, limit="client")], None)
    found.save(cache)
    (said,) = warnings(plan, SCENARIO)
    assert "token events/s a process are expected; on this machine one held 8,000, and failed" in said
    msgspec.structs.replace(found, host="elsewhere").save(cache)
    assert warnings(plan, SCENARIO) == []


def test_a_run_is_judged_by_the_calibration_of_its_own_clock(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the kernel's for plain TCP where there is one; by our own for TLS, a socket file, or when asked."""
    monkeypatch.setattr("loadgen.client.pool.is_stamping", lambda: True)
    plan, plain = draw(SCENARIO), Target(base_url="http://h", model="m")
    concluded([rung(10), rung(20, limit="client", clock="kernel")], None).save(saved("user"))
    concluded([rung(7, clock="kernel")], None).save(saved("kernel"))

    def held(target: Target | None, clock: str = "auto") -> str:
        client = SCENARIO.client.model_copy(update={"clock": clock})
        return warnings(plan, SCENARIO.model_copy(update={"target": target, "client": client}))[0]

    for target in (None, plain):
        assert "one held 7," in held(target)
    for target in (Target(base_url="https://h", model="m"), plain.model_copy(update={"unix_socket": "/s"})):
        assert "one held 10," in held(target)
    assert "one held 10," in held(plain, "user")


@pytest.mark.parametrize(
    "load", [{"arrivals": {"kind": "burst"}}, {"arrivals": {"kind": "closed", "concurrency": 500}}], ids=str
)
def test_what_has_no_rate_is_not_held_against_one(load: dict[str, object], cache: Path) -> None:
    """A burst is due at one instant, and users wait for the server."""
    concluded([rung(10), rung(20, limit="client")], None).save(cache)
    scenario = build({"load": {"num_requests": 1000, "output_tokens": 90, **load}})
    assert warnings(draw(scenario), scenario) == []


def test_a_lower_calibration_says_so_and_is_saved(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old figure and its date; a higher one, or one of another machine, is replaced without a word."""
    before = concluded([rung(40_000), rung(9000, of="requests")], None)
    before = msgspec.structs.replace(before, taken_at="2026-03-04T05:06:07+00:00")
    before.save(cache)
    climbing(monkeypatch, rung(20_000), rung(9000, of="requests"))
    said = " ".join(CliRunner().invoke(app, ["calibrate"]).stderr.split())
    assert "lower than the calibration of 2026-03-04, which this one replaces: 20,000 token" in said
    assert "events/s, not 40,000; calibrate again" in said
    found = calibrate.load(cache)
    assert found.events is not None
    assert found.events.per_s == 20_000
    assert "lower than" not in CliRunner().invoke(app, ["calibrate"]).stderr
    msgspec.structs.replace(before, host="elsewhere").save(cache)
    assert "lower than" not in CliRunner().invoke(app, ["calibrate"]).stderr


def test_a_quick_calibration_is_kept_as_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that it warns of name it so."""
    climbing(monkeypatch, rung(20_000))
    for words, quick in ((["--quick"], True), ([], False)):
        CliRunner().invoke(app, ["calibrate", *words])
        assert calibrate.load(cache).quick is quick


def test_a_broken_calibration_hinders_no_run(cache: Path) -> None:
    """It is said, with the remedy, and the run goes on."""
    cache.parent.mkdir()
    cache.write_text("{")
    (said,) = warnings(draw(SCENARIO), SCENARIO)
    assert "run loadgen calibrate again" in said


def test_a_run_says_so_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr, and in the notes of the run; a simulation has no client to overburden."""
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    on = clock_of(Target(base_url="http://127.0.0.1", model="m"), "auto")
    concluded([rung(10, clock=on), rung(20, limit="client", clock=on)], None).save(saved(on))
    words = ("--rate", "50", "--num-prompts", "5", "--output-len", "4", "--input-len", "4")
    real = loadgen("run", *words, "--out", tmp_path / "r", "--no-tail", cwd=tmp_path)
    assert "beyond the client" in real.err
    assert "beyond the client" in (tmp_path / "r" / "run.json").read_text()
    virtual = loadgen("run", *words, "--virtual", "--out", tmp_path / "v", cwd=tmp_path)
    assert "beyond the client" not in virtual.err


def test_a_wrong_clock_is_a_usage_error(tmp_path: Path) -> None:
    """Exit 2, and one line that says what there is."""
    done = loadgen("calibrate", "--clock", "sun", cwd=tmp_path)
    assert done.code == 2
    assert "choose from auto, kernel, user" in done.err
