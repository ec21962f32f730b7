"""The only door: flags, printing, exit codes. Each command is a module of its own name."""

from __future__ import annotations

import gc
import signal
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from loadgen.cli.exits import Exit


def main() -> NoReturn:
    """Run the command line; exit with one of `Exit`'s codes."""
    gc.set_threshold(50_000)  # a start makes many objects and next to no garbage: looking for it took a tenth
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        sys.exit(_command())
    except (KeyboardInterrupt, SystemExit) as end:  # typer makes the latter of the former
        if wishes := [*_wishes(end)]:
            for note in getattr(wishes[-1], "__notes__", []):
                print(f"loadgen: interrupted; {note}", file=sys.stderr)
            sys.exit(Exit.INTERRUPTED)
        raise


def _wishes(end: BaseException | None) -> Iterator[KeyboardInterrupt]:
    """To end, the last first: each came while the one before was obeyed."""
    while end is not None:
        if isinstance(end, KeyboardInterrupt):
            yield end
        end = end.__context__


def _command() -> int:
    from loadgen.cli.streams import guarded, open_closed

    open_closed()
    with guarded():
        try:
            from loadgen.cli.app import app
            from loadgen.cli.argv import joined, refuse_odd
            from loadgen.cli.vllm_flags import refuse_foreign, translated

            refuse_odd(sys.argv[1:])
            words = joined(sys.argv[1:])
            refuse_foreign(words)
            words, said = translated(words)
            for note in () if {"--quiet", "-q"} & {*words} else said:
                print(f"loadgen: {note}", file=sys.stderr)
            app(words, prog_name="loadgen")
        except Exception as trouble:
            return _explain(trouble)
    return Exit.OK


def _explain(trouble: Exception) -> Exit:
    """Say whose mistake it was: the user's, the server's, the machine's, or ours."""
    from loadgen.client.fleet import LostError
    from loadgen.client.unreachable import Unreachable
    from loadgen.scenario import ScenarioError
    from loadgen.units import printable
    from loadgen.whole_file import WriteError

    codes = {
        ScenarioError: Exit.USAGE,
        Unreachable: Exit.UNREACHABLE,
        WriteError: Exit.INVALID,
        LostError: Exit.INVALID,
        MemoryError: Exit.CRASHED,
    }
    if code := codes.get(type(trouble)):
        said = "; ".join([str(trouble) or "there is no memory left", *getattr(trouble, "__notes__", [])])
        for line in said.split("\n"):  # it may quote strangers: GitHub obeys lines that begin with ::
            print(f"loadgen: {printable(line)}", file=sys.stderr)
        return code
    from loadgen.client.secrets import without_secrets

    said = without_secrets("".join(traceback.format_exception(trouble)))
    print(*map(printable, said.splitlines()), sep="\n", file=sys.stderr)
    print("loadgen: this is a bug: please report it with the lines above", file=sys.stderr)
    return Exit.CRASHED


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
