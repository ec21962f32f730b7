"""The page of one run: verdict, what was asked, can it be trusted, results, pictures, definitions, again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loadgen.charts import of_run
from loadgen.engine.trace import Iteration
from loadgen.pages.again import again, engine, scenario
from loadgen.pages.page import Headline, Part, page
from loadgen.report import server_view, slo_view, summary_view
from loadgen.report.tables import Table
from loadgen.report.terminal import EFFECTS
from loadgen.run import Run
from loadgen.stats.summary import Finding, Summary

OF_PICTURES = [
    "Warm-up and tail: requests due before and after the measured part, which keep the load up.",
    "Figures and curves of latency leave these out; other pictures show them, pale where each is a mark.",
    "Dotted vertical lines: where the measured part begins and ends.",
    "aborted: cut by the end of our run, as tail load is, or lost on our side; it counts against nobody.",
    "completed: ok requests by when they ended; the other bars are by when they were due.",
    "Diamond: the share that must be within an SLO's limit. A curve that passes below it misses the SLO.",
]


def run_page(run: Run, summary: Summary, trace: Sequence[Iteration] = ()) -> str:
    """One HTML document. `trace`: what a simulated engine did in each step, where it was kept."""
    tables = summary_view.tables(summary)
    pictures = of_run.pictures(run, summary, trace)
    parts = [
        Part(
            "What was asked",
            [summary_view.identity(summary), summary_view.load(summary), *engine(run)],
            folded=scenario(run),
        ),
        Part("Can it be trusted?", trust(summary)),
        Part("Results", summary_view.next_steps(summary), [*map(_unexplained, tables)]),
        Part("The server's word", server_view.sentences(summary)),
        Part("Pictures", pictures=pictures),
        Part("Definitions", definitions(tables) + (OF_PICTURES if pictures else [])),
        again({"": run}),
    ]
    return page(summary.name, summary_view.source_of(summary), headlines(summary), parts)


def headlines(summary: Summary) -> list[Headline]:
    """Can the measurement be used, what became of the requests, and are the promises kept."""
    found = [
        Headline(summary_view.word(summary.validity, summary.source), summary_view.validity(summary)),
        Headline("OVERLOADED" if summary.overloaded else "Requests", summary_view.outcome_line(summary)),
    ]
    if summary.verdict is not None:
        found.append(Headline(*slo_view.verdict(summary).split(" ", 1)))
    return found


def trust(summary: Summary) -> list[str | Headline]:
    """What speaks for and against the measurement, the worst first."""
    findings = sorted(summary_view.findings(summary), key=lambda f: [*EFFECTS].index(f.effect))
    return [
        *map(_finding, findings),
        *(Headline("note", said) for said in summary_view.cautions(summary)),
        *summary_view.certificate(summary),
        *summary_view.client(summary),
    ]


def _finding(found: Finding) -> Headline:
    word, _ = EFFECTS[found.effect]
    return Headline(word, *summary_view.finding(found))


def definitions(tables: Sequence[Table]) -> list[str]:
    """What the words and signs of `tables` mean, each once."""
    return [*dict.fromkeys(note for table in tables if not _is_reasoned(table) for note in table.notes)]


def _unexplained(table: Table) -> Table:
    return table if _is_reasoned(table) else replace(table, notes=[])


def _is_reasoned(table: Table) -> bool:
    """Whether its notes are findings of this run, which belong beside it."""
    return table.title.startswith("SLOs")
