"""Our own bug is loud: exit 70, a traceback, and the records kept."""

from __future__ import annotations

import inspect
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from loadgen.cli import main
from loadgen.cli.firing import run_async
from loadgen.run_folder import load

SCENARIO = """\
engine: {cost: {kind: fixed, step: 1ms}}
load: {arrivals: {kind: constant, rate: 100/s}, num_requests: 20, prompt_tokens: 4, output_tokens: 2}
variants: {a: {engine: {batching: static}}, b: {engine: {batching: continuous}}}
"""


def bug(*_args: object, **_kwargs: object) -> NoReturn:
    raise RuntimeError("planted bug")


def code(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["loadgen", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_what_strangers_wrote_moves_no_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Colours, controls and line breaks are written out, and no line begins as GitHub's commands do."""
    (tmp_path / "run.json").write_text(json.dumps({"schema": "\x1b[31m\n::error::all is well\r\u202e"}))
    assert code(monkeypatch, "report", str(tmp_path)) == 2
    said = capsys.readouterr().err
    assert r"schema '\x1b[31m" in said
    assert all(line.isprintable() and line.startswith("loadgen: ") for line in said.splitlines())


@pytest.mark.parametrize(
    ("words", "breaks"),
    [
        (["run", "single.yaml", "--virtual"], "loadgen.workload.draw"),
        (["plan", "single.yaml"], "loadgen.workload.draw"),
        (["compare", "both.yaml", "--virtual"], "loadgen.workload.draw"),
        (["demo"], "loadgen.workload.draw"),
        (["report", "."], "loadgen.run_folder.load"),
        (["serve", "single.yaml", "--port", "0"], "loadgen.engine.serve.serve"),
    ],
    ids=lambda v: v[0] if isinstance(v, list) else "",
)
def test_every_command_reports_our_own_bug_as_ours(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    breaks: str,
) -> None:
    """An exception of ours ends any command with 70 and asks for a report."""
    monkeypatch.chdir(tmp_path)
    Path("both.yaml").write_text(SCENARIO)
    Path("single.yaml").write_text(SCENARIO[: SCENARIO.index("variants")])
    place, _, name = breaks.rpartition(".")
    monkeypatch.setattr(import_module(place), name, bug)
    assert code(monkeypatch, *words) == 70
    err = capsys.readouterr().err
    assert "planted bug" in err
    assert "report it" in err
    assert "kept" not in err  # nothing was recorded


def test_a_bug_in_mid_run_keeps_the_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was measured before our own failure is in the folder, which says that it is not complete."""
    monkeypatch.chdir(tmp_path)
    Path("single.yaml").write_text(SCENARIO[: SCENARIO.index("variants")])
    from loadgen.run_folder import RunWriter

    append, seen = RunWriter.append, 0

    def fragile(self: RunWriter, record: object) -> None:
        nonlocal seen
        seen += 1
        if seen > 5:
            raise RuntimeError("planted bug")
        append(self, record)  # type: ignore[arg-type]

    monkeypatch.setattr(RunWriter, "append", fragile)
    assert code(monkeypatch, "run", "single.yaml", "--out", "r") == 70
    err = capsys.readouterr().err
    assert "planted bug" in err
    assert "what was recorded is kept: loadgen report r" in err
    run = load(tmp_path / "r")
    assert len(run.records.index) == 5
    assert (run.header.complete, run.header.crashed) == (False, "RuntimeError")


@pytest.mark.parametrize(
    "step", ["start", "_attempt", "_check_limits", "_ask", "_connected", "_go_on", "_again_ns"]
)
def test_a_bug_in_one_request_costs_no_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    """Every row that fell due until the run broke has its record, the row with the bug too, wherever."""
    monkeypatch.chdir(tmp_path)
    Path("single.yaml").write_text(SCENARIO[: SCENARIO.index("variants")])
    from loadgen.client.send import Call

    well = getattr(Call, step)

    def fragile(self: Call, *args: object) -> object:  # row 0 opens a connection
        return bug() if self.ask.row.index in (0, 3) else well(self, *args)

    monkeypatch.setattr(Call, step, fragile)
    assert code(monkeypatch, "run", "single.yaml", "--out", "r") == 70
    assert "planted bug" in capsys.readouterr().err
    run = load(tmp_path / "r")
    assert set(run.records.index) >= {0}
    assert len(run.records.index) == run.header.rows_due
    assert run.header.rows_not_sent == 20 - np.isfinite(run.records.started_s).sum()


def test_a_record_that_is_lost_on_its_way_makes_the_run_invalid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows due are counted where they fall due, not where they are written down."""
    monkeypatch.chdir(tmp_path)
    Path("single.yaml").write_text(SCENARIO[: SCENARIO.index("variants")])
    from loadgen.client.pace import Pace

    deliver = Pace._deliver
    monkeypatch.setattr(Pace, "_deliver", lambda self, r: None if r.index == 3 else deliver(self, r))
    assert code(monkeypatch, "run", "single.yaml", "--out", "r") == 4
    assert "20 requests fell due and 19 are recorded" in " ".join(capsys.readouterr().out.split())


def test_what_cannot_begin_leaves_no_work_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes before the loop, a Ctrl-C in the midst of an import too, is told without a warning."""

    async def work() -> None: ...

    monkeypatch.setitem(sys.modules, "loadgen.client.loop", None)  # as if its import were broken off
    coroutine = work()
    with pytest.raises(ImportError):
        run_async(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
