"""The only door: flags, printing, exit codes. Each command is a module of its own name."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

from loadgen.cli.exits import Exit


def main() -> NoReturn:
    """Run the command line; exit with one of `Exit`'s codes."""
    from loadgen.cli.app import app
    from loadgen.cli.flags import joined
    from loadgen.client.preflight import Unreachable
    from loadgen.scenario import ScenarioError

    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        app(joined(sys.argv[1:]), prog_name="loadgen")
    except ScenarioError as mistake:
        code = _say(str(mistake), Exit.USAGE)
    except Unreachable as trouble:
        code = _say(str(trouble), Exit.UNREACHABLE)
    except Exception:
        import traceback

        traceback.print_exc()
        code = _say(
            "a bug in loadgen: please report it with the lines above; what was recorded is kept", Exit.CRASHED
        )
    sys.exit(code)


def _say(words: str, code: Exit) -> Exit:
    print(f"loadgen: {words}", file=sys.stderr)
    return code


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
