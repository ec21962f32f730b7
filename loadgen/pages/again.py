"""How to make the same again: the command, the seed, the plan, the versions, the machine."""

from __future__ import annotations

import shlex

import yaml

from loadgen.pages.page import Part
from loadgen.report.figures import UNDEFINED
from loadgen.report.tables import Column, Table
from loadgen.run import Run

TITLE = "Run it again"


def again(run: Run) -> Part:
    """What a run was made by, and on."""
    header = run.header
    known = {
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
    return Part(TITLE, tables=[_facts(known)], folded={"Command": shlex.join(header.command)})


def by_command(command: str, digest: str | None = None) -> Part:
    """What is made again by one command."""
    tables = [_facts({"plan digest": digest})] if digest else []
    return Part(TITLE, tables=tables, folded={"Command": command})


def scenario(run: Run) -> dict[str, str]:
    """The scenario that was asked, as YAML to unfold."""
    return {"Scenario": yaml.safe_dump(run.header.scenario, sort_keys=False, allow_unicode=True)}


def _facts(known: dict[str, str]) -> Table:
    columns = [Column("what", "label"), Column("value", "words")]
    return Table("Where it came from", columns, [[*pair] for pair in known.items()])
