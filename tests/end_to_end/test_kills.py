"""Processes killed outright, at any instant: what was measured is there, and what is missing is said."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadgen.run_folder import load
from tests.bench.kills import Kill, left_by, off
from tests.end_to_end.process import loadgen, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for the processes in /proc"),
]


@pytest.mark.parametrize(
    "kill",
    [
        Kill("client", 3.3),
        Kill("client", 0.7, 2),
        Kill("worker", 2.9, 2),
        Kill("scraper", 2.1),
        Kill("server", 3.7),
    ],
    ids=lambda kill: f"{kill.who} {kill.after_s}",
)
def test_whichever_process_is_killed_all_that_was_answered_is_recorded(tmp_path: Path, kill: Kill) -> None:
    """By the server's own log, or its count; and a report can be made that says what is missing."""
    assert [*off(kill, left_by(kill, tmp_path))] == []


def until(condition: Callable[[], Any], limit_s: float = 30.0) -> None:
    ends_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.005)


def holds(folder: Path, name: str, lines: int) -> bool:
    """Whether some run below that `name` matches has so many records."""
    return any(path.read_bytes().count(b"\n") >= lines for path in folder.glob(f"{name}/records.jsonl"))


GRID = """\
name: sweep
load: {arrivals: {kind: poisson, rate: 40/s}, num_requests: 6000, prompt_tokens: 64, output_tokens: 64}
vary: {load.arrivals.rate: [40/s, 30/s, 20/s]}
"""


def cells(folder: Path) -> list[dict[str, Any]]:
    """What each cell of a grid measured, whenever that was."""
    found = []
    for path in sorted(folder.glob("[0-9]*/summary.json")):
        summary = json.loads(path.read_bytes())
        found.append(
            {key: value for key, value in summary.items() if key not in ("run_id", "command", "cost")}
        )
    return found


def test_a_grid_that_was_killed_goes_on_at_the_cell_that_was_not_complete(tmp_path: Path) -> None:
    """Its first cell is as it was, to the byte; all together they are those of a grid that nothing befell."""
    (tmp_path / "grid.yaml").write_text(GRID)
    command = ("run", "grid.yaml", "--virtual", "--salt", "same", "--quiet")
    with running(*command, "--out", "g", cwd=tmp_path) as grid:
        until(lambda: holds(tmp_path / "g", "002-*", 100))
        grid.kill()
    first = tmp_path / "g" / "001-rate=20_s"
    before = [(first / name).read_bytes() for name in ("run.json", "records.jsonl")]
    ended = loadgen(*command, "--out", "g", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert [(first / name).read_bytes() for name in ("run.json", "records.jsonl")] == before
    (aside,) = (tmp_path / "g").glob("unused-*-002-*")
    assert not load(aside).header.complete
    whole = loadgen(*command, "--out", "whole", cwd=tmp_path)
    assert whole.code == 0
    assert cells(tmp_path / "g") == cells(tmp_path / "whole")


SEARCH = """\
name: search
load: {arrivals: {kind: poisson, rate: 4/s}, num_requests: 3000, prompt_tokens: 128, output_tokens: 64}
slos: [p90(ttft) <= 500ms]
"""


def test_a_search_that_was_killed_in_a_probe_finds_what_an_undisturbed_one_does(tmp_path: Path) -> None:
    """Probes that were complete are kept, to the byte, the one that was cut short is made again."""
    (tmp_path / "it.yaml").write_text(SEARCH)
    command = ("capacity", "it.yaml", "--virtual", "--seeds", "1", "--resolution", "10%", "--quiet")
    with running(*command, "--out", "c", cwd=tmp_path) as search:
        until(lambda: holds(tmp_path / "c", "003-*", 50))
        search.kill()
    probes = sorted((tmp_path / "c").glob("00[12]-*"))
    before = [(probe / "records.jsonl").read_bytes() for probe in probes]
    again = loadgen(*command, "--out", "c", cwd=tmp_path)
    assert [(probe / "records.jsonl").read_bytes() for probe in probes] == before
    assert len([*(tmp_path / "c").glob("unused-*-003-*")]) == 1
    whole = loadgen(*command, "--out", "whole", cwd=tmp_path)
    assert again.code == whole.code
    assert again.out.splitlines()[:-1] == whole.out.splitlines()[:-1]  # the last names the folder
    found, undisturbed = (
        json.loads((tmp_path / name / "capacity.json").read_bytes()) for name in ("c", "whole")
    )
    for name in ("answer", "load", "low", "high", "limiting", "knee", "requests"):
        assert found[name] == undisturbed[name], name
    assert [probe["load"] for probe in found["probes"]] == [probe["load"] for probe in undisturbed["probes"]]
