"""The page of one run: verdict, what was asked, can it be trusted, results, pictures, definitions, again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loadgen.charts import of_run
from loadgen.engine.trace import Iteration
from loadgen.pages.again import again, scenario
from loadgen.pages.page import Headline, Part, page
from loadgen.report import slo_view, summary_view
from loadgen.report.tables import Table
from loadgen.run import Run
from loadgen.stats.summary import Summary


def run_page(run: Run, summary: Summary, trace: Sequence[Iteration] = ()) -> str:
    """One HTML document. `trace`: what a simulated engine did in each step, where it was kept."""
    tables = summary_view.tables(summary)
    parts = [
        Part(
            "What was asked",
            [summary_view.identity(summary), summary_view.load(summary)],
            folded=scenario(run),
        ),
        Part("Can it be trusted?", trust(summary)),
        Part("Results", summary_view.next_steps(summary), [*map(_unexplained, tables)]),
        Part("Pictures", pictures=of_run.pictures(run, summary, trace)),
        Part("Definitions", definitions(tables)),
        again(run),
    ]
    return page(summary.name, summary_view.source_of(summary), headlines(summary), parts)


def headlines(summary: Summary) -> list[Headline]:
    """Can the measurement be used, and are its promises kept."""
    found = [Headline(summary.validity, summary_view.validity(summary))]
    if summary.verdict is not None:
        found.append(Headline(*slo_view.verdict(summary).split(" ", 1)))
    return found


def trust(summary: Summary) -> list[str]:
    """What speaks for and against the measurement."""
    found = [" ".join(filter(None, summary_view.finding(f))) for f in summary_view.findings(summary)]
    return [
        *summary_view.certificate(summary),
        *summary_view.client(summary),
        *found,
        *summary_view.cautions(summary),
    ]


def definitions(tables: Sequence[Table]) -> list[str]:
    """What the words and signs of `tables` mean, each once."""
    return [*dict.fromkeys(note for table in tables if not _is_reasoned(table) for note in table.notes)]


def _unexplained(table: Table) -> Table:
    return table if _is_reasoned(table) else replace(table, notes=[])


def _is_reasoned(table: Table) -> bool:
    """Whether its notes are findings of this run, which belong beside it."""
    return table.title.startswith("SLOs")
