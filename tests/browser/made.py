"""The pages that are looked at, made as a user would."""

from __future__ import annotations

import shlex
from pathlib import Path

from typer.testing import CliRunner

from loadgen.cli.app import app
from loadgen.records import Outcome
from loadgen.run_folder import RunWriter
from tests.records import failed, header, ok

SCRIPT = "<script>window.hacked = 1</script>"
HOSTILE = (
    f'</script>{SCRIPT}<img src=x onerror="window.hacked = 2">\x1b[31m\x1b]0;owned\x07\u202egnp.exe\u2066'
)
COMMANDS = {
    "run": "run overload --virtual --trace --num-prompts 400 --slo 'p90(ttft) <= 300ms' --out {folder}",
    "comparison": "compare static-vs-continuous --virtual --num-prompts 80 --out {folder}",
    "capacity": "capacity capacity-chat --virtual --seeds 1 --most-runs 10 --num-prompts 600 "
    "--slo 'p90(ttft) <= 500ms' --policy point --out {folder}",
    "many": "run poisson-chat --virtual --num-prompts 20000 --out {folder}",
}
PAGES = (*COMMANDS, "plan", "study", "hostile", "empty")


def make(name: str, scratch: Path, page: Path) -> None:
    """The page of that name."""
    folder = scratch / name
    if name in COMMANDS:
        _loadgen(f"{COMMANDS[name].format(folder=folder)} --quiet --html {page}")
    elif name == "plan":
        _loadgen(f"plan mixed-classes --html {page}")
    elif name == "study":
        _loadgen(f"reproduce static-vs-continuous --out {folder} --html {page}")
    else:
        {"hostile": write_hostile, "empty": _write_empty}[name](folder)
        _loadgen(f"report {folder} --html {page}")


def write_hostile(folder: Path) -> None:
    """A run against a server that answers with scripts, escapes, bidi marks, and 2 MB of them."""
    rows = [ok(i, i / 4, ttft_s=0.1 + i / 100) for i in range(30)]
    rows += [
        failed(30 + i, 8 + i / 4, Outcome.HTTP_ERROR, status=500, error=HOSTILE * times)
        for i, times in enumerate((1, 2, 2_000_000 // len(HOSTILE)))
    ]
    rows.append(ok(40, 9.0, request_id=HOSTILE, model=HOSTILE, class_=HOSTILE, finish_reason=HOSTILE))
    with RunWriter(folder) as writer:
        for row in rows:
            writer.append(row)
        writer.write_header(
            header(
                plan_rows=len(rows),
                rows_due=len(rows),
                name="hostile",
                model=HOSTILE,
                target=HOSTILE,
                notes=[HOSTILE],
            )
        )


def _write_empty(folder: Path) -> None:
    with RunWriter(folder) as writer:
        writer.write_header(header())


def _loadgen(command: str) -> None:
    done = CliRunner().invoke(app, shlex.split(command))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
