"""What --help says is there, whole and true."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from loadgen.cli import flags
from loadgen.cli.app import app
from loadgen.load import Load
from loadgen.manners import Goodput
from loadgen.scenario import Scenario, build
from loadgen.target import Target
from loadgen.units import show_duration
from tests.cli.commands import commands, flags_of

PLAN_SHAPING = {
    *(
        "--request-rate",
        "--arrival",
        "--burstiness",
        "--num-prompts",
        "--duration",
        "--warmup",
        "--input-len",
    ),
    *("--output-len", "--seed", "--cv", "--random-range-ratio", "--dataset-name", "--dataset-path"),
    *("--ramp-up-strategy", "--ramp-up-start-rps", "--ramp-up-end-rps"),
}


def invoked(*words: str) -> Any:
    """What `loadgen WORDS` did, at 80 columns."""
    return CliRunner().invoke(app, words, terminal_width=80)


def test_no_command_summary_is_cut() -> None:
    """At 80 columns the list of commands holds whole sentences."""
    assert "..." not in invoked("--help").output.split("Commands:")[1]


@pytest.mark.parametrize("command", sorted(commands()))
def test_every_flag_says_what_it_does(command: str) -> None:
    """No option is without a help text."""
    silent = [option.name for option in commands()[command].params if not option.help]
    assert not silent


def defaults() -> dict[str, Any]:
    asked = build({"load": {"arrivals": {"kind": "burst"}, "num_requests": 1}})
    waits = asked.timeouts
    return {
        "--input-len": asked.load.prompt_tokens.tokens,  # type: ignore[union-attr]
        "--output-len": asked.load.output_tokens.tokens,  # type: ignore[union-attr]
        "--seed": asked.seed,
        "--ignore-eos": "on" if asked.load.ignore_eos else "off",
        "--drain": show_duration(asked.drain_s),
        "--timeout-connect": show_duration(waits.connect_s),
        "--timeout-first-token": show_duration(waits.first_token_s),
        "--timeout-idle": show_duration(waits.idle_s),
        "--timeout-total": show_duration(waits.total_s),
    }


@pytest.mark.parametrize(("flag", "default"), defaults().items())
def test_the_defaults_in_the_help_are_the_scenarios(flag: str, default: object) -> None:
    """The help of a flag that may be left out says what holds then."""
    [option] = [o for o in commands()["run"].params if flag in o.opts]
    assert f"Default {default}" in option.help


def test_plan_takes_every_flag_that_shapes_a_plan() -> None:
    """The flags of `run` that change what `plan` shows have the same spellings there."""
    assert flags_of("plan") >= PLAN_SHAPING
    assert flags_of("plan") - {"--svg", "--html", "--export", "--diff"} <= flags_of("run")


def test_a_target_is_named_alike_everywhere() -> None:
    """Whatever fires has the flags of the server, and of its metrics where a run keeps them."""
    named = {"--base-url", "--model", "--backend", "--endpoint", "--api-key-env", "--metrics"}
    for command in ("run", "capacity", "check"):
        assert flags_of(command) >= named


def test_plan_works_from_flags_alone() -> None:
    """No file is needed to look at a load."""
    done = invoked("plan", "--rate", "5", "--num-prompts", "7", "--input-len", "3", "--json")
    assert done.exit_code == 0
    assert '"rows": 7' in done.output


def test_every_key_with_a_flag_exists() -> None:
    """The key paths that flags stand for are those of a scenario."""
    rooms = {"load": Load, "target": Target, "goodput": Goodput}
    for path in flags._FLAGS:
        room, *rest = path.split(".")
        keys = {f.alias or name for name, f in Scenario.model_fields.items()}
        assert room in keys
        if rest and room in rooms:
            assert rest[0] in {f.alias or name for name, f in rooms[room].model_fields.items()}


def test_help_reads_none_of_the_heavy_libraries() -> None:
    """It starts at once: rooms are read when a command runs."""
    code = (
        "import sys; from loadgen.cli import main; sys.argv = ['loadgen', '--help']\n"
        "try: main()\n"
        "except SystemExit: print({'numpy', 'pydantic', 'aiohttp', 'rich', 'scipy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
