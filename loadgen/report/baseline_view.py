"""Baselines in words: which there are, and their figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loadgen.report.figures import UNDEFINED, clean, duration, number, percent
from loadgen.report.tables import SOURCES, Column, Table
from loadgen.stats.sample import Sample

if TYPE_CHECKING:
    from loadgen.baseline import Figure


def listing(found: dict[Path, Sample]) -> Table:
    """Each baseline: where it is, and where it comes from."""
    columns = [
        Column("name", "label"), Column("run", "label"), Column("ok"), Column("source", "words"),
        Column("machine", "words", drop=1), Column("loadgen", "label", drop=2),
    ]  # fmt: skip
    return Table("Baselines", columns, [_row(path, s) for path, s in found.items()])


def _row(path: Path, s: Sample) -> list[str]:
    about = s.about
    return [
        clean(path.parent.name),
        about.run_id,
        f"{s.ok.sum():,} of {len(s):,}",
        SOURCES[about.source],
        clean(str(about.host.get("name", UNDEFINED))),
        clean(about.versions.get("loadgen", UNDEFINED)),
    ]


def figures_table(figures: dict[str, Figure]) -> Table:
    """What a gate compares with, and how far the runs are apart."""
    columns = [Column("metric", "label"), Column("mean"), Column("least"), Column("most"), Column("noise")]
    rows = [
        [f.label, *(shown(f.unit, x) for x in (f.mean, f.least, f.most)), percent(f.noise, 1000)]
        for f in figures.values()
    ]
    notes = [
        "Over the runs; percentiles over all offered requests, a failed one being infinitely late.",
        "noise: the standard deviation between the runs, a share of the mean.",
    ]
    return Table("Figures", columns, rows, notes)


def shown(unit: str, value: float | None) -> str:
    """A figure with its unit, where that is not in its name."""
    if value is None:
        return UNDEFINED
    return {"s": duration(value), "share": f"{100 * value:.2f} %"}.get(unit) or number(value)
