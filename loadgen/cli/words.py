"""Where words go: results to stdout, progress and remarks to stderr; with --json only JSON on stdout."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from loadgen.calibrate import Calibration
    from loadgen.compare import Comparison
    from loadgen.gate import Gate
    from loadgen.grid import Ran
    from loadgen.report.tables import Table
    from loadgen.stats.summary import Summary


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

    def summary(self, summary: Summary, folder: Path) -> None:
        from loadgen.report.terminal import print_summary
        from loadgen.stats import to_json

        print_summary(summary, self.results, folder=folder)
        if self.as_json:
            self.document(to_json(summary).decode())

    def comparison(self, comparison: Comparison) -> None:
        import msgspec

        from loadgen.report.terminal import print_comparison

        print_comparison(comparison, self.results)
        if self.as_json:
            self.document(msgspec.json.format(msgspec.json.encode(comparison)).decode())

    def calibration(self, found: Calibration) -> None:
        from loadgen.report.terminal import print_calibration

        print_calibration(found, self.results)
        if self.as_json:
            self.document(_json(found))

    def grid(self, ran: list[Ran], cells: int, table: Path) -> None:
        from loadgen.report.terminal import print_grid

        print_grid(ran, cells, self.results, table=table)
        if self.as_json:
            self.document(_json([one.summary for one in ran]))

    def repeats(self, summaries: list[Summary], asked: int, folder: Path) -> None:
        from loadgen.report.terminal import print_repeats

        print_repeats(summaries, asked, self.results, folder=folder)
        if self.as_json:
            self.document(_json(summaries))

    def gate(self, found: Gate) -> None:
        from loadgen.report.terminal import print_gate

        print_gate(found, self.results)
        if self.as_json:
            self.document(_json(found))

    def tables(self, tables: list[Table], value: object) -> None:
        """A `value`, and how it looks."""
        from loadgen.report.terminal import print_tables

        print_tables(tables, self.results)
        if self.as_json:
            self.document(_json(value))

    def document(self, text: str) -> None:
        """A whole document, alone on stdout."""
        sys.stdout.write(text.rstrip() + "\n")


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value)).decode()


def _console(*, to_stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if to_stderr else sys.stdout
    return Console(stderr=to_stderr, width=None if stream.isatty() else 100, highlight=False)
