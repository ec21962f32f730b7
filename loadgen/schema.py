"""The JSON Schema of a scenario's YAML, for editors: the models', and what they check by code.

It is a little wider than the loader, which alone knows the rules between keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loadgen import presets
from loadgen.fields import MAX_COUNT
from loadgen.scenario import Scenario

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Node = dict[str, Any]

_BARE_TOKENS: Node = {"type": "integer", "minimum": 1, "maximum": MAX_COUNT, "description": "always as many"}
_COSTS = ("FixedCost", "FittedCost", "RooflineCost")


def schema() -> Node:
    """The schema, draft 2020-12. Every key has a description."""
    made = Scenario.model_json_schema(by_alias=True)
    kinds: Node = made["$defs"]
    bare_time = kinds["FixedSpan"]["properties"]["time"]
    for node in list(nodes(made)):
        node.pop("title", None)
        union = node.pop("discriminator", None)
        if union is None:
            continue
        for reference in union["mapping"].values():
            _require(kinds[reference.rpartition("/")[2]], union["propertyName"])
        if "vllm_range" in union["mapping"]:
            node["anyOf"] = [_BARE_TOKENS, {"oneOf": node.pop("oneOf")}]
        elif node["oneOf"][0]["$ref"].endswith("Span"):
            node["anyOf"] = [bare_time, {"oneOf": node.pop("oneOf")}]
    _take_presets(kinds)
    for node in nodes(made):
        for value in node.get("properties", {}).values():
            _describe(value, node, kinds)
    name = {"title": "loadgen scenario", "description": made.pop("description")}
    return {"$schema": DIALECT, **name, **made}


def nodes(value: Any) -> Iterator[Node]:
    """Every schema in `value`, the outer before the inner; the names of keys are none."""
    if isinstance(value, list):
        for one in value:
            yield from nodes(one)
    elif isinstance(value, dict):
        yield value
        for key, inner in value.items():
            if key in ("properties", "$defs"):
                for one in inner.values():
                    yield from nodes(one)
            elif key not in ("default", "examples", "enum", "const", "required"):
                yield from nodes(inner)


def _require(kind: Node, key: str) -> None:
    kind["required"] = list(dict.fromkeys([key, *kind.get("required", ())]))


def _take_presets(kinds: Node) -> None:
    """An engine's cost may say only what differs from its preset's, or from a roofline."""
    kinds["Engine"]["properties"]["preset"]["anyOf"][0]["enum"] = presets.names()
    cost = kinds["Engine"]["properties"]["cost"]
    cost["anyOf"] = cost.pop("oneOf")
    for name in _COSTS:
        del kinds[name]["required"]


def _describe(value: Node, owner: Node, kinds: Node) -> None:
    """A key without words of its own takes those of what it holds; `kind`, of what it chooses."""
    if value.get("default", 0) is None or isinstance(value.get("default"), dict):
        del value["default"]  # an editor would write it out
    if "description" in value:
        return
    if "const" in value:
        value["description"] = owner["description"].partition("\n")[0]
        return
    held = next(node["$ref"] for node in [value, *value.get("anyOf", ())] if "$ref" in node)
    value["description"] = kinds[held.rpartition("/")[2]]["description"].partition("\n")[0]
