"""`loadgen engines ladder`: from the command line, at the bundled engine over HTTP."""

from __future__ import annotations

import subprocess
import sys
from math import hypot
from pathlib import Path

import pytest

from loadgen.engine.fit import read
from loadgen.knobs import FittedCost
from loadgen.scenario import Scenario, ScenarioError, parse
from tests.cli.test_engines import Door

COST = '{"kind": "fitted", "weights": "20ms", "per_token": "400us", "per_context_token": "2us"}'
KNOBS = f'{{"max_sequences": 8, "token_budget": 4096, "prefill_chunk": null, "cost": {COST}}}'


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Door:
    return Door(monkeypatch, capsys)


@pytest.mark.parametrize("levels", ["0,1", "1,2x", "1;2"])
def test_levels_that_are_no_counts_are_a_mistake_of_usage(engines: Door, levels: str) -> None:
    """Told by the flag, before anything is sent."""
    code, out, err = engines("ladder", "--base-url", "http://127.0.0.1:9", "--levels", levels)
    assert (code, out) == (2, "")
    assert err.startswith("loadgen: --levels: must be whole numbers above 0")


def test_a_file_that_cannot_be_written_is_found_before_anything_is_sent(
    engines: Door, tmp_path: Path
) -> None:
    """Not after minutes of load."""
    code, _, err = engines(
        "ladder", "--base-url", "http://127.0.0.1:9", "--out", str(tmp_path / "no/steps.csv")
    )
    assert code == 2
    assert "no/steps.csv" in err


@pytest.mark.slow
def test_a_ladder_over_http_gives_the_served_engines_cost_back(
    engines: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printed YAML tells each step of the served cost to 15 %, with what sockets and two cores add."""
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "loadgen", "serve", "--port", "0", "--attached", "--engine", KNOBS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        code, out, err = engines(
            *("ladder", "--base-url", url, "--levels", "1,4,8", "--prompts", "64,512", "--output-len", "48"),
            *("--out", "steps.csv", "--quiet"),
        )
        server.stdin.close()
        server.wait(10)
    assert (code, err) == (0, "")
    cost = parse(f"{out}load: {{arrivals: {{kind: burst}}, num_requests: 1}}", "own").engine.cost
    assert isinstance(cost, FittedCost)
    rows = read(tmp_path / "steps.csv")
    assert {row.tokens for row in rows if row.contexts} == {1, 4, 8}
    for tokens, contexts, _ in rows:
        told = hypot(cost.weights_s, cost.per_token_s * tokens) + cost.per_context_token_s * contexts
        served = hypot(0.020, 400e-6 * tokens) + 2e-6 * contexts
        assert told + cost.overhead_s == pytest.approx(served, rel=0.15)


def test_the_server_is_named_as_for_any_run(engines: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same flags and variables; the lengths of rungs are none of the target's."""
    monkeypatch.setenv("OPENAI_BASE_URL", "https://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    asked: list[Scenario] = []

    def climbed(scenario: Scenario, *_: object, **__: object) -> None:
        asked.append(scenario)
        raise ScenarioError("enough")

    monkeypatch.setattr("loadgen.ladder.climb", climbed)
    engines("ladder", "--header", "X-A=b", "--insecure", "--input-len", "32", "--quiet")
    [target] = [scenario.target for scenario in asked]
    assert target is not None
    assert target.urls == ("https://127.0.0.1:9",)
    assert (target.api_key_env, target.headers, target.insecure) == ("OPENAI_API_KEY", {"X-A": "b"}, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no server is named: give --base-url"),
        (["--base-url", "http://a:1", "--base-url", "http://b:1"], "the steps of one server are measured"),
    ],
)
def test_one_server_is_climbed(engines: Door, words: list[str], said: str) -> None:
    """Neither none nor two."""
    code, _, err = engines("ladder", *words)
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1
