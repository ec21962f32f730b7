"""The flags of `loadgen capacity` that ask for several settings and for a day's replicas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.capacity import Capacity
from loadgen.cli.app import app
from loadgen.cli.planning import day, settings
from loadgen.report.planning_view import hours
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.sweep import ranked, sweep

LOAD = {"arrivals": {"kind": "poisson", "rate": "2/s"}, "num_requests": 5}
SCENARIO = build({"name": "chat", "load": LOAD})


def found(load: float | None, low: float | None, high: float | None, **more: Any) -> Capacity:
    answer = more.pop("answer", "BOUNDED")
    return Capacity(
        name="chat", over="rate", unit="requests/s", slos=[], resolution=0.02, answer=answer, reason="",
        load=load, low=low, high=high, **more,
    )  # fmt: skip


@pytest.fixture
def curve(tmp_path: Path) -> str:
    path = tmp_path / "day.yaml"
    path.write_text("load: {arrivals: {kind: poisson, rate: 7/s}, duration: 2h}\n")
    return str(path)


def test_a_day_is_planned_with_the_lower_edge_of_the_capacity(curve: str) -> None:
    """7/s and a tenth spare, of replicas that hold 2/s for certain and perhaps 2.5: four."""
    asked = day(SCENARIO, {"for_": curve, "headroom": "10%"})
    assert asked is not None
    plan = asked.replicas(found(2.5, 2.0, 3.0))
    assert plan is not None
    assert [hour.replicas for hour in plan.hours] == [4, 4]


def test_a_day_that_is_squeezed_is_not_silently_one_hour(tmp_path: Path) -> None:
    """The flag that makes it a day is named, and a day that says how long its hours last is not told."""
    path = tmp_path / "day.yaml"
    path.write_text("load: {arrivals: {kind: poisson, rate: 7/s}, duration: 12m}\n")
    for flag, is_told in ((None, True), ("30s", False)):
        asked = day(SCENARIO, {"for_": str(path), "hour": flag})
        assert asked is not None
        plan = asked.replicas(found(2.5, 2.0, 3.0))
        assert plan is not None
        notes = [note for note in hours(plan).notes if "--hour 30s" in note]
        assert bool(notes) is is_told


def test_without_a_load_that_passed_there_is_no_plan(curve: str) -> None:
    """Nor is one invented."""
    asked = day(SCENARIO, {"for_": curve})
    assert asked is not None
    assert asked.replicas(found(None, None, 1.0, answer="FAIL")) is None


def test_the_price_is_the_targets_unless_a_flag_says_another(curve: str) -> None:
    """And none where neither does."""
    target = {"base_url": "http://127.0.0.1:1", "usd_per_hour": 4.0}
    priced = build({"load": LOAD, "target": target})
    for scenario, flag, price in ((priced, None, 4.0), (priced, 3.0, 3.0), (SCENARIO, None, None)):
        asked = day(scenario, {"for_": curve, "usd_per_hour": flag})
        assert asked is not None
        assert asked.usd_per_hour == price


@pytest.mark.parametrize(
    ("params", "rule"),
    [
        ({"headroom": "20%"}, "--headroom is of a day's load: give --for CURVE too"),
        ({"for_": "CURVE", "headroom": "20"}, "--headroom: '20' is no share: write a percentage"),
        ({"for_": "CURVE", "hour": "0s"}, "--hour: must be above zero"),
        ({"for_": "closed-loop"}, "closed-loop: load.arrivals: closed has no rate to plan for"),
        ({"for_": "dy-curve"}, "did you mean day-curve?"),
    ],
)
def test_what_is_wrong_with_the_day_is_said_before_anything_is_searched(
    curve: str, params: dict[str, Any], rule: str
) -> None:
    """In one line."""
    with pytest.raises(ScenarioError) as refused:
        day(SCENARIO, {key: curve if value == "CURVE" else value for key, value in params.items()})
    assert rule in str(refused.value)
    assert "\n" not in str(refused.value)


def test_params_are_a_grid_of_scenarios() -> None:
    """Two keys of two values are four settings, the last changing fastest."""
    cells = settings(SCENARIO, ["engine.max_sequences=4,2", "engine.token_budget=512,1024"])
    assert [(c.scenario.engine.max_sequences, c.scenario.engine.token_budget) for c in cells] == [
        (2, 512), (2, 1024), (4, 512), (4, 1024),
    ]  # fmt: skip
    assert not any(cell.scenario.vary for cell in cells)


@pytest.mark.parametrize(
    ("texts", "rule"),
    [
        (["engine.max_sequences"], "--param wants KEY=VALUE,VALUE"),
        (["engine.max_sequences="], "--param wants KEY=VALUE,VALUE"),
        (["engine.max_sequences=4", "engine.max_sequences=5"], "a key is given twice"),
        (["engine.max_sequences=4,4"], "a value is given twice"),
        (["engine.max_sequences=4,many"], "(--param, engine.max_sequences: 'many')"),
        (["engine.max_seqences=4"], "did you mean max_sequences?"),
    ],
)
def test_a_param_that_makes_no_scenario_is_refused(texts: list[str], rule: str) -> None:
    """With the key, and what was meant."""
    with pytest.raises(ScenarioError) as refused:
        settings(SCENARIO, texts)
    assert rule in str(refused.value)


def test_the_engine_of_somebody_elses_server_cannot_be_varied() -> None:
    """It would be the same server each time, called by another name."""
    asked = build({"load": LOAD, "target": {"base_url": "http://127.0.0.1:1"}})
    with pytest.raises(ScenarioError, match="the engine is the bundled one"):
        settings(asked, ["engine.max_sequences=4,8"])
    assert len(settings(asked, ["load.prompt_tokens=64,128"])) == 2


def test_the_best_is_the_one_that_holds_most_and_a_tie_is_one_that_may() -> None:
    """8 in [7.9, 8.2]: 7.8 below 8.1 may be as good, 7 below 7.5 is not, what failed is no rival."""
    others = [found(7.8, 7.6, 8.1), found(7.0, 6.9, 7.5), found(None, None, 1.0, answer="FAIL")]
    assert ranked([*others[:1], found(8.0, 7.9, 8.2), *others[1:]]) == (1, [0])
    assert ranked([found(None, None, 1.0, answer="FAIL")]) == (None, [])


def test_one_without_an_upper_edge_may_hold_any_load() -> None:
    """So it ties with whatever holds more."""
    assert ranked([found(8.0, 7.9, 8.2), found(5.0, 5.0, None, answer="UNRESOLVED")]) == (0, [1])


def test_a_search_that_was_interrupted_is_the_last() -> None:
    """What was found before it is kept."""
    cells = settings(SCENARIO, ["engine.max_sequences=1,2,3"])

    def find(cell: Any) -> Capacity:
        held: Scenario = cell.scenario
        slots = held.engine.max_sequences
        return found(float(slots), slots - 0.1, slots + 0.1, interrupted=slots == 2)

    swept = sweep(cells, find)
    assert [one.values for one in swept.settings] == [
        {"engine.max_sequences": 1},
        {"engine.max_sequences": 2},
    ]
    assert swept.best == 1


SMALL = """
seed: 2
engine: {max_sequences: 1, cost: {kind: fixed, step: 40ms}}
load: {arrivals: {kind: constant, rate: 10/s}, num_requests: 200, output_tokens: 1, prompt_tokens: 8}
slos: [p90(e2e) <= 90ms]
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One slot of 40 ms a request: 25/s with one sequence, whatever else is true."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    return "small.yaml"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """The exit code of `loadgen capacity` and what it prints as JSON."""
    code = app(["capacity", *words, "--virtual", "--quiet", "--json"], standalone_mode=False) or 0
    return code, json.loads(capsys.readouterr().out)


def test_a_day_is_told_with_the_capacity_it_rests_on(
    small: str, curve: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """35/s and no spare, of replicas that hold about 25/s: two in each hour; the plan is kept beside."""
    Path(curve).write_text(Path(curve).read_text().replace("7/s", "35/s"))
    asked = ["--for", curve, "--headroom", "0%", "--usd-per-hour", "3"]
    code, found = told(capsys, small, "--out", "found", *asked)
    assert code == 0
    assert found["capacity"]["load"] == pytest.approx(25, rel=0.03)
    assert [hour["replicas"] for hour in found["replicas"]["hours"]] == [2, 2]
    assert found["replicas"]["usd"] == 12
    assert json.loads(Path("found/replicas.json").read_text()) == found["replicas"]
    assert (found["replicas"]["schema"], Path("found/report.md").is_file()) == (1, True)
    per_s = found["capacity"]["usd_per_million_output_tokens"]
    assert per_s == pytest.approx(3 / 3600 / 25 * 1e6, rel=0.05)  # of one token a request


def test_the_best_of_several_settings_is_named(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Two slots hold twice what one does; each has its folder, and is not searched anew a second time."""
    words = [small, "--out", "found", "--resolution", "5%", "--param", "engine.max_sequences=1,2"]
    code, found = told(capsys, *words)
    assert code == 0
    loads = [setting["capacity"]["load"] for setting in found["settings"]]
    assert loads == [pytest.approx(25, rel=0.03), pytest.approx(50, rel=0.03)]
    assert (found["schema"], found["best"], found["ties"]) == (1, 1, [])
    assert len([*Path("found").glob("*/report.md")]) == 2
    runs = sorted(Path("found").glob("*/*/run.json"))
    assert told(capsys, *words) == (0, found)
    assert sorted(Path("found").glob("*/*/run.json")) == runs
