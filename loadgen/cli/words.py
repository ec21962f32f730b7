"""Where words go: results to stdout, progress and remarks to stderr; with --json only JSON on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@dataclass
class Words:
    """The two consoles of a command. `quiet` silences progress and remarks, never results or errors."""

    as_json: bool = False
    quiet: bool = False

    @cached_property
    def progress(self) -> Console:
        return _console(to_stderr=True)

    @cached_property
    def results(self) -> Console:
        return _console(to_stderr=self.as_json)

    def say(self, remark: str) -> None:
        if not self.quiet:
            self.progress.print(remark, markup=False, highlight=False)

    def show(self, look: Callable[[Console], None], value: object) -> None:
        """A result as people read it; with --json its `value`, too, alone on stdout."""
        look(self.results)
        if self.as_json:
            self.json(value)

    def json(self, value: object) -> None:
        """A value alone on stdout, as its file has it."""
        from loadgen.strict_json import as_json

        self.document(as_json(value).decode())

    def document(self, text: str) -> None:
        """A whole document, alone on stdout."""
        sys.stdout.write(text.rstrip() + "\n")


def _console(*, to_stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if to_stderr else sys.stdout
    return Console(stderr=to_stderr, width=None if stream.isatty() else 100, highlight=False)
