"""Summaries and comparisons as GitHub-flavoured Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from loadgen.report import (
    capacity_view,
    comparison_view,
    gate_view,
    histogram,
    server_view,
    slo_view,
    summary_view,
)
from loadgen.report.figures import clean
from loadgen.report.tables import Table
from loadgen.stats.summary import Summary

if TYPE_CHECKING:
    from loadgen.capacity import Capacity
    from loadgen.compare import Comparison
    from loadgen.gate import Gate

_ACTIVE = re.compile(r"([\\`*_\[\]<>|~&#@$]|:(?=//)|(?<=www)\.)", re.IGNORECASE)


def summary_markdown(summary: Summary, pictures: Mapping[str, str] = {}) -> str:
    """One run: the verdict on the measurement, its tables, the words explained, what to do next.

    `pictures`, here and below: the path of each by its title.
    """
    verdict = f", {slo_view.verdict(summary)}" if summary.verdict else ""
    word = summary_view.word(summary.validity, summary.source)
    parts = [f"# {escape(summary.name)}: {word}{verdict}"]
    parts.append(f"**{escape(summary_view.outcome_line(summary))}**")
    parts += map(escape, [summary_view.identity(summary), summary_view.load(summary)])
    parts += map(escape, summary_view.certificate(summary))
    parts += map(escape, summary_view.client(summary))
    parts += [
        as_list(
            [" ".join(summary_view.finding(f)).strip() for f in summary_view.findings(summary)]
            + summary_view.cautions(summary)
        )
    ]
    for table in summary_view.tables(summary):
        parts.append(as_table(table))
        if table.title.startswith(summary_view.LATENCY):
            parts.append(_shapes(summary))
        if table.title.startswith(server_view.TITLE):
            parts.append(as_list(server_view.sentences(summary)))
    parts.append(_pictures(pictures))
    parts += [
        f"## Next\n\n{as_list(summary_view.next_steps(summary))}" if summary_view.next_steps(summary) else ""
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def comparison_markdown(comparison: Comparison, pictures: Mapping[str, str] = {}) -> str:
    """Several runs of one plan: winner and rule, the variants, every figure and its ratio."""
    word, reason = comparison_view.verdict(comparison)
    others = [name for name in comparison.variants if name != comparison.baseline]
    parts = [
        f"# {escape(word)}",
        escape(f"{reason} Rule: {comparison.rule}."),
        escape(comparison_view.load(comparison)),
        as_list(comparison.notes),
        as_table(comparison_view.sides(comparison)),
        as_table(comparison_view.figures(comparison, others)),
        _pictures(pictures),
        f"Plan digest: {escape(comparison.plan_digest)}",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def gate_markdown(found: Gate) -> str:
    """A gate: the verdict, what is wrong, what to know, and every figure on both sides."""
    word, said = gate_view.verdict(found)
    parts = [
        f"# loadgen gate: {word}",
        escape(said),
        as_list([f"{bad}: {why}" for bad, why in gate_view.reasons(found)]),
        as_list([*gate_view.sides(found), *gate_view.notes(found)]),
        *map(as_table, gate_view.tables(found)),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def capacity_markdown(found: Capacity, pictures: Mapping[str, str] = {}) -> str:
    """A search for capacity: the answer, what lies around it, every load that was probed."""
    word, said = capacity_view.headline(found)
    parts = [
        f"# {escape(word)}: {escape(said)}",
        as_list(capacity_view.sentences(found)),
        as_table(capacity_view.curve(found)),
        _pictures(pictures),
        f"## Undecided\n\n{as_list(found.undecided)}" if found.undecided else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def escape(text: str) -> str:
    """`text` on one line, as itself: nothing in it is markup, a link, a mention or a table's bar."""
    return _ACTIVE.sub(r"\\\1", clean(text, 1000))


def as_list(sentences: list[str]) -> str:
    return "\n".join(f"- {escape(said)}" for said in sentences)


def as_table(table: Table, level: int = 2) -> str:
    """A table under a heading of `level`, its notes below."""
    lines = [
        _row([column.head for column in table.columns]),
        "|" + "|".join(" ---: " if column.kind == "number" else " --- " for column in table.columns) + "|",
        *map(_row, table.rows),
    ]
    return "\n\n".join(
        filter(None, [f"{'#' * level} {escape(table.title)}", "\n".join(lines), as_list(table.notes)])
    )


def _pictures(pictures: Mapping[str, str]) -> str:
    shown = [f"**{escape(title)}**\n\n![{escape(title)}]({quote(path)})" for title, path in pictures.items()]
    return "\n\n".join(["## Pictures", *shown]) if shown else ""


def _shapes(summary: Summary) -> str:
    """As code, where no sign is markup and no space is lost."""
    lines = histogram.lines(summary)
    return "\n".join([f"## {escape(histogram.title(summary))}\n", "```text", *lines, "```"]) if lines else ""


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(map(escape, cells))} |"
