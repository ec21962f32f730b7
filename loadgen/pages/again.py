"""What was asked and how to make it again: scenario, engine, command, seed, plan, versions, machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import yaml

from loadgen.pages.page import Part
from loadgen.report import engine_view
from loadgen.report.figures import UNDEFINED
from loadgen.report.tables import Column, Table
from loadgen.run import Run
from loadgen.scenario import build

TITLE = "Run it again"


def again(runs: Mapping[str, Run]) -> Part:
    """What `runs`, by name, were made by, and on: what all have in common once, the rest for each."""
    each = {name: _known(run) for name, run in runs.items()}
    facts: dict[str, str] = {}
    for what in next(iter(each.values())):
        facts |= _once(what, {name: known[what] for name, known in each.items()})
    commands = {name: shlex.join(run.header.command) for name, run in runs.items()}
    return Part(TITLE, tables=[_facts(facts)], folded=_once("Command", commands))


def by_command(command: str, digest: str | None = None) -> Part:
    """What is made again by one command."""
    tables = [_facts({"plan digest": digest})] if digest else []
    return Part(TITLE, tables=tables, folded={"Command": command})


def search(first: Run) -> Part:
    """What a search was made by, and on, as `first` of its runs tells."""
    known = _known(first)
    kept = ("started", "seed", "target", "model", "versions", "host")
    command = shlex.join(first.header.command)
    return Part(TITLE, tables=[_facts({what: known[what] for what in kept})], folded={"Command": command})


def scenario(run: Run) -> dict[str, str]:
    """The scenario that was asked, as YAML to unfold."""
    return {"Scenario": yaml.safe_dump(run.header.scenario, sort_keys=False, allow_unicode=True)}


def engine(run: Run) -> list[str]:
    """What the bundled engine was that answered `run`, on a line; nothing of a server."""
    if run.header.scenario.get("target") is not None:
        return []
    asked = build(run.header.scenario, run.header.run_id, unknown="ignore")
    return [f"The bundled engine, {engine_view.line(asked.engine)}."]


def _known(run: Run) -> dict[str, str]:
    header = run.header
    return {
        "run": header.run_id,
        "started": header.started_at or UNDEFINED,
        "seed": str(run.asked("seed")),
        "plan digest": header.plan_digest,
        "prompt salt": header.salt or UNDEFINED,
        "target": header.target,
        "model": header.model or UNDEFINED,
        "versions": ", ".join(f"{name} {version}" for name, version in header.versions.items()),
        "host": ", ".join(f"{name} {fact}" for name, fact in header.host.items()),
    }


def _once(what: str, by_name: Mapping[str, str]) -> dict[str, str]:
    """One fact where all have the same, else one for each."""
    if len({*by_name.values()}) == 1:
        return {what: next(iter(by_name.values()))}
    return {f"{what} of {name}": fact for name, fact in by_name.items()}


def _facts(known: Mapping[str, str]) -> Table:
    columns = [Column("what", "label"), Column("value", "words")]
    return Table("Where it came from", columns, [[*pair] for pair in known.items()])
