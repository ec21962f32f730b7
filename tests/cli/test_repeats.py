"""Several runs of one plan: each a run folder, the plan the same, the jitter not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from loadgen import drive
from loadgen.cli.app import app
from loadgen.repeats import folder_of
from loadgen.scenario import ScenarioError, build

SCENARIO = """
repeats: 3
engine:
  cost: {kind: fixed, step: 10ms}
  jitter: {step: 0.05}
load: {arrivals: {kind: poisson, rate: 8/s}, num_requests: 30, output_tokens: 8, tail: false}
"""


def run(tmp_path: Path, *words: str, text: str = SCENARIO) -> Result:
    (tmp_path / "it.yaml").write_text(text)
    at = ["run", str(tmp_path / "it.yaml"), "--virtual", "--out", str(tmp_path / "out")]
    return CliRunner().invoke(app, [*at, *words])


def headers(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/run.json"))]


def test_each_run_has_the_plan_and_a_folder_salt_and_jitter_of_its_own(tmp_path: Path) -> None:
    """The plan's digest is one; run ids, salts and engine seeds are three."""
    assert run(tmp_path).exit_code == 0
    found = headers(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["1", "2", "3"]
    assert len({header["plan_digest"] for header in found}) == 1
    assert len({header["run_id"] for header in found}) == len({header["salt"] for header in found}) == 3
    assert [header["scenario"]["engine"]["seed"] for header in found] == [0, 1, 2]
    assert {header["scenario"]["repeats"] for header in found} == {1}
    assert len({(tmp_path / "out" / n / "records.jsonl").read_bytes() for n in "123"}) == 3


def test_a_flag_is_laid_over_the_file_and_a_given_salt_stays_in_each(tmp_path: Path) -> None:
    """What is said twice is said by the flag; prompts of two runs are never the same."""
    assert run(tmp_path, "--repeats", "2", "--salt", "mine").exit_code == 0
    assert [header["salt"] for header in headers(tmp_path / "out")] == ["mine-1", "mine-2"]


def test_one_repeat_is_a_plain_run(tmp_path: Path) -> None:
    """Its folder is the run folder."""
    assert run(tmp_path, "--repeats", "1").exit_code == 0
    assert (tmp_path / "out" / "run.json").is_file()


def test_the_table_shows_each_run_and_how_far_they_differ(tmp_path: Path) -> None:
    """The spread is the standard deviation between the runs over their mean, here of TTFT p50 by hand."""
    shown = run(tmp_path).stdout
    summaries = [json.loads((tmp_path / "out" / n / "summary.json").read_text()) for n in "123"]
    p50s = [summary["metrics"]["ttft_s"]["quantiles"]["p50"] for summary in summaries]
    spread = next(line for line in shown.splitlines() if line.startswith("spread"))
    assert f"{100 * stdev(p50s) / fmean(p50s):.1f} %" in spread


def test_as_json_the_summaries_stand_alone_on_stdout(tmp_path: Path) -> None:
    """One a run, in order."""
    told = json.loads(run(tmp_path, "--json", "--quiet").stdout)
    assert [summary["run_id"] for summary in told] == [
        header["run_id"] for header in headers(tmp_path / "out")
    ]


def test_the_worst_run_decides_the_code(tmp_path: Path) -> None:
    """Here all miss a limit that no run can hold, and each is named with it."""
    ended = run(tmp_path, text=f"{SCENARIO}slos: [p50(ttft) <= 1us]\n")
    assert ended.exit_code == 1
    assert all(f"run {number} FAIL: p50(ttft) <= 1us" in ended.stdout for number in (1, 2, 3))


def test_an_interrupted_run_is_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is kept, and the code says so."""
    simulate = drive.simulate
    monkeypatch.setattr(
        "loadgen.cli.firing.simulate",
        lambda order, _asked, **more: simulate(order, lambda: order.folder.name == "2", **more),
    )
    ended = run(tmp_path)
    assert ended.exit_code == 130
    assert "2 of 3 runs were made" in ended.stdout
    said = " ".join(ended.stderr.split())
    assert "interrupted: 1 of 3 runs are whole, and kept; " in said
    assert said.endswith(f"the same command with --out {tmp_path / 'out'} goes on from here")
    assert [header["interrupted"] for header in headers(tmp_path / "out")] == [False, True]


def test_repeats_go_on_where_they_were_cut_short(tmp_path: Path) -> None:
    """The first is kept, what there was of the second is kept aside, and two are made."""
    assert run(tmp_path).exit_code == 0
    out = tmp_path / "out"
    first = headers(out)[0]
    (out / "2" / "run.json").write_text(json.dumps(headers(out)[1] | {"complete": False}))
    shutil.rmtree(out / "3")
    ended = run(tmp_path)
    assert ended.exit_code == 0
    again = [json.loads((out / n / "run.json").read_text()) for n in "123"]
    assert again[0] == first
    assert len({header["run_id"][: -len("-1")] for header in again}) == 2
    assert len([*out.glob("unused-*-2")]) == 1
    assert "run 1 of 3: made before, and kept" in ended.output


def test_a_kept_run_that_is_invalid_says_how_it_is_made_again(tmp_path: Path) -> None:
    """It is kept, since whether to have it again is the user's to say; and no spread is of it."""
    assert run(tmp_path).exit_code == 0
    second = tmp_path / "out" / "2"
    (second / "run.json").write_text(json.dumps(headers(tmp_path / "out")[1] | {"rows_due": 900}))
    again = run(tmp_path)
    assert again.exit_code == 4
    said = " ".join(again.stderr.split())
    assert "run 1 of 3: made before, and kept run" in said
    assert (
        f"run 2 of 3: made before, and kept; it is INVALID: to have it made again, remove {second} run"
        in said
    )
    shutil.rmtree(second)
    assert run(tmp_path).exit_code == 0


@pytest.mark.parametrize("more", [{"repeats": 2, "vary": {"seed": [1, 2]}}, {"vary": {"repeats": [1, 2]}}])
def test_one_run_is_repeated_not_a_grid(more: dict[str, Any]) -> None:
    """A grid makes runs of its own."""
    load = {"arrivals": {"kind": "burst"}, "num_requests": 1}
    with pytest.raises(ScenarioError, match="it: repeats: repeats one run, and vary makes several"):
        build({"load": load, **more}, "it")


def test_a_comparison_is_of_one_run_each(tmp_path: Path) -> None:
    """It says where repeats belong, rather than leaving them out."""
    (tmp_path / "it.yaml").write_text(f"{SCENARIO}variants: {{a: {{}}, b: {{}}}}\n")
    ended = CliRunner().invoke(app, ["compare", str(tmp_path / "it.yaml"), "--virtual"])
    assert "gate --between repeats" in str(ended.exception)


def test_a_trace_is_of_one_run(tmp_path: Path) -> None:
    """Whoever asks for several gets a line that says so."""
    ended = run(tmp_path, "--trace", "--repeats", "2")
    assert isinstance(ended.exception, ScenarioError)
    assert "repeats" in str(ended.exception)


def test_folders_stand_in_the_order_of_the_runs() -> None:
    """The tenth of twelve comes after the ninth, as text too."""
    names = [folder_of(number, 12) for number in range(1, 13)]
    assert names == sorted(names)
    assert folder_of(3, 5) == "3"
