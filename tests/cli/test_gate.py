"""`loadgen gate` and `loadgen baseline`, through the real process: what the shell sees."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loadgen import drive
from loadgen.cli.app import app
from loadgen.cli.argv import joined
from loadgen.order import Order
from loadgen.scenario import ScenarioError, build
from loadgen.workload import draw
from tests.end_to_end.process import Ended, loadgen

LOAD = {
    "arrivals": {"kind": "constant", "rate": "4/s"},
    "num_requests": 1000,
    "prompt_tokens": 16,
    "output_tokens": 8,
    "tail": False,
}


def simulated(folder: Path, name: str, step: str = "10ms", **load: Any) -> None:
    asked = build(
        {"name": "chat", "engine": {"cost": {"kind": "fixed", "step": step}}, "load": LOAD | load, "seed": 3}
    )
    drive.simulate(Order(asked, draw(asked), folder / name, name))


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs: two as it was, one slower, one too short, one of another plan."""
    folder = tmp_path_factory.mktemp("gate")
    for name, step in {"base": "10ms", "same": "10ms", "slow": "11.5ms"}.items():
        simulated(folder, name, step)
    simulated(folder, "few", num_requests=20)
    simulated(folder, "fewer", num_requests=20)
    return folder


def gated(at: Path, candidate: str, *words: str, baseline: str = "base", **env: str) -> Ended:
    flags = ("--noise", "0.5%", *words)
    return loadgen("gate", candidate, "--baseline", baseline, *flags, cwd=at, **env)


def altered(at: Path, name: str, **changes: Any) -> str:
    """The run `same`, had its header said something else."""
    folder = at / name
    folder.mkdir()
    (folder / "records.jsonl").write_bytes((at / "same" / "records.jsonl").read_bytes())
    header = json.loads((at / "same" / "run.json").read_text()) | {"run_id": name} | changes
    (folder / "run.json").write_text(json.dumps(header))
    return name


# --- exit codes -------------------------------------------------------------------------------------


def test_what_is_as_good_as_before_is_0(at: Path) -> None:
    """And said to be."""
    done = gated(at, "same")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("PASS ")


def test_what_is_slower_is_1_and_says_by_how_much(at: Path) -> None:
    """In a sentence, first of all: two runs that each stray by 0.5 % differ by 1.4 % in 1 of 20."""
    done = gated(at, "slow")
    assert done.code == 1
    assert done.out.startswith("FAIL ")
    said = " ".join(done.out.split())
    assert "FAIL TPOT mean is 15 % slower (at least 13.4 %), more than the 5 % allowed" in said


def test_runs_too_short_to_tell_are_3(at: Path) -> None:
    """20 requests do not show half a point of errors."""
    done = gated(at, "fewer", baseline="few")
    assert done.code == 3
    assert done.out.startswith("UNRESOLVED ")


def test_a_measurement_that_cannot_be_trusted_is_4(at: Path) -> None:
    """However good its figures."""
    done = gated(at, altered(at, "lost", health={"descriptors_exhausted": True}))
    assert done.code == 4
    assert done.out.startswith("INVALID ")
    assert "candidate lost: its measurement is INVALID" in done.out


def test_an_interrupted_candidate_is_4(at: Path) -> None:
    """That run was interrupted; this command is not."""
    done = gated(at, altered(at, "cut", interrupted=True))
    assert done.code == 4
    assert done.out.startswith("INVALID ")


def test_runs_of_other_plans_are_2_and_one_line_with_what_differs(at: Path) -> None:
    """A difference could come from the load."""
    done = gated(at, "few")
    assert (done.code, done.out) == (2, "")
    assert "load.num_requests: 1000, then 20" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("same", "--baseline", "base", "--metric", "ttft_p9"), "did you mean ttft_p99?"),
        (
            ("same", "--baseline", "base", "--tolerance", "5"),
            "--tolerance '5': '5' is no share: write a percentage, such as 5%",
        ),
        (("nothing", "--baseline", "base"), "nothing is no run folder, and holds none"),
        (("same", "--baseline", "nothing"), "baselines holds no baseline of that name"),
        (("same",), "--baseline: a run, or a baseline"),
        (
            ("same", "--baseline", "base", "--out", "slow"),
            "slow holds runs: choose another folder with --out",
        ),
    ],
)
def test_a_mistake_says_what_is_wrong(
    at: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    """An unknown metric, a wrong tolerance, no such run, no baseline."""
    monkeypatch.chdir(at)
    done = CliRunner().invoke(app, ["gate", *words])
    assert isinstance(done.exception, ScenarioError)
    assert said in str(done.exception)


# --- where it is said -------------------------------------------------------------------------------


def test_every_form_says_the_same(at: Path, tmp_path: Path) -> None:
    """JSON alone on stdout and in its file, JUnit, Markdown, GitHub's summary and annotations."""
    summary = tmp_path / "step.md"
    summary.write_text("# Before\n")
    files = ("--junit", str(tmp_path / "g.xml"), "--markdown", str(tmp_path / "g.md"), "--out", str(tmp_path))
    env = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_ACTIONS": "true"}
    done = gated(at, "slow", "--json", *files, **env)
    found = json.loads(done.out)
    assert found == json.loads((tmp_path / "gate.json").read_text())
    assert found["schema"] == 1
    failed = {change["metric"] for change in found["changes"] if change["verdict"] == "FAIL"}
    cases = ET.parse(tmp_path / "g.xml").iterfind(".//testcase[failure]")
    assert {case.get("name") for case in cases} == failed >= {"tpot_mean"}
    assert (tmp_path / "g.md").read_text().startswith("# loadgen gate: FAIL")
    assert summary.read_text() == "# Before\n" + (tmp_path / "g.md").read_text()
    assert "::error title=loadgen gate::FAIL: TPOT mean is 15 %25 slower" in done.err


def test_a_file_that_cannot_be_written_is_said(at: Path) -> None:
    """The verdict is printed all the same, whatever else was asked for is written; no PASS is 0 then."""
    files = ("--junit", "no/such/folder.xml", "--markdown", ".", "--out", str(at / "told"))
    for candidate, code in (("same", 4), ("slow", 1)):
        done = gated(at, candidate, *files, GITHUB_STEP_SUMMARY="/no/such", GITHUB_ACTIONS="true")
        assert done.code == code
        assert done.out.startswith("PASS" if candidate == "same" else "FAIL")
        assert "loadgen: cannot write no/such/folder.xml" in done.err
        assert "loadgen: cannot write /no/such" in done.err
        assert "loadgen: cannot write .:" in done.err
        assert "title=loadgen gate::" in done.err
        assert (at / "told" / "gate.json").stat().st_size
        (at / "told" / "gate.json").unlink()


# --- baselines --------------------------------------------------------------------------------------


def test_a_baseline_stands_for_its_run(at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added, listed, shown and gated by, under its name."""
    monkeypatch.chdir(tmp_path)

    def said(*words: object) -> str:
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == (words[0] == "gate"), done.output
        return done.stdout

    said("baseline", "add", at / "base")
    assert Path("baselines/chat/base.baseline").is_file()
    [about] = json.loads(said("baseline", "list", "--json")).values()
    assert (about["run_id"], about["source"]) == ("base", "virtual")
    assert "SIMULATED" in said("baseline", "show", "chat")
    shown = json.loads(said("baseline", "show", "chat", "--json"))
    assert shown["figures"]["tpot_mean"]["mean"] == pytest.approx(0.01)
    assert "TPOT mean is 15 % slower" in said("gate", at / "slow", "--baseline", "chat", "--noise", "0.5%")


def test_what_is_no_baseline_is_2_and_not_kept(at: Path, tmp_path: Path) -> None:
    """One clear line; nothing is written."""
    done = loadgen("baseline", "add", at / altered(at, "halved", complete=False), cwd=tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "can be no baseline: it did not come to its end" in done.err
    assert not (tmp_path / "baselines").exists()


def test_several_baselines_follow_one_flag() -> None:
    """What a shell makes of --baseline runs/base-*, and no run of them is taken for a candidate."""
    assert joined(["gate", "c", "--baseline", "a", "b", "--junit", "f"]) == [
        *("gate", "c", "--baseline", "a", "--baseline", "b", "--junit", "f")
    ]
