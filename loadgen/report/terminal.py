"""Summaries, comparisons and plans on a terminal, from 60 columns on; plain text where it is none."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from loadgen.report import (
    calibration_view,
    capacity_view,
    comparison_view,
    engine_view,
    gate_view,
    grid_view,
    histogram,
    plan_bars,
    plan_picture,
    plan_view,
    repeats_view,
    server_view,
    signs,
    slo_view,
    summary_view,
    trace_view,
)
from loadgen.report.figures import harmless
from loadgen.report.tables import Table
from loadgen.units import argument

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    from loadgen.calibrate import Calibration
    from loadgen.capacity import Capacity
    from loadgen.compare import Comparison
    from loadgen.gate import Gate
    from loadgen.grid import Ran
    from loadgen.plan import Plan
    from loadgen.scenario import Scenario
    from loadgen.stats.summary import Finding, Summary
    from loadgen.workload import PlanFacts

EFFECTS = {
    "invalid": ("INVALID", "bold red"),
    "invalid_itl": ("ITL INVALID", "bold red"),
    "warning": ("WARNING", "bold yellow"),
    "info": ("note", "bold"),
}
VERDICTS = {
    "PASS": "bold green",
    "FAIL": "bold red",
    "UNRESOLVED": "bold yellow",
    "INVALID": "bold red",
}
WORDS_CELLS = 24  # the least room for a column of words, which may wrap
PICTURE_LINES = 3
HEAD_CELLS = 10  # a heading longer than this and than its cells is broken into lines
GAP = 2


def print_summary(summary: Summary, console: Console, *, folder: Path | None) -> None:
    """The verdict on the measurement first, then what was found, what the words mean, and what to do next."""
    signs.allow(console.file)
    word = summary_view.word(summary.validity, summary.source)
    colour = {"VALID": "bold green", "IMPORTED": "bold yellow"}.get(word, "bold red")
    _headline(console, word, summary_view.validity(summary), colour)
    _verdict(console, summary)
    _sentence(console, summary_view.outcome_line(summary), "bold")
    _sentence(console, summary_view.identity(summary))
    _sentence(console, summary_view.load(summary))
    for line in (*summary_view.certificate(summary), *summary_view.client(summary)):
        _sentence(console, line)
    _doubts(console, summary)
    for table in summary_view.tables(summary, explained=False):
        _table(console, table)
        if table.title.startswith(summary_view.LATENCY):
            _shapes(console, summary)
        if table.title.startswith(server_view.TITLE):
            for said in server_view.sentences(summary):
                _sentence(console, said)
    _list(console, "Next", summary_view.next_steps(summary))
    if folder is not None:
        files = "summary.json every figure, records.jsonl every request, vllm.json in vLLM's definitions"
        page = f"loadgen report {argument(folder)} --html FILE: pictures, as one page"
        _list(console, "Files", [str(folder), files, page])


def print_comparison(comparison: Comparison, console: Console) -> None:
    """The winner and the rule first, then every figure by variant with its ratio to the baseline."""
    signs.allow(console.file)
    word, reason = comparison_view.verdict(comparison)
    _headline(console, word, reason, "bold yellow" if comparison.winner is None else "bold green")
    _sentence(console, f"Rule: {comparison.rule}.")
    _sentence(console, comparison_view.load(comparison))
    for note in comparison.notes:
        _sentence(console, note)
    _table(console, comparison_view.sides(comparison))
    for table in _by_width(comparison, console.width):
        _table(console, table)


def print_calibration(found: Calibration, console: Console) -> None:
    """Every rate that was tried, and what it all means for figures taken here."""
    signs.allow(console.file)
    for table in calibration_view.tables(found):
        _table(console, table)
    console.print()
    _sentence(console, calibration_view.LEGEND)
    _list(console, "Conclusion", calibration_view.conclusion(found))


def print_plan(facts: PlanFacts, console: Console) -> None:
    """What a plan holds, before anything is sent."""
    signs.allow(console.file)
    for table in plan_view.tables(facts):
        _table(console, table)


def print_decidable(sayings: list[str], console: Console) -> None:
    """Whether a plan can decide its SLOs."""
    signs.allow(console.file)
    _list(console, "SLOs", sayings)


def print_picture(plan: Plan, scenario: Scenario, console: Console) -> None:
    """The same to look at: a few lines for each histogram."""
    signs.allow(console.file)
    columns = plan_picture.columns(console.width)
    for shown in plan_bars.bars(plan, scenario, columns):
        _title(console, f"{shown.title}, {shown.y}")
        _drawn(console, plan_picture.picture(shown, PICTURE_LINES, columns))


def print_grid(ran: list[Ran], cells: int, console: Console, *, table: Path) -> None:
    """The cells that were run, of so many, and where the table of all figures is."""
    signs.allow(console.file)
    _table(console, grid_view.cells(ran))
    if len(ran) < cells:
        _sentence(console, f"{len(ran)} of {cells} cells were run.", "bold yellow")
    _list(console, "Files", [f"{table} every figure of every cell", f"{table.parent} a run folder each"])


def print_repeats(summaries: list[Summary], asked: int, console: Console, *, folder: Path) -> None:
    """The runs that were made, of so many of one plan."""
    signs.allow(console.file)
    _table(console, repeats_view.repeats(summaries))
    for trouble in repeats_view.troubles(summaries):
        _sentence(console, trouble, "bold yellow")
    if len(summaries) < asked:
        _sentence(console, f"{len(summaries)} of {asked} runs were made.", "bold yellow")
    _list(console, "Files", [f"{folder} a run folder each, for loadgen report and loadgen gate"])


def print_gate(found: Gate, console: Console) -> None:
    """The verdict, what is wrong and what to know; then every figure on both sides."""
    signs.allow(console.file)
    word, said = gate_view.verdict(found)
    _headline(console, word, said, VERDICTS[word])
    for word, said in gate_view.reasons(found):
        _headline(console, word, said, VERDICTS[word], indent=2)
    for said in gate_view.sides(found):
        _sentence(console, said)
    for note in gate_view.notes(found):
        _sentence(console, note, "bold yellow")
    for table in gate_view.tables(found):
        _table(console, table)


def print_capacity(found: Capacity, console: Console, *, folder: str) -> None:
    """The answer first, then what lies around it, and every load that was probed."""
    signs.allow(console.file)
    word, said = capacity_view.headline(found)
    _headline(console, word, said, VERDICTS.get(word, "bold green"))
    for sentence in capacity_view.sentences(found):
        _sentence(console, sentence)
    if found.probes:
        _table(console, capacity_view.curve(found))
    if picture := capacity_view.picture(found, console.width):
        console.print()
        _drawn(console, picture)
    _list(console, "Undecided", found.undecided)
    files = "capacity.json, report.md, and a folder a run; unused-*: cut short or not to be trusted"
    _list(console, "Files", [f"{folder} {files}"])


def print_tables(tables: list[Table], console: Console) -> None:
    signs.allow(console.file)
    for table in tables:
        _table(console, table)


def _shapes(console: Console, summary: Summary) -> None:
    if not (lines := histogram.lines(summary)):
        return
    _title(console, histogram.title(summary))
    _drawn(console, lines)


def _verdict(console: Console, summary: Summary) -> None:
    if summary.verdict is not None:
        word, said = slo_view.verdict(summary).split(" ", 1)
        _headline(console, word, said, VERDICTS[summary.verdict])


def _doubts(console: Console, summary: Summary) -> None:
    """What speaks against a run's figures, and what to know before using them."""
    for finding in sorted(summary_view.findings(summary), key=lambda f: list(EFFECTS).index(f.effect)):
        _finding(console, finding)
    for caution in summary_view.cautions(summary):
        _sentence(console, caution, "bold yellow")


def print_trace(
    name: str, shown: trace_view.Shown, summary: Summary, console: Console, *, folder: Path, alone: bool
) -> None:
    """The run's summary, in few words unless it is `alone`, and what the engine did, iteration by iteration.

    `name`: which run of several.
    """
    if alone:
        print_summary(summary, console, folder=None)
    else:
        _print_briefly(name, summary, console)
    for table in trace_view.tables(shown):
        _table(console, table)
    files = "iterations.jsonl every iteration, trace.json the same for ui.perfetto.dev"
    figures = [] if alone else [f"loadgen report {argument(folder)} prints the run's figures"]
    _list(console, "Files", [str(folder), files, *figures])
    console.print()


def _print_briefly(name: str, summary: Summary, console: Console) -> None:
    """Whether the run can be trusted, and how its SLOs fared."""
    signs.allow(console.file)
    said = f"{summary.validity}, SIMULATED in virtual time"
    _headline(console, name, said, "bold green" if summary.validity == "VALID" else "bold red")
    _verdict(console, summary)
    _sentence(console, summary_view.outcome_line(summary), "bold")
    _doubts(console, summary)
    if (judged := slo_view.table(summary, summary_view.source_of(summary))) is not None:
        _table(console, judged)


def print_engines(console: Console) -> None:
    """The bundled engine's presets and profiles."""
    signs.allow(console.file)
    for table in engine_view.listing():
        _table(console, table)


def print_explained(what: engine_view.Explained, console: Console) -> None:
    """A preset or a profile: where it comes from, what it does, what it sets."""
    signs.allow(console.file)
    _headline(console, what.name, what.about, "bold")
    for fact in what.facts:
        _sentence(console, fact)
    _list(console, "Rules", what.rules)
    for table in what.tables:
        _table(console, table)


def _by_width(c: Comparison, width: int) -> list[Table]:
    """As many variants beside the baseline as fit; the rest in further tables, the baseline in each."""
    others = [name for name in c.variants if name != c.baseline]
    at_once = len(others)
    while at_once > 1 and _cells(comparison_view.figures(c, others[:at_once])) > width:
        at_once -= 1
    tables = [comparison_view.figures(c, others[i : i + at_once]) for i in range(0, len(others), at_once)]
    return [replace(table, notes=[]) for table in tables[:-1]] + tables[-1:]


# --- setting --------------------------------------------------------------------------------------


def _headline(console: Console, word: str, said: str, style: str, indent: int = 0) -> None:
    from rich.text import Text

    _wrapped(console, Text.assemble((harmless(word), style), f"  {harmless(said)}"), indent)


def _finding(console: Console, finding: Finding) -> None:
    from rich.text import Text

    word, style = EFFECTS[finding.effect]
    found, remedy = summary_view.finding(finding)
    _wrapped(console, Text.assemble((word, style), f"  {found} ", (remedy, "italic")))


def _sentence(console: Console, said: str, style: str = "") -> None:
    from rich.text import Text

    _wrapped(console, Text(harmless(said), style))


def _wrapped(console: Console, text: Text, indent: int = 2) -> None:
    """Words with a hanging indent, and no spaces at a line's end."""
    first, *rest = text.wrap(console, console.width - indent - 2)
    for margin, line in [(indent, first), *((indent + 2, line) for line in rest)]:
        line.rstrip()
        console.print(" " * margin, line, sep="", highlight=False)


def _list(console: Console, title: str, sentences: list[str]) -> None:
    if sentences:
        _title(console, title)
    for said in sentences:
        _sentence(console, said)


def _title(console: Console, title: str) -> None:
    from rich.text import Text

    console.print()
    console.print(Text(harmless(title), "bold"))


def _table(console: Console, table: Table) -> None:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    _title(console, table.title)
    table = _narrowed(_harmless(table), console.width)
    grid = Grid(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, GAP - 1, 0, 0)
    )
    for i, column in enumerate(table.columns):
        grid.add_column(
            Text("\n".join(_head(table, i))),
            justify="right" if column.kind == "number" else "left",
            no_wrap=column.kind == "number",
            overflow="fold",
        )
    for row in table.rows:
        grid.add_row(*map(Text, row))
    _print_grid(console, grid)
    for note in table.notes:
        _sentence(console, note, "dim")


def _harmless(table: Table) -> Table:
    columns = [replace(column, head=harmless(column.head)) for column in table.columns]
    return replace(table, columns=columns, rows=[[*map(harmless, row)] for row in table.rows])


def _drawn(console: Console, lines: list[str]) -> None:
    """Lines as they are: no figure in them is coloured."""
    for line in lines:
        console.out(harmless(line), highlight=False)


def _print_grid(console: Console, grid: Grid) -> None:
    if console.is_terminal:
        console.print(grid, highlight=False)
        return
    with console.capture() as drawn:
        console.print(grid, highlight=False)
    for line in drawn.get().splitlines():
        console.out(line.rstrip(), highlight=False)


def _narrowed(table: Table, width: int) -> Table:
    """The table without the columns that do not fit, the most dispensable first; which ones, is said."""
    whole = table
    while _cells(table) > width and (rank := max(column.drop for column in table.columns)):
        kept = [i for i, column in enumerate(table.columns) if column.drop != rank]
        columns, rows = [table.columns[i] for i in kept], [[row[i] for i in kept] for row in table.rows]
        table = replace(table, columns=columns, rows=rows)
    if gone := [column.head for column in whole.columns if column not in table.columns]:
        between = "; " if any("," in head for head in gone) else ", "
        still = [note for note in table.notes if note.partition(":")[0] not in gone]
        table = replace(table, notes=[*still, f"left out for width: {between.join(gone)}."])
    return table


def _cells(table: Table) -> int:
    """The width the table needs when its words are wrapped as far as they may be."""

    def needs(i: int) -> int:
        widest = max(_widest(table, i), *map(len, _head(table, i)))
        return min(widest, WORDS_CELLS) if table.columns[i].kind == "words" else widest

    return sum(needs(i) + GAP for i in range(len(table.columns))) - GAP


def _head(table: Table, i: int) -> list[str]:
    """A column's heading in lines that make it hardly wider than its cells."""
    return textwrap.wrap(table.columns[i].head, max(_widest(table, i), HEAD_CELLS))


def _widest(table: Table, i: int) -> int:
    from rich.cells import cell_len

    return max((cell_len(row[i]) for row in table.rows), default=0)
