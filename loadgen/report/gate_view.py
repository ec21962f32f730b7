"""What is said about a gate: its verdict, why, each figure before and after, and what to know besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from loadgen.report.baseline_view import shown
from loadgen.report.figures import UNDEFINED, clean
from loadgen.report.tables import SOURCES, Column, Table
from loadgen.stats.change import Change
from loadgen.stats.figures import METRICS
from loadgen.stats.summary import WORST_FIRST, SloResult, Verdict

if TYPE_CHECKING:
    from loadgen.gate import Gate, Gated

_WORDS = {
    "PASS": "no figure got worse by more than is allowed, as far as these runs can tell",
    "FAIL": "the candidate is not good enough",
    "UNRESOLVED": "these runs cannot tell, and what was not measured is not passed",
    "INVALID": "nothing can be told from these runs",
}


def verdict(g: Gate) -> tuple[str, str]:
    """The word, and what it means with how many figures and SLOs share it."""
    figures = Counter(change.verdict for change in g.changes)[g.verdict]
    slos = Counter(result.verdict for _, result in promises(g))[g.verdict]
    counted = [f"{figures} of {len(g.changes)} figures"] if figures else []
    counted += [f"{slos} of {len(promises(g))} SLOs"] if slos else []
    of = f" ({', '.join(counted)})" if counted and not g.faults else ""
    return g.verdict, f"{_WORDS[g.verdict]}{of}."


def promises(g: Gate) -> list[tuple[str, SloResult]]:
    """Every SLO that was judged, with the run that it was judged on."""
    return [(run_id, result) for run_id, results in g.slos.items() for result in results]


def sides(g: Gate) -> list[str]:
    """Who is compared with whom: a sentence each."""
    return [_side("baseline", g.baselines), _side("candidate", g.candidates)]


def _side(role: str, runs: list[Gated]) -> str:
    sources = " and ".join(dict.fromkeys(SOURCES[run.source] for run in runs))
    targets = ", ".join(dict.fromkeys(clean(run.target) for run in runs))
    requests = ", ".join(dict.fromkeys(f"{run.ok:,} of {run.offered:,}" for run in runs))
    many = f"{len(runs)} runs, {runs[0].run_id} to {runs[-1].run_id}" if len(runs) > 1 else runs[0].run_id
    return f"{role}: {many}: {sources}, {targets}; {requests} requests ok"


def reasons(g: Gate) -> list[tuple[Verdict, str]]:
    """Every verdict that is not PASS, worst first, and why, in words for someone who sees a gate first."""
    if g.faults:
        return [("INVALID", fault) for fault in g.faults]
    said: list[tuple[Verdict, str]] = [(c.verdict, sentence(c)) for c in g.changes if c.verdict == "FAIL"]
    alike: dict[tuple[Verdict, str], list[str]] = {}
    for c in g.changes:
        if c.verdict not in ("PASS", "FAIL"):
            alike.setdefault((c.verdict, c.reason), []).append(c.label)
    said += [(word, f"{', '.join(labels)}: {reason}") for (word, reason), labels in alike.items()]
    said += [
        (result.verdict, promise(g, run_id, result))
        for run_id, result in promises(g)
        if result.verdict != "PASS"
    ]
    return sorted(said, key=lambda pair: WORST_FIRST.index(pair[0]))


def sentence(c: Change) -> str:
    """What became of one figure: `TTFT p99 is 14.8 % slower (at least 11.2 %), more than the 5 % allowed`."""
    if c.verdict != "FAIL" or c.change is None:
        return f"{c.label}: {c.reason}" if c.reason else f"{c.label} {_change(c)}"
    return f"{c.label} {_change(c)}, more than the {_much(c, c.allowed)} allowed"


def _change(c: Change) -> str:
    if c.change is None:
        return "is not known"
    least = f" (at least {_much(c, max(c.low, 0))})" if c.low is not None and c.change > 0 else ""
    return f"is {_much(c, abs(c.change))} {_direction(c, worse=c.change > 0)}{least}"


def _direction(c: Change, *, worse: bool) -> str:
    if c.unit == "s":
        return "slower" if worse else "faster"
    return "higher" if worse is (METRICS[c.metric].better == "lower") else "lower"


def _much(c: Change, change: float) -> str:
    return f"{_hundredths(change)} {'points' if c.unit == 'share' else '%'}"


def _hundredths(change: float) -> str:
    return f"{100 * change:.1f}".removesuffix(".0")


def promise(g: Gate, run_id: str, result: SloResult) -> str:
    """An SLO that is not kept for sure, and why."""
    where = f" in {run_id}" if len(g.candidates) > 1 else ""
    why = f": {result.reason}" if result.reason else " does not hold" if result.verdict == "FAIL" else ""
    return f"SLO {result.name}{where}{why}"


def tables(g: Gate) -> list[Table]:
    return [table for table in (figures(g), slos(g)) if table is not None]


def figures(g: Gate) -> Table:
    """Each gated figure on both sides, its change, and what the change may be."""
    columns = [
        Column("metric", "label"), Column("baseline"), Column("candidate"), Column("worse"), Column("least"),
        Column("most"), Column("allowed"), Column("detectable", drop=1), Column("verdict", "label"),
    ]  # fmt: skip
    notes = [
        "worse: by how many % of the baseline, or points of a share; below 0 is better.",
        "least, most: its 95 % interval.",
        "detectable: the least worsening that these runs would find 19 times in 20.",
        "FAIL: worse than is allowed, and not by chance. UNRESOLVED: it cannot be told, which is red too.",
    ]
    paired = "paired by request" if g.paired else "not paired"
    return Table(f"Changes, {paired} ({source(g)})", columns, [_row(c) for c in g.changes], notes)


def source(g: Gate) -> str:
    """How both sides were measured: a simulated figure never looks measured."""
    return " and ".join(dict.fromkeys(SOURCES[run.source] for run in (*g.baselines, *g.candidates)))


def _row(c: Change) -> list[str]:
    worse, least, most, detectable = (
        UNDEFINED if x is None else f"{100 * x:.1f}" for x in (c.change, c.low, c.high, c.detectable)
    )
    sides = [shown(c.unit, c.baseline), shown(c.unit, c.candidate)]
    return [c.label, *sides, worse, least, most, _hundredths(c.allowed), detectable, c.verdict]


def slos(g: Gate) -> Table | None:
    """The SLOs of the candidates' scenario."""
    if not g.slos:
        return None
    several = len(g.slos) > 1
    columns = [
        *([Column("run", "label")] if several else []),
        Column("SLO", "words"),
        Column("verdict", "label"),
    ]
    rows = [[*([run_id] if several else []), r.name, r.verdict] for run_id, r in promises(g)]
    return Table(f"SLOs of the candidate ({source(g)})", columns, rows)


def notes(g: Gate) -> Iterator[str]:
    """What to know before acting on the verdict."""
    if g.noise is not None:
        yield f"Noise between runs, as stated: {_hundredths(g.noise)} %."
    yield from map(clean, g.notes)
