"""Documents as the commands write them, held against their published schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from loadgen.calibrate import Calibration, Ceiling
from loadgen.cli.app import app
from loadgen.export.documents import NAMES, schema
from loadgen.health import Health
from loadgen.records import Outcome, Try
from loadgen.scenario import ScenarioError
from loadgen.schema import nodes
from tests.calibrations import accuracy, rung
from tests.cli.commands import commands
from tests.export.folders import kept
from tests.records import failed, ok

ENGINE = "engine: {max_sequences: 2, max_queue: 3, cost: {kind: fixed, step: 10ms}}\n"
MIXED = (
    ENGINE
    + """
load:
  arrivals: {kind: poisson, rate: 20/s}
  num_requests: 120
  warmup: 500ms
  classes:
    chat: {weight: 3, prompt_tokens: 20, output_tokens: 8, goodput: {ttft: 100ms}, slos: [p90(ttft) <= 1s]}
    tool: {weight: 1, prompt_tokens: 5, output_tokens: 2, retry: {max: 2, backoff: 50ms}}
slos: [p99(ttft) <= 300ms, max(ttft) <= 1ms, rejection_rate <= 1%, mean(e2e) <= 1s]
"""
)
TALKS = (
    ENGINE
    + """
load:
  arrivals: {kind: constant, rate: 2/s}
  sessions: {turns: 3, think: 100ms}
  num_sessions: 20
  prompt_tokens: 8
  output_tokens: 4
  warmup: auto
goodput: {ttft: 1s, tpot: 20ms}
fluidity: {ttft: 1s, itl: 50ms}
"""
)
QUEUE = """
engine: {max_sequences: 1, cost: {kind: fixed, step: 1ms}}
load: {arrivals: {kind: poisson, rate: 5/s}, num_requests: 60, prompt_tokens: 1, output_tokens: 100}
"""
VARIANTS = "variants: {a: {}, b: {engine: {max_sequences: 4}}}\n"


def strict(name: str) -> jsonschema.Draft202012Validator:
    """The schema, made such that a key which it does not know is wrong."""
    made = schema(name)
    for node in nodes(made):
        if "properties" in node:
            node["additionalProperties"] = False
    return jsonschema.Draft202012Validator(made)


def plain(text: str | bytes) -> Any:
    """Strict JSON: no NaN and no infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} in JSON")

    return json.loads(text, parse_constant=refuse)


class Made:
    """What the commands left in a folder, in one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def scenario(self, name: str, text: str) -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text(text)
        return path

    def by(self, *words: str | Path) -> Any:
        """What a command printed as JSON."""
        done = CliRunner().invoke(app, [*map(str, words)])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return plain(done.stdout)

    def file(self, *parts: str) -> Any:
        return plain(self.folder.joinpath(*parts).read_bytes())

    def lines(self, *parts: str) -> list[Any]:
        return [plain(line) for line in self.folder.joinpath(*parts).read_bytes().splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Virtual runs: classes, refusals and SLOs; sessions and an automatic warm-up; a plain queue."""
    at = Made(tmp_path_factory.mktemp("documents"))
    for name, text in {"mixed": MIXED, "talks": TALKS, "queue": QUEUE}.items():
        at.by("run", at.scenario(name, text), "--virtual", "--out", at.folder / name, "--quiet", "--json")
    return at


RUNS = ("mixed", "talks", "queue")


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_schema_of_its_dialect(name: str) -> None:
    """Its own meta-schema finds nothing in it; it says what it is of; no pattern is Python's."""
    found = schema(name)
    jsonschema.Draft202012Validator.check_schema(found)
    assert plain(json.dumps(found)) == found
    assert name in found["title"]
    assert len(found["description"]) > 10
    assert "$id" not in found
    assert name == "scenario" or '"pattern"' not in json.dumps(found)


@pytest.mark.parametrize("run", RUNS)
def test_a_run_folder(made: Made, run: str) -> None:
    """Header, records and summary; a line of the records has all keys, and no other."""
    strict("run").validate(made.file(run, "run.json"))
    strict("summary").validate(made.file(run, "summary.json"))
    check, records = strict("record"), made.lines(run, "records.jsonl")
    for record in records:
        check.validate(record)
        assert {*record} == {*schema("record")["$defs"]["RequestRecord"]["properties"]}
    plain((made.folder / run / "vllm.json").read_bytes())


def test_the_runs_are_rich_enough_to_tell(made: Made) -> None:
    """Between them they have what only some runs have."""
    mixed, talks = made.file("mixed", "summary.json"), made.file("talks", "summary.json")
    assert mixed["outcomes"]["rejected"] > 0
    assert {slo["verdict"] for slo in mixed["slos"]} == {"FAIL", "UNRESOLVED"}
    assert {*mixed["by_class"]} == {"chat", "tool"}
    assert talks["by_turn"]
    assert talks["warmup"]["rule"]
    assert talks["fluid_share"] is not None


def test_a_run_that_cannot_be_trusted(made: Made, tmp_path: Path) -> None:
    """All failed, some before they were sent, the client out of descriptors: INVALID, with its findings."""
    rows = [failed(i, i * 0.1, Outcome.CONNECT_ERROR, error="no way") for i in range(5)]
    rows += [failed(5, 0.5, Outcome.UNSENT, started_s=None, sent_s=None, ended_s=None)]
    rows += [
        ok(6, 0.6, retried=[Try(outcome=Outcome.REJECTED, status=429, started_s=0.5)], event_tokens=[1] * 4)
    ]
    folder = kept(tmp_path / "r", rows, health=Health(descriptors_exhausted=True))
    found = made.by("report", folder, "--slo", "p99(ttft) <= 1s", "--json")
    assert found["verdict"] == "INVALID"
    assert found["findings"]
    strict("summary").validate(found)
    strict("run").validate(plain((folder / "run.json").read_bytes()))
    for line in (folder / "records.jsonl").read_bytes().splitlines():
        strict("record").validate(plain(line))


def test_a_run_that_was_interrupted_or_ended_early(tmp_path: Path) -> None:
    """Headers that only some runs have."""
    early = {"until_s": 1.0, "verdict": "FAIL", "why": "it was clear"}
    for number, more in enumerate(({"interrupted": True, "complete": False}, {"ended_early": early})):
        folder = kept(tmp_path / str(number), [ok()], notes=["a note"], **more)
        strict("run").validate(plain((folder / "run.json").read_bytes()))


def test_iterations(made: Made) -> None:
    """What the bundled engine did, step by step."""
    folder = made.folder / "traced"
    made.by("run", made.folder / "mixed.yaml", "--virtual", "--trace", "--out", folder, "--quiet", "--json")
    check, lines = strict("iteration"), made.lines("traced", "iterations.jsonl")
    assert len(lines) > 50
    for line in lines:
        check.validate(line)


def test_a_comparison(made: Made) -> None:
    """The file, and what is printed."""
    folder = made.folder / "compared"
    path = made.scenario("variants", QUEUE + VARIANTS)
    printed = made.by("compare", path, "--virtual", "--out", folder, "--quiet", "--json")
    strict("comparison").validate(printed)
    assert made.file("compared", "comparison.json") == printed
    strict("comparison").validate(made.by("report", folder / "a", folder / "b", "--json"))


SEARCH = ("--virtual", "--slo", "p90(e2e) <= 400ms", "--seeds", "1", "--resolution", "50%", "--json")


def test_a_capacity_and_the_replicas_for_a_day(made: Made) -> None:
    """A search for one load, and how many replicas a day takes."""
    day = made.scenario("day", "load: {arrivals: {kind: poisson, rate: 70/s}, duration: 2h}\n")
    folder, queue = made.folder / "capacity", made.folder / "queue.yaml"
    made.by("capacity", queue, *SEARCH, "--out", folder, "--for", day)
    strict("capacity").validate(made.file("capacity", "capacity.json"))
    strict("replicas").validate(made.file("capacity", "replicas.json"))


def test_the_capacity_of_several_settings(made: Made) -> None:
    """One search for each."""
    folder, queue = made.folder / "swept", made.folder / "queue.yaml"
    printed = made.by("capacity", queue, *SEARCH, "--out", folder, "--param", "engine.max_sequences=1,2")
    strict("sweep").validate(printed)
    assert made.file("swept", "sweep.json") == printed


def test_a_gate(made: Made, tmp_path: Path) -> None:
    """A run against itself, and the file that is kept of it."""
    run = made.folder / "queue"
    again = made.folder / "queue-again"
    made.by("run", made.folder / "queue.yaml", "--virtual", "--out", again, "--quiet", "--json")
    printed = made.by("gate", again, "--baseline", run, "--noise", "1%", "--out", tmp_path, "--json")
    assert printed["changes"]
    strict("gate").validate(printed)
    assert plain((tmp_path / "gate.json").read_bytes()) == printed


def test_the_facts_of_a_plan(made: Made) -> None:
    """With what its SLOs need, which is beside the facts."""
    for name in RUNS:
        found = made.by("plan", made.folder / f"{name}.yaml", "--json")
        assert "slos" in found
        strict("plan").validate(found)


def test_a_calibration(tmp_path: Path) -> None:
    """As it is saved; with a ceiling and without."""
    ceiling = Ceiling(
        per_s=9.0, failed_at_per_s=None, at_ceiling=accuracy(), half_per_s=5.0, at_half=accuracy()
    )
    taken = Calibration(
        taken_at="2026-01-01T00:00:00Z", quick=True, host="h", cpus=2, python="3.12", loadgen="0.1",
        clock="user", load_average=None, rungs=[rung(9.0), rung(99.0, limit="client")], events=ceiling,
        requests=None,
    )  # fmt: skip
    taken.save(tmp_path / "c.json")
    strict("calibration").validate(plain((tmp_path / "c.json").read_bytes()))


def test_an_exported_line(made: Made) -> None:
    """With the metrics beside the record; each key is there, and required."""
    check = strict("request")
    for run in RUNS:
        made_of = CliRunner().invoke(app, ["export", str(made.folder / run), "-", "--format", "jsonl"])
        lines = [plain(line) for line in made_of.stdout.splitlines()]
        assert len(lines) == len(made.lines(run, "records.jsonl"))
        for line in lines:
            check.validate(line)
    line.pop("ttft_s")
    assert not check.is_valid(line)


@pytest.mark.parametrize("broken", [{"name": 1}, {"offered": "many"}, {"validity": "FINE"}, {"new": 1}])
def test_a_wrong_summary_is_found(made: Made, broken: dict[str, Any]) -> None:
    """So that the tests above can fail."""
    right = made.file("queue", "summary.json")
    assert strict("summary").is_valid(right)
    assert not strict("summary").is_valid(right | broken)


def test_all_names_are_in_the_help_and_an_unknown_one_is_refused() -> None:
    """With the names that there are; without one, it is the scenario's."""
    [argument] = [p for p in commands()["schema"].params if p.name == "document"]
    assert all(name in argument.help for name in NAMES)
    for name in NAMES:
        assert plain(CliRunner().invoke(app, ["schema", name]).stdout) == schema(name)
    assert plain(CliRunner().invoke(app, ["schema"]).stdout) == schema("scenario")
    with pytest.raises(ScenarioError, match=r"schema: 'runs' is no document; there are scenario, plan, "):
        schema("runs")
