"""`loadgen capacity` as a command: what it prints, what it keeps, how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadgen.capacity import Capacity
from loadgen.cli.app import app
from loadgen.cli.exits import Exit, of_capacity
from loadgen.probe import Probe
from loadgen.report.capacity_view import headline, picture, sentences
from loadgen.scenario import ScenarioError

SCENARIO = """
engine: {max_sequences: 1, cost: {kind: fixed, step: 1ms}}
load:
  arrivals: {kind: poisson, rate: 5/s}
  num_requests: 100
  prompt_tokens: 1
  output_tokens: 100
"""
QUICK = ["--seeds", "1", "--resolution", "30%", "--virtual"]


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "queue.yaml"
    path.write_text(SCENARIO)
    return str(path)


def test_the_answer_is_printed_and_kept(tmp_path: Path, scenario: str) -> None:
    """On stdout JSON alone, the same as in capacity.json, and a run folder for each run."""
    out = tmp_path / "out"
    asked = ["--slo", "p90(e2e) <= 400ms", "--out", str(out), "--json"]
    done = CliRunner().invoke(app, ["capacity", scenario, *QUICK, *asked])
    found = json.loads(done.stdout)
    assert done.exit_code == of_capacity(Capacity(**{k: found[k] for k in _SHORT}))
    assert found == json.loads((out / "capacity.json").read_bytes())
    folders = {folder for probe in found["probes"] for folder in probe["folders"]}
    assert {path.name for path in out.iterdir() if path.is_dir()} == folders
    assert "SIMULATED" in done.stderr


_SHORT = ("name", "over", "unit", "slos", "resolution", "answer", "interrupted")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "give some, with --slo"),
        (["--slo", "p90(e2e) <= 1s", "--over", "speed"], "choose rate or concurrency"),
        (["--slo", "p90(e2e) <= 1s", "--over", "concurrency"], "only a closed loop has a concurrency"),
        (
            ["--slo", "p90(e2e) <= 1s", "--url", "http://127.0.0.1:9"],
            "--virtual simulates the bundled engine",
        ),
    ],
)
def test_what_cannot_be_searched_is_a_usage_error(scenario: str, flags: list[str], said: str) -> None:
    """In one line; nothing is measured."""
    done = CliRunner().invoke(app, ["capacity", scenario, *QUICK, *flags])
    assert isinstance(done.exception, ScenarioError)
    assert said in str(done.exception)


def test_a_damaged_search_is_a_usage_error(tmp_path: Path, scenario: str) -> None:
    """With what to do about it."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "capacity.json").write_text('{"schema": 1, "na')
    asked = ["--slo", "p90(e2e) <= 1s", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["capacity", scenario, *QUICK, *asked])
    assert isinstance(done.exception, ScenarioError)
    assert str(done.exception).endswith("; choose another folder with --out, or remove it")


def of(answer: str, **changes: object) -> Capacity:
    about = {"name": "q", "over": "rate", "unit": "requests/s", "slos": ["p90(ttft) <= 1s"]}
    return Capacity(**about, resolution=0.02, answer=answer, **changes)  # type: ignore[arg-type]


def test_every_answer_has_its_code() -> None:
    """0 bounded, 1 the lowest load fails, 3 an edge undecided, 4 not to be trusted; an interrupt first."""
    codes = [of_capacity(of(answer)) for answer in ("BOUNDED", "FAIL", "UNRESOLVED", "INVALID")]
    assert codes == [Exit.OK, Exit.FAILED, Exit.UNRESOLVED, Exit.INVALID]
    assert of_capacity(of("BOUNDED", interrupted=True, ended=False)) == Exit.INTERRUPTED


@pytest.mark.parametrize("answer", ["BOUNDED", "UNRESOLVED"])
def test_a_search_that_was_cut_short_goes_on_and_is_4(answer: str) -> None:
    """Whatever is known by then."""
    cut = of(answer, ended=False)
    assert of_capacity(cut) == Exit.INVALID
    assert sentences(cut)[-1] == "The search was cut short: the same command goes on from here."


def test_figures_are_given_per_accelerator() -> None:
    """Of eight, an eighth."""
    assert "1.25 an accelerator" in headline(of("BOUNDED", load=10.0, low=9.0, high=11.0, accelerators=8))[1]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_picture_fits_and_places_every_load(columns: int) -> None:
    """Left to right by load, bottom to top by latency, each by the first letter of its verdict."""
    verdicts = ["PASS", "UNRESOLVED", "FAIL"]
    probes = [
        Probe(load=2.0**i, folders=["f"], verdict=v, ttft_p99_s=4.0**i)  # type: ignore[arg-type]
        for i, v in enumerate(verdicts)
    ]
    lines = picture(of("BOUNDED", limiting="p90(ttft) <= 1s", probes=probes), columns)
    assert max(map(len, lines)) <= columns
    rows = [line for line in lines if "|" in line]
    at = {mark: next((y, x) for y, line in enumerate(rows) if (x := line.find(mark)) > 0) for mark in "P?F"}
    assert at["P"][0] > at["?"][0] > at["F"][0]
    assert at["P"][1] < at["?"][1] < at["F"][1]
    assert at["?"][1] - at["P"][1] == pytest.approx(at["F"][1] - at["?"][1], abs=1)


@pytest.mark.parametrize(
    ("load", "low", "high", "said"),
    [
        (0.3973, 0.25, 0.6475, "capacity 0.4 requests/s"),
        (10.547, 9.77, 11.53, "capacity 10.5 requests/s"),
        (10.547, 10.45, 10.66, "capacity 10.55 requests/s"),
        (1234.5, 500.0, 2000.0, "capacity 1200 requests/s"),
        (12345.6, 12000.0, 12400.0, "capacity 12350 requests/s"),
        (10.547, 10.547, None, "capacity 10.55 requests/s"),
    ],
)
def test_a_capacity_has_the_digits_that_its_edges_let_it(
    load: float, low: float, high: float | None, said: str
) -> None:
    """Two, where they lie as far apart as it is high; a digit more for each tenth of that."""
    assert headline(of("BOUNDED", load=load, low=low, high=high))[1].startswith(f"{said}, in [")
