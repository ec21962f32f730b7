"""The report on real engines says what its runs say, and what the bundled engine foretells of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import hypot
from pathlib import Path
from typing import Any

import pytest

from loadgen import api
from loadgen.engine.fit import Measured
from loadgen.ladder import as_csv
from loadgen.units import duration_s
from tests.bench.real_engines import ENGINES, QUEUE, Bench, Engine
from tests.bench.real_report import page, sides, write

LLAMA = ENGINES[0]
COST = {
    "kind": "fitted",
    "weights": "10ms",
    "per_token": "2ms",
    "per_context_token": "1us",
    "overhead": "1ms",
}


def measured(work: Path, engine: Engine, cost: Mapping[str, Any]) -> Bench:
    """A work folder whose runs a server of that cost would have left, and the ladder of COST."""
    bench = Bench(work, quick=True)
    for variant in engine.variants:
        for cell in bench.cells(engine, variant):
            asked = bench.scenario(cell, 1, engine={**variant.knobs, "cost": cost})
            api.simulate(asked, out=bench.folder(engine, variant, cell, 1))
    weights, token, context, overhead = (duration_s(v) for k, v in COST.items() if k != "kind")
    rows = [
        Measured(t, c, hypot(weights, token * t) + context * c + overhead)
        for t in (1, 2, 4, 8, 64, 256)
        for c in (0, 500, 2000)
    ]
    bench.profile(engine, engine.variant(engine.profile)).write_text(as_csv(rows))
    return bench


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    write(measured(folder / "work", LLAMA, COST), folder / "report")
    return folder / "report"


def test_a_server_that_is_as_its_profile_says_is_foretold(report: Path) -> None:
    """Under every load, what is predicted is within 1 % of what was measured."""
    told = json.loads((report / "figures.json").read_text())["figures"]
    assert len(told) == sum(len(variant.s) for variant in LLAMA.variants)
    for side in told:
        (ours,), (theirs,) = side["measured"], side["predicted_simulated"]
        assert theirs["output_tokens_per_s"] == pytest.approx(ours["output_tokens_per_s"], rel=0.01)
        assert theirs["ttft_p50_s"] == pytest.approx(ours["ttft_p50_s"], rel=0.02)


def test_a_server_twice_as_slow_as_its_profile_is_told_as_such(tmp_path: Path) -> None:
    """A prediction of 2.00x the throughput of a full queue, in the table and in the answer."""
    slow = COST | {"weights": "20ms", "per_token": "4ms", "per_context_token": "2us", "overhead": "2ms"}
    bench = measured(tmp_path, LLAMA, slow)
    told = page(bench, sides(bench), pictures=[])
    rows = [line for line in told.splitlines() if line.startswith("| continuous |")]
    assert "| 2.00x |" in rows[0]
    assert "off by a factor of 2.00 in the middle" in told


def test_gains_are_of_the_runs_themselves(report: Path) -> None:
    """Makespan throughput of continuous over static, by hand from figures.json."""
    told = json.loads((report / "figures.json").read_text())["figures"]
    rate = {
        side["variant"]: side["measured"][0]["output_tokens_per_s"]
        for side in told
        if side["load"] == QUEUE.name
    }
    gain = f"{rate['continuous'] / rate['static']:.2f}x"
    said = f"llama.cpp, continuous over static: {gain} ({gain}) with a full queue, exponential answers;"
    assert said in (report / "report.md").read_text()


def test_the_folder_holds_the_page_its_figures_and_the_pictures_it_shows(report: Path) -> None:
    """And no other; predictions are called SIMULATED wherever they stand."""
    told = (report / "report.md").read_text()
    shown = re.findall(r"^!\[.+\]\((.+\.svg)\)$", told, re.MULTILINE)
    assert sorted({"report.md", "figures.json", *shown}) == sorted(path.name for path in report.iterdir())
    assert "**MEASURED.**" in told.split("**Question.**")[0]
    for picture in shown:
        drawn = (report / picture).read_text()
        assert ("predicted (SIMULATED)" in drawn) == (not picture.startswith("ttft"))


def test_nothing_measured_is_nothing_to_report(tmp_path: Path) -> None:
    """Told in one line, and nothing is written."""
    with pytest.raises(SystemExit, match="nothing to report"):
        write(Bench(tmp_path, quick=True), tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_run_of_another_plan_is_taken_for_no_run_of_this(tmp_path: Path) -> None:
    """The whole measurement never goes on from a quick one."""
    quick = measured(tmp_path, LLAMA, COST)
    static = LLAMA.variants[0]
    assert quick.has(LLAMA, static, QUEUE, 1)
    assert not quick.has(LLAMA, static, QUEUE, 2)
    with pytest.raises(SystemExit, match="of another plan"):
        Bench(tmp_path, quick=False).has(LLAMA, static, QUEUE, 1)


def test_rounds_go_there_and_back_again() -> None:
    """Three seeds of two variants: the second of a round goes on into the next without a new start."""
    turns = [(variant.name, seeds) for variant, seeds in Bench(Path(), quick=False).order(LLAMA)]
    assert turns == [("static", (1,)), ("continuous", (1, 2)), ("static", (2, 3)), ("continuous", (3,))]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_each_load_of_each_variant_can_be_asked_and_foretold(engine: Engine) -> None:
    """Its cells are the server's, its knobs are an engine's, and every seed's plan is the same for all."""
    bench = Bench(Path(), quick=False)
    assert engine.variant(engine.profile).levels
    for variant in engine.variants:
        assert variant.s.keys() <= {cell.name for cell in engine.cells}
        for cell in bench.cells(engine, variant):
            bench.scenario(cell, 1, engine={**variant.knobs, "cost": COST})
