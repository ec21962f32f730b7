"""One plan on two sides in turn, and the verdict over its runs."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from loadgen import drive
from loadgen.cli.app import app
from loadgen.cli.between import two_sided
from loadgen.repeats import alternating
from loadgen.scenario import Scenario, ScenarioError, build
from tests.end_to_end.process import loadgen, running, serving

LOAD: dict[str, Any] = {
    "arrivals": {"kind": "poisson", "rate": "8/s"},
    "num_requests": 200,
    "output_tokens": 8,
    "tail": False,
}
SCENARIO = {
    "engine": {"cost": {"kind": "fixed", "step": "10ms"}, "jitter": {"step": 0.05}},
    "load": LOAD,
    "variants": {
        "old": {},
        "same": {},
        "slow": {"engine": {"cost": {"kind": "fixed", "step": "13ms"}}},
        "other": {"load": LOAD | {"num_requests": 3}},
    },
}


def gate(tmp_path: Path, *words: str, scenario: dict[str, Any] = SCENARIO) -> Result:
    (tmp_path / "it.yaml").write_text(json.dumps(scenario))
    at = ["gate", str(tmp_path / "it.yaml"), "--virtual", "--out", str(tmp_path / "out")]
    return CliRunner().invoke(app, [*at, *words])


def asked(**more: Any) -> Scenario:
    return build(SCENARIO | more)


def test_sides_alternate_so_that_a_steady_drift_is_the_same_for_both() -> None:
    """A B B A: where each run is slower than the last by as much, an even number of pairs has equal means."""
    turns = list(alternating("a", "b", 4))
    assert "".join(side for side, _ in turns) == "abbaabba"
    places = {side: [i for i, (which, _) in enumerate(turns) if which == side] for side in "ab"}
    assert sum(places["a"]) == sum(places["b"])
    assert [number for side, number in turns if side == "b"] == [1, 2, 3, 4]


def test_a_slower_side_fails_and_one_of_the_same_passes(tmp_path: Path) -> None:
    """The first named is the baseline, the second the candidate."""
    for names, code in (("old", "slow"), 1), (("slow", "old"), 0), (("old", "same"), 0):
        at = str(tmp_path / "-".join(names))
        ended = gate(tmp_path, "--between", *names, "--out", at, "--repeats", "2", "--metric", "itl_p50")
        assert ended.exit_code == code


def test_each_run_is_a_folder_and_the_gate_can_be_made_again_from_them(tmp_path: Path) -> None:
    """One plan, six runs, each with jitter and salt of its own; the plain gate says the same of them."""
    only = ("--metric", "itl_p50")
    gate(tmp_path, "--between", "old", "slow", "--repeats", "3", *only)
    found = [json.loads(path.read_text()) for path in sorted((tmp_path / "out").glob("*/*/run.json"))]
    ends = [f"{side}-{number}" for side in ("old", "slow") for number in range(1, 4)]
    assert ["-".join(header["run_id"].split("-")[-2:]) for header in found] == ends
    assert len({header["plan_digest"] for header in found}) == 1
    assert len({header["salt"] for header in found}) == len(found)
    assert [header["scenario"]["engine"]["seed"] for header in found] == list(range(6))
    first = json.loads((tmp_path / "out" / "gate.json").read_text())
    slow, old = (str(tmp_path / "out" / side) for side in ("slow", "old"))
    again = ["gate", slow, "--baseline", old, "--json", *only]
    assert json.loads(CliRunner().invoke(app, again).stdout)["changes"] == first["changes"]


def test_a_scenario_says_how_often_and_a_flag_says_it_over_it(tmp_path: Path) -> None:
    """Five times where neither does."""
    few = SCENARIO | {"load": LOAD | {"num_requests": 40}}
    for words, more, number in ([], {}, 5), ([], {"repeats": 2}, 2), (["--repeats", "1"], {"repeats": 2}, 1):
        at = tmp_path / str(number)
        between = ("--between", "old", "same", "--out", str(at), "--metric", "itl_p50")
        gate(tmp_path, *between, *words, scenario=few | more)
        assert len(list(at.glob("*/*/run.json"))) == 2 * number


def test_an_interrupted_series_judges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs so far are kept, and the code is 130 though nothing was slower."""
    simulate = drive.simulate
    monkeypatch.setattr(
        "loadgen.cli.firing.simulate",
        lambda order, _asked, **more: simulate(order, lambda: order.folder.name == "2", **more),
    )
    ended = gate(tmp_path, "--between", "old", "same")
    assert ended.exit_code == 130
    assert not (tmp_path / "out" / "gate.json").exists()
    assert "nothing is judged" in ended.stderr
    kept = sorted(str(p.parent.relative_to(tmp_path / "out")) for p in tmp_path.glob("out/*/*/run.json"))
    assert kept == ["old/1", "same/1", "same/2"]  # the second pair goes the other way round


def test_two_urls_are_two_targets_that_keep_what_the_scenario_says_of_its_own() -> None:
    """The model, the headers and the rest go to both."""
    target = {"base_url": "http://127.0.0.1:1", "model": "m", "headers": {"x": "y"}}
    sides = two_sided(("http://127.0.0.1:2", "http://127.0.0.1:3"), asked(target=target, variants={}), "it")
    found = {name: sides.single(name).target for name in sides.variants}
    assert {name: t and (t.base_url, t.model, t.headers) for name, t in found.items()} == {
        "a": ("http://127.0.0.1:2", "m", {"x": "y"}),
        "b": ("http://127.0.0.1:3", "m", {"x": "y"}),
    }


@pytest.mark.parametrize(
    ("names", "more", "said"),
    [
        (("old", "slov"), {}, "'slov' is neither a URL nor a variant of it.yaml, did you mean slow?"),
        (("old", "old"), {}, "wants two variants, and got 'old' twice"),
        (("http://127.0.0.1:1", "old"), {}, "is neither a URL nor a variant"),
        (("http://h/?q", "http://h:1"), {}, "--between: variants.a.target.base_url: "),
        (("old", "other"), {}, "variants.other.load: a comparison has one plan for all"),
        (("old", "slow"), {"variants": {}, "vary": {"seed": [1]}}, "vary: a gate needs one plan"),
    ],
)
def test_what_are_no_two_sides_gets_a_line(names: tuple[str, str], more: dict[str, Any], said: str) -> None:
    """It says which word is wrong, and why."""
    with pytest.raises(ScenarioError) as trouble:
        two_sided(names, asked(**more), "it.yaml")
    assert said in str(trouble.value)
    assert "\n" not in str(trouble.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runs/1", "--virtual"], "--virtual: nothing is run without --between"),
        (["runs/1", "--repeats", "3", "--seed", "1"], "--repeats, --seed: nothing is run without --between"),
        (["--between", "a", "b", "--baseline", "x"], "--baseline cannot stand beside --between"),
        (["--between", "a", "b", "--unpaired"], "--unpaired cannot stand beside --between"),
        (["s.yaml", "t.yaml", "--between", "a", "b"], "--between runs one SCENARIO"),
        (["runs/1", "--server-command", "x"], "--server-command: goes into the workflow"),
        (["--init", "--between", "a", "b"], "--init writes files and compares none"),
        (["runs/1", "--seed", "0"], "--seed: nothing is run without"),
        (["runs/1", "--init"], "--init writes files and compares none"),
        (["--baseline", "x"], "CANDIDATE: a run folder"),
    ],
)
def test_a_flag_that_would_be_passed_over_is_refused(words: list[str], said: str) -> None:
    """Nothing is run, nothing written."""
    ended = CliRunner().invoke(app, ["gate", *words])
    assert isinstance(ended.exception, ScenarioError)
    assert said in str(ended.exception)


# --- over HTTP, in real processes ----

FLAGS = ("--rate", "20", "--num-prompts", "60", "--repeats", "2")


@pytest.mark.slow
def test_two_servers_are_gated_from_the_command_line_alone(tmp_path: Path) -> None:
    """No scenario is needed: the load is said by flags; a step half as long again is slower."""
    with (
        serving("--step", "10ms", cwd=tmp_path) as (old, _),
        serving("--step", "15ms", cwd=tmp_path) as (new, _),
    ):
        ended = loadgen(
            "gate", "--between", old, new, *FLAGS, "--out", "out", "--metric", "itl_p50", cwd=tmp_path
        )
    assert ended.code in (1, 4), ended.err  # 4 on a busy machine
    assert ("INVALID" if ended.code == 4 else "slower") in ended.out
    headers = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("out/*/*/run.json"))]
    assert [header["target"] for header in headers] == [old, old, new, new]
    turns = sorted(headers, key=lambda header: header["clock_origin_monotonic_ns"])
    assert [header["target"] for header in turns] == [old, new, new, old]


@pytest.mark.slow
def test_ctrl_c_ends_the_series_and_is_no_verdict(tmp_path: Path) -> None:
    """The first run, cut short, is kept; the second is never begun."""
    with serving("--step", "10ms", cwd=tmp_path) as (url, _):
        words = ("gate", "--between", url, url, *FLAGS, "--out", "out", "--num-prompts", "2000")
        with running(*words, cwd=tmp_path) as process:
            wait_for(tmp_path / "out" / "a" / "1" / "run.json")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "PASS" not in out + err
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.glob("out/*/*/run.json")] == [
        "out/a/1/run.json"
    ]


@pytest.mark.slow
def test_a_server_that_is_not_there_ends_it_before_any_run(tmp_path: Path) -> None:
    """Though the other one is: both are looked at first."""
    with serving("--step", "10ms", cwd=tmp_path) as (url, _):
        ended = loadgen("gate", "--between", url, "http://127.0.0.1:9", *FLAGS, "--out", "out", cwd=tmp_path)
    assert ended.code == 5
    assert "variants.b" in ended.err
    assert not (tmp_path / "out").exists()


def wait_for(path: Path) -> None:
    for _ in range(200):
        if path.exists():
            return
        time.sleep(0.1)
    raise TimeoutError(path)
