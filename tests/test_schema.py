"""The JSON Schema that editors are given."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from loadgen import presets, strict_yaml
from loadgen.cli.app import app
from loadgen.scenario import ScenarioError, parse
from loadgen.schema import schema

ROOT = Path(__file__).parents[1]
SCHEMA = schema()
CHECK = jsonschema.Draft202012Validator(SCHEMA)
README = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
SCENARIOS = {
    path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "workloads").glob("*.yaml"))
}
SCENARIOS |= {f"README {place}": text for place, text in enumerate(README) if "load:" in text}


def wrong(text: str) -> list[str]:
    """What the schema finds in a scenario, as key paths."""
    return [error.json_path for error in CHECK.iter_errors(strict_yaml.read(text).data)]


def test_it_is_a_schema_of_the_dialect_it_names() -> None:
    """Its own meta-schema finds nothing in it, and it is plain JSON."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA, allow_nan=False)) == SCHEMA


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_that_is_shipped_or_printed_is_valid(name: str) -> None:
    """What the loader takes, an editor does not underline."""
    assert wrong(SCENARIOS[name]) == []


def properties(node: Any) -> list[tuple[str, Any]]:
    if isinstance(node, list):
        return [found for one in node for found in properties(one)]
    if not isinstance(node, dict):
        return []
    own = list(node.get("properties", {}).items())
    return own + [found for inner in node.values() for found in properties(inner)]


def test_every_key_says_what_it_does() -> None:
    """An editor shows it; each is a sentence or the beginning of one."""
    said = properties(SCHEMA)
    assert len(said) > 200
    assert [key for key, value in said if len(value.get("description", "")) < 10] == []


LOAD = "load:\n  arrivals: {kind: poisson, rate: 8/s}\n  num_requests: 9\n"


@pytest.mark.parametrize(
    "more",
    [
        "  prompt_tokens: 512\n",
        "  output_tokens: {kind: truncated_exponential, mean: 100, cap: 512}\n",
        "  sessions: {turns: 3, think: 2s}\n",
        "  sessions: {turns: {kind: uniform, min: 1, max: 4}, think: {kind: exponential, mean: 2s}}\n",
        "  sessions: {turns: 3, think: 0}\n",
        "  warmup: 0\n",
        "  classes: {chat: {weight: 3, prompt_tokens: 20}, code: {weight: 1.5, patience: 10s}}\n",
        "engine: {preset: vllm-v1, cost: {overhead: 1ms}}\n",
        "engine: {preset: orca, cost: {per_token: 1ms}}\n",
        "variants: {a: {}, b: {engine: {preset: tgi}}}\n",
        "slos: [p99(ttft) <= 500ms]\n",
    ],
)
def test_what_may_be_written_short_is_valid(more: str) -> None:
    """Bare numbers, bare durations, zero, and an engine's cost that says only what is different."""
    assert wrong(LOAD + more) == []


@pytest.mark.parametrize(
    "text",
    [
        LOAD + "  promt_tokens: 5\n",
        LOAD + "seeed: 1\n",
        LOAD + "seed: one\n",
        LOAD + "  warmup: 5\n",
        LOAD + "  warmup: 5 days\n",
        LOAD + "  duration: 0\n",
        LOAD + "  prompt_tokens: 0\n",
        LOAD + "  prompt_tokens: 1.5\n",
        LOAD + "  prompt_tokens: long\n",
        LOAD + "  prompt_tokens: {tokens: 5}\n",
        LOAD + "  prompt_tokens: {kind: uniform, min: 5}\n",
        LOAD + "  prompt_tokens: {kind: unifrom, min: 5, max: 6}\n",
        LOAD + "  sessions: {turns: 3, think: {mean: 2s}}\n",
        LOAD + "engine: {preset: vlm}\n",
        LOAD + "variants: {a: {engine: {batching: sometimes}}}\n",
        "load:\n  arrivals: {rate: 8/s}\n  num_requests: 9\n",
        "load:\n  arrivals: {kind: poisson}\n  num_requests: 9\n",
        "load:\n  arrivals: {kind: poisson, rate: 8 per second}\n  num_requests: 9\n",
        "load:\n  arrivals: {kind: poisson, rate: -8}\n  num_requests: 9\n",
        "seed: 1\n",
    ],
)
def test_what_the_loader_refuses_is_underlined(text: str) -> None:
    """Typical mistakes: a misspelt key, a unit that lacks, a kind that is not said."""
    with pytest.raises(ScenarioError):
        parse(text, "f.yaml")
    assert wrong(text)


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["poisson", "constant", "gamma", "weibull", "ramp", "nonsense"])},
        optional={
            "rate": st.sampled_from(["8/s", "90/min", 8, "x", -1]),
            "shape": st.sampled_from([0.5, 2, 0, "1"]),
            "burstiness": st.sampled_from([1, 0.25, -1]),
            "cv": st.sampled_from([1, 2.5, None]),
            "from": st.sampled_from(["0/s", "5/s"]),
            "to": st.sampled_from(["5/s", "0/s"]),
            "over": st.sampled_from(["10s", "10"]),
        },
    )
)
def test_nothing_that_the_loader_takes_is_underlined(arrivals: dict[str, Any]) -> None:
    """The schema may be wider than the loader, never narrower."""
    text = json.dumps({"load": {"arrivals": arrivals, "num_requests": 3}})
    try:
        parse(text, "f.yaml")
    except ScenarioError:
        return
    assert wrong(text) == []


def test_presets_are_offered_by_name() -> None:
    """An editor completes the presets there are."""
    offered = SCHEMA["$defs"]["Engine"]["properties"]["preset"]["anyOf"][0]["enum"]
    assert offered == presets.names()


def test_the_command_prints_it_and_nothing_else() -> None:
    """So that it can be sent into a file."""
    done = CliRunner().invoke(app, ["schema"])
    assert json.loads(done.stdout) == SCHEMA
