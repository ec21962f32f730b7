"""The bundled engine from flags: layers of knobs, each laid over those before it."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

from loadgen import strict_yaml
from loadgen.cli.environment import readable
from loadgen.knobs import Engine
from loadgen.presets import laid
from loadgen.scenario import ScenarioError, build, load
from loadgen.shipped import located

_WHERE = "command line"


def layered(*layers: dict[str, Any]) -> Engine:
    """The engine of these knobs, the first layer lowest. Raises ScenarioError."""
    least = {"arrivals": {"kind": "burst"}, "num_requests": 1}  # a server has no load, a scenario has one
    return build({"engine": reduce(laid, layers), "load": least}, _WHERE).engine


def written(scenario: str | None) -> dict[str, Any]:
    """The scenario's engine as it stands in the file, where its preset is still a name; {} without one."""
    if scenario is None:
        return {}
    path = located(scenario)
    load(path, readable())  # says what is wrong with it, and where
    engine: dict[str, Any] = strict_yaml.read(path.read_text(encoding="utf-8")).data.get("engine", {})
    return engine


def of_json(text: str) -> dict[str, Any]:
    """The knobs in a JSON object. Raises ScenarioError."""
    try:
        knobs = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ScenarioError(f"{_WHERE}: --engine is no JSON: {problem}") from None
    if not isinstance(knobs, dict):
        raise ScenarioError(f"{_WHERE}: --engine wants a JSON object")
    return knobs


def assignment(word: str) -> dict[str, Any]:
    """`kv.block_tokens=16` as {kv: {block_tokens: 16}}, the value as in YAML. Raises ScenarioError."""
    path, _, text = word.partition("=")
    if not path or not text or "\n" in word:
        raise ScenarioError(f"{_WHERE}: --set wants KEY=VALUE, as in kv.block_tokens=16, not {word!a}")
    try:
        value = strict_yaml.read(f"value: {text}").data["value"]
    except strict_yaml.YamlError as problem:
        raise ScenarioError(f"{_WHERE}: --set {path}: {problem.rule}") from None
    for key in reversed(path.split(".")):
        value = {key: value}
    return value  # type: ignore[no-any-return]  # a path has at least one key


def cost(step: str | None, gpu: str | None, model: str | None) -> dict[str, Any] | None:
    """What --step, --gpu and --model-profile say of the cost; None where they are not given."""
    named = {key: name for key, name in (("gpu", gpu), ("model", model)) if name is not None}
    if step is None:
        return {"kind": "roofline"} | named if named else None
    if named:
        raise ScenarioError(f"{_WHERE}: give --step, or the roofline's --gpu and --model-profile, not both")
    return {"kind": "fixed", "step": step}
