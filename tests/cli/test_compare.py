"""Which server or engine each variant of a comparison is answered by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadgen import drive
from loadgen.cli.app import app
from loadgen.cli.compare import singles_of
from loadgen.scenario import ScenarioError, build

LOAD = {"arrivals": {"kind": "burst"}, "num_requests": 1}
MINE, THEIRS = {"base_url": "http://127.0.0.1:1"}, {"base_url": "http://127.0.0.1:2"}

TWO = """
load: {arrivals: {kind: burst}, num_requests: 4, output_tokens: 4}
engine: {cost: {kind: fixed, step: 10ms}}
variants: {a: {}, b: {engine: {max_sequences: 2}}}
"""


def test_a_variant_that_names_nothing_is_the_scenario_as_it_stands() -> None:
    """Its target too: mine against theirs, and against the bundled engine."""
    variants = {"mine": {}, "theirs": {"target": THEIRS}, "bundled": {"engine": {"max_sequences": 2}}}
    singles = singles_of(build({"target": MINE, "load": LOAD, "variants": variants}), "s.yaml", virtual=False)
    urls = {name: single.target and single.target.base_url for name, single in singles.items()}
    assert urls == {"mine": "http://127.0.0.1:1", "theirs": "http://127.0.0.1:2", "bundled": None}
    assert singles["bundled"].engine.max_sequences == 2


def test_a_server_cannot_be_simulated() -> None:
    """Wherever a variant has its target from."""
    asked = build({"target": MINE, "load": LOAD, "variants": {"mine": {}, "bundled": {"engine": {}}}})
    with pytest.raises(ScenarioError, match=r"s\.yaml: variants\.mine: target: only the bundled engine"):
        singles_of(asked, "s.yaml", virtual=True)


def test_an_interrupted_comparison_says_what_is_there_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures of the variant that was cut off are none to read."""
    (tmp_path / "two.yaml").write_text(TWO)
    out = tmp_path / "my out"
    simulate = drive.simulate
    monkeypatch.setattr(
        "loadgen.cli.firing.simulate",
        lambda order, _asked, **more: simulate(order, lambda: order.folder.name == "b", **more),
    )
    command = ["compare", str(tmp_path / "two.yaml"), "--virtual", "--out", str(out)]
    ended = CliRunner().invoke(app, command)
    assert (ended.exit_code, ended.stdout) == (130, "")
    said = " ".join(ended.stderr.split())
    assert said.endswith(
        f"interrupted: 1 of 2 runs are whole, and kept; the same command with --out '{out}' goes on from here"
    )


def test_a_comparison_that_was_cut_short_goes_on_at_the_variant_that_lacks(tmp_path: Path) -> None:
    """The first variant's run stays as it was; the second's half is kept aside, and its run made again. A
    finished one is refused: what was measured then would pass for what is measured now.
    """
    (tmp_path / "two.yaml").write_text(TWO)
    command = ["compare", str(tmp_path / "two.yaml"), "--virtual", "--out", str(tmp_path / "out")]
    whole = CliRunner().invoke(app, command)
    out = tmp_path / "out"
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, ScenarioError)
    assert "holds a finished comparison: choose another" in str(refused.exception)
    first, cut = (out / "a" / "run.json").read_bytes(), json.loads((out / "b" / "run.json").read_bytes())
    (out / "b" / "run.json").write_text(json.dumps(cut | {"complete": False}))
    for name in ("comparison.json", "report.md"):
        (out / name).unlink()
    again = CliRunner().invoke(app, command)
    assert (whole.exit_code, again.exit_code) == (0, 0), again.output
    assert (out / "a" / "run.json").read_bytes() == first
    aside = next(out.glob("unused-*-b"))
    assert not json.loads((aside / "run.json").read_bytes())["complete"]
    assert json.loads((out / "b" / "run.json").read_bytes())["complete"]
    assert {*json.loads((out / "comparison.json").read_bytes())["variants"]} == {"a", "b"}
