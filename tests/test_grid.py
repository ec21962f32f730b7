"""A grid: which cells it has, in which order, and the one table of them all."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from loadgen import drive
from loadgen.cli.app import app
from loadgen.cli.exits import Exit, worst
from loadgen.grid import MOST_CELLS, Ran, cells, table
from loadgen.order import Order
from loadgen.run_folder import RunWriter
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.workload import draw
from tests.records import ok

LOAD: dict[str, Any] = {"arrivals": {"kind": "constant", "rate": "4/s"}, "num_requests": 3, "tail": False}


def asked(vary: dict[str, list[Any]], **load: Any) -> Scenario:
    return build({"engine": {"cost": {"kind": "fixed", "step": "10ms"}}, "load": LOAD | load, "vary": vary})


def values(vary: dict[str, list[Any]], **load: Any) -> list[tuple[Any, ...]]:
    return [tuple(cell.values.values()) for cell in cells(asked(vary, **load), "it")]


# --- cells ----


def test_a_value_given_twice_is_refused() -> None:
    """Its cell would be run twice, and look like two."""
    with pytest.raises(ScenarioError, match=r"it: vary\.load\.num_requests: a value is given twice"):
        values({"load.num_requests": [5, 3, 5]})


@pytest.mark.parametrize(
    ("key", "given", "rising"),
    [
        ("load.arrivals.rate", ["8/s", "2/s", "4/s"], ["2/s", "4/s", "8/s"]),
        ("load.arrivals.rate", ["180/min", "4/s", 2], [2, "180/min", "4/s"]),
        ("timeouts.idle", ["2s", "500ms", "1m"], ["500ms", "2s", "1m"]),
        ("engine.max_sequences", [100, 9, 20], [9, 20, 100]),
        ("engine.policy", ["priority", "fcfs"], ["priority", "fcfs"]),
        ("load.ignore_eos", [True, False], [True, False]),
        ("load.prompt_tokens", [64, {"kind": "uniform", "min": 1, "max": 9}, 8], None),
    ],
)
def test_values_that_have_an_order_rise_and_others_stay(
    key: str, given: list[Any], rising: list[Any] | None
) -> None:
    """Whatever their units; where one has no size, all stand as they were written."""
    assert values({key: given}) == [(value,) for value in rising or given]


def test_the_last_key_changes_fastest() -> None:
    """As an odometer does."""
    assert values({"seed": [2, 1], "engine.policy": ["priority", "fcfs"]}) == [
        (1, "priority"),
        (1, "fcfs"),
        (2, "priority"),
        (2, "fcfs"),
    ]


def test_each_cell_is_the_scenario_with_its_values() -> None:
    """And has nothing more that varies."""
    (slow, fast) = (c.scenario for c in cells(asked({"load.arrivals.rate": ["4/s", "8/s"]}), "it"))
    plain = build({"engine": {"cost": {"kind": "fixed", "step": "10ms"}}, "load": LOAD})
    assert slow == plain
    assert draw(fast).due_ns.tolist() == [0, 125_000_000, 250_000_000]
    assert not fast.vary


def test_an_entry_of_a_list_goes_by_its_number() -> None:
    """The first of two stages lasts 1 or 2 s at 4/s, then two requests come at once."""
    stages = [
        {"arrivals": {"kind": "constant", "rate": "4/s"}, "duration": "1s"},
        {"arrivals": {"kind": "burst"}, "num_requests": 2},
    ]
    load = {"arrivals": {"kind": "stages", "stages": stages}, "tail": False}
    scenario = build({"load": load, "vary": {"load.arrivals.stages.0.duration": ["2s", "1s"]}})
    assert [len(draw(cell.scenario)) for cell in cells(scenario, "it")] == [4 + 2, 8 + 2]


def test_folders_are_numbered_and_say_what_is_in_them() -> None:
    """The last part of each key, and a value without any sign that a path or a shell could stumble over."""
    vary = {
        "load.arrivals.rate": ["8/s", "4/s"],
        "load.prompt_tokens": [{"kind": "uniform", "min": 1, "max": 9}],
    }
    names = [cell.name for cell in cells(asked(vary), "it")]
    assert names == ["001-rate=4_s-prompt_tokens=uniform", "002-rate=8_s-prompt_tokens=uniform"]
    long = cells(asked({"name": ["x" * 60], "load.arrivals.rate": ["4/s"], "seed": [2**31 - 1]}), "it")[
        0
    ].name
    assert len(long) <= 100


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("load.arrival.rate", "8/s", "did you mean arrivals?"),
        ("load.arrivals.rate", "fast", "is not a rate"),
        ("load.prompt_tokens.mean", 5, "mean"),
        ("load.arrivals.stages.0.duration", "5s", "stages"),
    ],
)
def test_a_cell_that_is_no_scenario_is_told_in_one_line(key: str, value: Any, told: str) -> None:
    """Which names the key and the value that were varied."""
    with pytest.raises(ScenarioError) as caught:
        cells(asked({"engine.max_sequences": [3], key: [value]}), "it")
    said = str(caught.value)
    assert told in said
    assert "\n" not in said
    assert said.startswith("it")
    assert f"{key}: {value}" in said.replace("'", "").replace('"', "")


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("target.headers.Authorization", ["Bearer sk-one-1", "Bearer sk-two-2"]),
        ("target.headers", [{"X-A": "sk-one-1"}]),
        ("target.extra_body.api_key", ["sk-one-1"]),
        ("load.extra_body", [{"deep": [{"token": "sk-one-1"}]}]),
        ("target.proxy", ["http://u:sk-one-1@h:1"]),
        ("target.endpoint", ["/v1/chat/completions?key=sk-one-1"]),
    ],
)
def test_a_secret_that_varies_is_refused(key: str, values: list[Any]) -> None:
    """Folders and tables are named by what varies: it is not told what the value is, either."""
    scenario = build({"target": {"base_url": "http://h"}, "load": LOAD, "vary": {key: values}})
    with pytest.raises(ScenarioError, match="a secret would be told in names and tables") as told:
        cells(scenario, "it")
    assert "sk-one" not in str(told.value)


def test_a_grid_of_too_many_cells_is_refused_before_any_is_made() -> None:
    """A hundred and one times a hundred."""
    with pytest.raises(ScenarioError, match=f"vary: 10,100 cells are more than {MOST_CELLS:,}"):
        cells(asked({"seed": list(range(101)), "engine.max_sequences": list(range(1, 101))}), "it")


# --- the table ----

HEAD = ["run_id", "exit_code", "validity", "ok"]
FIGURES = [
    *("offered", "offered_rps", "completed_rps", "output_tokens_per_s"),
    *("makespan_s", "makespan_output_tokens_per_s", "rejection_rate", "error_rate", "in_flight_max"),
    *(f"{metric}_{q}" for metric in ("ttft_s", "itl_s", "tpot_s", "e2e_s") for q in ("p50", "p90", "p99")),
]


def ran(folder: Path, vary: dict[str, list[Any]], **load: Any) -> list[Ran]:
    found = []
    for cell in cells(asked(vary, **load), "it"):
        at, run_id = folder / cell.name, cell.name[:3]
        run = drive.simulate(Order(cell.scenario, draw(cell.scenario), at, run_id))
        found.append(Ran(cell, drive.conclude(run, at), 0))
    return found


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_the_columns_are_always_the_same_behind_what_was_varied(tmp_path: Path) -> None:
    """A tool may count on them. Three requests of one and of two tokens, a step of 10 ms each."""
    found = ran(tmp_path, {"load.output_tokens": [1, 2]})
    rows = read(table(found))
    assert list(rows[0]) == ["folder", "load.output_tokens", *HEAD, *FIGURES]
    assert [row["load.output_tokens"] for row in rows] == ["1", "2"]
    assert [(row["folder"], row["ok"], row["exit_code"]) for row in rows] == [
        ("001-output_tokens=1", "3", "0"),
        ("002-output_tokens=2", "3", "0"),
    ]
    assert [float(row["e2e_s_p99"]) for row in rows] == [0.01, 0.02]


def test_what_is_not_defined_is_an_empty_cell(tmp_path: Path) -> None:
    """Of answers of one token there is no gap, and no time per further token."""
    found = ran(tmp_path, {"load.output_tokens": [1]})
    (row,) = read(table(found))
    assert (row["itl_s_p50"], row["tpot_s_p99"]) == ("", "")
    nothing = replace(
        found[0], summary=msgspec.structs.replace(found[0].summary, offered_rps=None, outcomes={})
    )
    (row,) = read(table([nothing]))
    assert (row["offered_rps"], row["ok"]) == ("", "0")


# --- from the command line ----

YAML = """\
name: sweep
engine: {max_sequences: 1, max_queue: 0, cost: {kind: fixed, step: 50ms}}
load:
  arrivals: {kind: constant, rate: 1/s}
  num_requests: 4
  output_tokens: 4
  tail: false
"""


def loadgen(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def swept(folder: Path, rest: str, *flags: str) -> tuple[int, list[dict[str, str]]]:
    """The exit code and the table of a grid that was simulated."""
    scenario = folder / "sweep.yaml"
    scenario.write_text(YAML + rest)
    done = loadgen("run", str(scenario), "--virtual", "--quiet", "--out", str(folder / "out"), *flags)
    if not isinstance(done.exception, SystemExit | None):
        raise done.exception
    return done.exit_code, read((folder / "out" / "cells.csv").read_text())


RATES = "vary:\n  load.arrivals.rate: [8/s, 2/s, 4/s]\n"
FAILING = "vary:\n  load.arrivals.rate: [20/s, 2/s, 10/s]\nslos: [max(e2e) <= 300ms]\n"


def test_every_cell_has_a_run_folder_of_its_own(tmp_path: Path) -> None:
    """An answer takes 0.2 s: at 2/s and 4/s all get in, at 8/s every second one."""
    code, rows = swept(tmp_path, RATES)
    assert code == Exit.OK
    assert [(row["load.arrivals.rate"], row["ok"]) for row in rows] == [
        ("2/s", "4"),
        ("4/s", "4"),
        ("8/s", "2"),
    ]
    for row in rows:
        folder = tmp_path / "out" / row["folder"]
        assert json.loads((folder / "run.json").read_text())["run_id"] == row["run_id"]
        assert (folder / "summary.json").is_file()
    assert len({row["run_id"] for row in rows}) == 3


def test_each_cell_is_salted_on_its_own(tmp_path: Path) -> None:
    """So that no cache of one cell answers the next, and the same salt replays all of them."""
    _, rows = swept(tmp_path, RATES, "--salt", "pepper")
    salts = [json.loads((tmp_path / "out" / row["folder"] / "run.json").read_text())["salt"] for row in rows]
    assert salts == ["pepper-001", "pepper-002", "pepper-003"]


def test_without_a_given_salt_no_two_cells_have_the_same(tmp_path: Path) -> None:
    """Each has its run id."""
    _, rows = swept(tmp_path, RATES)
    salts = [json.loads((tmp_path / "out" / row["folder"] / "run.json").read_text())["salt"] for row in rows]
    assert salts == [row["run_id"] for row in rows]


@pytest.mark.parametrize(("flags", "cells_run"), [(["--stop-on-fail"], 2), ([], 3)])
def test_a_grid_may_end_with_the_first_cell_that_fails(
    tmp_path: Path, flags: list[str], cells_run: int
) -> None:
    """At 2/s all are answered in 0.2 s; at 10/s some are rejected, which no limit of E2E allows."""
    code, rows = swept(tmp_path, FAILING, *flags)
    assert [row["load.arrivals.rate"] for row in rows] == ["2/s", "10/s", "20/s"][:cells_run]
    assert [int(row["exit_code"]) for row in rows] == [Exit.OK, Exit.FAILED, Exit.FAILED][:cells_run]
    assert code == Exit.FAILED


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([Exit.OK, Exit.UNRESOLVED, Exit.OK], Exit.UNRESOLVED),
        ([Exit.FAILED, Exit.UNRESOLVED], Exit.FAILED),
        ([Exit.FAILED, Exit.INVALID, Exit.OK], Exit.INVALID),
        ([Exit.INVALID, Exit.INTERRUPTED], Exit.INTERRUPTED),
        ([], Exit.OK),
    ],
)
def test_the_code_of_a_grid_is_that_of_its_worst_cell(codes: list[Exit], code: Exit) -> None:
    """Interrupted, invalid, failed, unresolved, ok."""
    assert worst(codes) == code


# --- taken up again ----


def cut_short(run: Path) -> None:
    """As a kill leaves a run: its last line half written, its header that of the start."""
    header = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(header | {"complete": False, "rows_due": None}))
    (run / "records.jsonl").write_bytes((run / "records.jsonl").read_bytes()[:-40])
    (run / "summary.json").unlink()


def told(folder: Path) -> list[dict[str, str]]:
    """What a table says of its cells, whichever run it was."""
    return [{key: of for key, of in row.items() if key != "run_id"} for row in read(folder.read_text())]


def test_a_grid_goes_on_at_the_first_cell_that_is_not_complete(tmp_path: Path) -> None:
    """The first is kept to the byte, the second made again and what there was kept aside; the table is that
    of a grid that nothing befell.
    """
    _, undisturbed = swept(tmp_path, RATES)
    out = tmp_path / "out"
    first, second, third = sorted(path for path in out.iterdir() if path.is_dir())
    whole = told(out / "cells.csv")
    cut_short(second)
    half = (second / "records.jsonl").read_bytes()
    shutil.rmtree(third)
    (out / "cells.csv").unlink()
    before = {name: (first / name).read_bytes() for name in ("run.json", "records.jsonl")}
    _, rows = swept(tmp_path, RATES)
    assert {name: (first / name).read_bytes() for name in before} == before
    assert told(out / "cells.csv") == whole
    same = [row["run_id"] == was["run_id"] for row, was in zip(rows, undisturbed, strict=True)]
    assert same == [True, False, False]
    (aside,) = out.glob(f"unused-*-{second.name}")
    assert (aside / "records.jsonl").read_bytes() == half


def test_a_grid_that_is_whole_runs_nothing_again(tmp_path: Path) -> None:
    """Its table is made anew, and the code is the same."""
    code, rows = swept(tmp_path, FAILING)
    assert swept(tmp_path, FAILING) == (code, rows)
    assert swept(tmp_path, FAILING, "--stop-on-fail") == (code, rows[:2])


def test_an_interrupted_grid_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell that was cut off is in the table, and is not counted as whole."""
    (tmp_path / "sweep.yaml").write_text(YAML + RATES)
    simulate, out = drive.simulate, tmp_path / "out"
    monkeypatch.setattr(
        "loadgen.cli.firing.simulate",
        lambda order, _asked, **more: simulate(order, lambda: order.folder.name[:3] == "002", **more),
    )
    ended = loadgen("run", str(tmp_path / "sweep.yaml"), "--virtual", "--out", str(out))
    assert ended.exit_code == Exit.INTERRUPTED
    said = " ".join(ended.stderr.split())
    assert "interrupted: 1 of 3 runs are whole, and kept; " in said
    assert said.endswith(f"the same command with --out {out} goes on from here")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((RATES, ("--seed", "7")), "001-rate=2_s is a run of another scenario, or of other flags"),
        ((RATES, ("--salt", "other")), "001-rate=2_s is a run of another scenario, or of other flags"),
        ((RATES.replace("4/s", "5/s"), ()), "002-rate=4_s is no run of this scenario"),
        (("", ()), "out is not empty"),
    ],
    ids=["seed", "salt", "rates", "no grid"],
)
def test_another_scenario_does_not_go_on_in_the_folder_of_a_grid(
    tmp_path: Path, change: tuple[str, tuple[str, ...]], said: str
) -> None:
    """One line, before anything is run or moved."""
    swept(tmp_path, RATES)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    with pytest.raises(ScenarioError) as caught:
        swept(tmp_path, change[0], *change[1])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


def test_a_cell_that_still_runs_is_left_alone(tmp_path: Path) -> None:
    """Another process writes it: it is not moved from under that."""
    swept(tmp_path, RATES)
    second = tmp_path / "out" / "002-rate=4_s"
    header = (second / "run.json").read_text()
    shutil.rmtree(second)
    with RunWriter(second) as writer:
        (second / "run.json").write_text(json.dumps(json.loads(header) | {"complete": False}))
        with pytest.raises(ScenarioError, match="002-rate=4_s: that run still goes on: wait, or choose"):
            swept(tmp_path, RATES)
        writer.append(ok(0))
    assert swept(tmp_path, RATES)[0] == Exit.OK
