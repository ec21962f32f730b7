"""`loadgen merge`: the shards of several hosts, as the command line has them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from loadgen.cli.app import app
from loadgen.cli.exits import Exit
from loadgen.health import Health
from loadgen.run_folder import RunWriter
from loadgen.scenario import ScenarioError
from tests.records import header, ok

SLO = "p50(ttft) <= 200ms"


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two, of 400 rows."""
    monkeypatch.chdir(tmp_path)
    whole = header(plan_rows=400, rows_not_sent=0, start_at="2026-12-01T10:00:00Z")
    whole.scenario = whole.scenario | {"slos": [SLO]}
    for k in (1, 2):
        named = {"run_id": f"r-{k}of2", "shard": f"{k}/2", "rows_due": 200, "host": {"boot_id": "b"}}
        with RunWriter(tmp_path / str(k)) as writer:
            writer.write_header(msgspec.structs.replace(whole, health=Health(start_by="wall"), **named))
            for i in range(k - 1, 400, 2):
                writer.append(ok(i, i / 40))
    return ["1", "2"]


def merged(*words: str) -> Result:
    return CliRunner().invoke(app, ["merge", *words])


def test_it_says_what_the_whole_means_and_exits_by_it(shards: list[str]) -> None:
    """As loadgen report does of the new folder, which is a run's; its SLOs are judged."""
    done = merged(*shards)
    assert done.exit_code == Exit.OK, done.output
    assert "PASS  1 of 1 SLOs" in done.output
    assert "400 offered: 400 ok" in done.output
    folder = Path("runs/r")
    names = {"run.json", "records.jsonl", "summary.json", "vllm.json", "shards.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert CliRunner().invoke(app, ["report", "runs/r"]).output == done.output
    facts = json.loads((folder / "shards.json").read_bytes())
    assert [(one["shard"], one["run_id"], one["rows"]) for one in facts] == [
        ("1/2", "r-1of2", 200),
        ("2/2", "r-2of2", 200),
    ]


def test_json_is_alone_on_stdout_and_the_page_is_drawn(shards: list[str]) -> None:
    """As elsewhere."""
    done = merged(*reversed(shards), "--json", "--html", "page.html", "--out", "m")
    assert json.loads(done.stdout) == json.loads(Path("m/summary.json").read_bytes())
    assert "400" in Path("page.html").read_text()


def test_a_shard_alone_is_reported_as_one_and_judged_by_nothing(shards: list[str]) -> None:
    """Its SLOs are those of the whole."""
    done = CliRunner().invoke(app, ["report", shards[0], "--json"])
    summary = json.loads(done.stdout)
    assert (summary["slos"], summary["verdict"]) == ([], None)
    assert any(finding["name"] == "shard" for finding in summary["findings"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["1"], "shard 2 of 2 is missing: give all of them"),
        (["1", "2", "2"], "shard 2 of 2 is there twice"),
        (["1", "nowhere"], "nowhere is not a run folder: it does not exist"),
        (["1", "2", "--out", "1"], "1 is not empty"),
    ],
)
@pytest.mark.usefixtures("shards")
def test_what_cannot_be_merged_is_one_line(given: list[str], said: str) -> None:
    """And leaves nothing."""
    done = merged(*given)
    assert isinstance(done.exception, ScenarioError)
    assert said in str(done.exception)
    assert not Path("runs").exists()
