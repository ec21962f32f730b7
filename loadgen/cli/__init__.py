"""The only door: flags, printing, exit codes. Each command is a module of its own name."""

from __future__ import annotations

import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

from loadgen.cli.exits import Exit


def main() -> NoReturn:
    """Run the command line; exit with one of `Exit`'s codes."""
    from loadgen.cli.app import app
    from loadgen.cli.argv import joined

    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        app(joined(sys.argv[1:]), prog_name="loadgen")
    except Exception as trouble:
        sys.exit(_explain(trouble))
    sys.exit(Exit.OK)


def _explain(trouble: Exception) -> Exit:
    """Say whose mistake it was: the user's, the server's, or ours."""
    from loadgen.client.unreachable import Unreachable
    from loadgen.scenario import ScenarioError

    if isinstance(trouble, ScenarioError | Unreachable):
        print(f"loadgen: {trouble}", file=sys.stderr)
        return Exit.USAGE if isinstance(trouble, ScenarioError) else Exit.UNREACHABLE
    traceback.print_exception(trouble)
    print("loadgen: this is a bug: please report it with the lines above; records are kept", file=sys.stderr)
    return Exit.CRASHED


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
