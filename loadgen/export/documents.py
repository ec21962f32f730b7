"""The JSON Schemas of the documents that loadgen writes, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from loadgen.calibrate import Calibration
from loadgen.capacity import Capacity
from loadgen.compare import Comparison
from loadgen.engine.trace import Iteration
from loadgen.export.requests import METRICS
from loadgen.gate import Gate
from loadgen.records import RequestRecord
from loadgen.replicas import Replicas
from loadgen.run import RunHeader
from loadgen.scenario import ScenarioError
from loadgen.schema import DIALECT, Node, nodes
from loadgen.schema import schema as of_scenario
from loadgen.stats.summary import Summary
from loadgen.sweep import Sweep
from loadgen.workload import PlanFacts

# A name: what holds such a document, and the type of it.
_KINDS: dict[str, tuple[str, Any]] = {
    "run": ("run.json of a run folder", RunHeader),
    "record": ("a line of records.jsonl of a run folder", RequestRecord),
    "summary": ("summary.json of a run folder, and run --json", Summary),
    "iteration": ("a line of iterations.jsonl, which run --trace leaves", Iteration),
    "comparison": ("comparison.json, and compare --json", Comparison),
    "capacity": ("capacity.json, and capacity --json", Capacity),
    "sweep": ("sweep.json, the capacity of several settings", Sweep),
    "replicas": ("replicas.json, the replicas for a day", Replicas),
    "gate": ("gate.json, and gate --json", Gate),
    "calibration": ("what calibrate keeps, and calibrate --json", Calibration),
}


def schema(name: str) -> Node:
    """The schema of a document, draft 2020-12. A later version may add keys, and renames none.

    Raises ScenarioError for a name that is none of `NAMES`.
    """
    if name in _KINDS:
        return _titled(name, *_KINDS[name])
    if name in _OTHERS:
        return _OTHERS[name]()
    raise ScenarioError(f"schema: {name!r:.40} is no document; there are {', '.join(NAMES)}")


def _titled(name: str, what: str, kind: Any) -> Node:
    made = msgspec.json.schema(kind)
    for node in nodes(made):
        node.pop("pattern", None)  # Python's: elsewhere \A is the letter A, and \w knows no umlaut
    return {"$schema": DIALECT, "title": f"loadgen {name}", "description": what, **made}


def _plan() -> Node:
    made = _titled("plan", "what plan --json prints", PlanFacts)
    made["$defs"]["PlanFacts"]["properties"]["slos"] = {
        "description": "whether the plan can decide each SLO, in words",
        "type": "array",
        "items": {"type": "string"},
    }
    return made


def _request() -> Node:
    made = _titled("request", "a line of what export writes as .jsonl", RequestRecord)
    row = made["$defs"]["RequestRecord"]
    metrics = {
        name: {"description": "seconds; null where it is not defined", "type": ["number", "null"]}
        for name in METRICS
    }
    whose: Node = {key: {"type": "string"} for key in ("run_id", "source")}
    row["properties"] = whose | row["properties"] | metrics
    row["required"] = [*whose, *row["required"], *metrics]
    return made


_OTHERS: dict[str, Callable[[], Node]] = {"scenario": of_scenario, "plan": _plan, "request": _request}
NAMES = ("scenario", "plan", *_KINDS, "request")
