"""What faults, kills, hours and sizes do to a run: makes reports/robustness.

python -m tests.bench.robustness --work FOLDER: runs each part in a process of its own, keeps what it found
as FOLDER/NAME.json, and writes the report. It goes on where it was ended: a later call measures only what is
not there; `--only NAME` measures that alone, and again; `--only-report` measures nothing. `--quick` is for
trying.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen.charts.picture import Picture, colour, plain, svg
from loadgen.charts.theme import series as nth_ink
from loadgen.report.figures import UNDEFINED, number
from loadgen.report.markdown import as_list, as_table, escape
from loadgen.report.tables import Column, Table
from loadgen.studies.curves import as_columns

COMMAND = "python -m tests.bench.robustness --work FOLDER"
QUESTION = (
    "Whatever happens to a run, does every row keep its record, does the run end by itself and say what is "
    "wrong; and do memory and pace hold when it is long or large?"
)
_MEASURED = (
    "**MEASURED.** The figures on this page are of real processes over HTTP on one machine, against scripted "
    "servers that misbehave on purpose and a small server that knows when it wrote what. No model was "
    "computed."
)
AXES = {
    "MB": "resident memory, MB",
    "MB added": "memory added since the first record, MB",
    "descriptors": "open descriptors",
}
Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A benchmark that prints a JSON object: `columns`, `rows` and `notes`, the first of which is the answer;
    perhaps `series`, curves by "process, unit", and `machine`.

    `minutes`: what it takes, about. `quick`: flags that make it short; none: it has no short form.
    """

    name: str
    title: str
    question: str
    minutes: float
    quick: tuple[str, ...] = ()


PARTS = (
    Part("faults", "Faults", "One fault at a time: what is the outcome of each row, what ends the run?", 4),
    Part("kills", "Kills", "A process killed at a random instant: what is left, what does a report say?", 3),
    Part("cluster", "Several machines", "A plan in shards: is it the same plan; what if a part is lost?", 3,
         ("--requests", "2000")),
    Part("soak", "Soak", "Does the client's memory grow?", 12.5, ("--minutes", "0.75", "--events", "3000")),
    Part("streams", "Ten thousand streams", "What does a stream cost, and is it still measured right?", 1,
         ("--streams", "500")),
    Part("million", "A million rows", "What does each stage take?", 11, ("--rows", "5000", "--rate", "500")),
)  # fmt: skip


# --- measuring ----------------------------------------------------------------------------------------------


def measure(part: Part, work: Path, *, quick: bool) -> bool:
    """Keep what it found in `work`; False where it could not be measured, and said why."""
    began_s = time.monotonic()
    say(f"{part.name}: about {part.minutes:g} min" if not quick else part.name)
    folder = work / part.name
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", f"tests.bench.{part.name}", "--work", str(folder)]
    done = subprocess.run([*words, *(part.quick if quick else ())], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        say(f"{part.name}: left out, it ended with {done.returncode}; why stands above")
        return False
    found = json.loads(done.stdout) | {"took_s": round(time.monotonic() - began_s, 1), "quick": quick}
    half = work / f".{part.name}.half"
    half.write_text(json.dumps(found), encoding="utf-8")
    half.replace(kept(work, part))
    return True


def kept(work: Path, part: Part) -> Path:
    return work / f"{part.name}.json"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# --- the report ---------------------------------------------------------------------------------------------


def write(work: Path, folder: Path) -> None:
    """The report's files in `folder`, in place of those that stand there."""
    there = [part for part in PARTS if kept(work, part).is_file()]
    found = {part: json.loads(kept(work, part).read_text(encoding="utf-8")) for part in there}
    if not found:
        raise SystemExit(f"{work}: no part was measured: nothing to report")
    drawn = {part: [*pictures(part, told)] for part, told in found.items()}
    texts = {f"{picture.name}.svg": svg(picture) for each in drawn.values() for picture in each}
    texts |= {"report.md": page(found, drawn), "figures.json": figures(found)}
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def page(found: Mapping[Part, Found], drawn: Mapping[Part, Sequence[Picture]]) -> str:
    parts = [
        "# Through faults, kills, hours and sizes",
        _MEASURED,
        f"**Question.** {QUESTION}",
        "**Answer.**",
        as_list([f"{part.title}: {told['notes'][0]}" for part, told in found.items()]),
        f"Made by:\n\n```sh\n{COMMAND}\n```",
        "## Conditions",
        as_list([*_conditions(found)]),
    ]
    for part, told in found.items():
        parts += [f"## {part.title}", escape(part.question), as_table(_table(part, told), level=3)]
        for picture in drawn[part]:
            parts += [f"![{escape(picture.title)}]({picture.name}.svg)", escape(picture.says)]
    return "\n\n".join(parts) + "\n"


def _conditions(found: Mapping[Part, Found]) -> Iterator[str]:
    for part, told in found.items():
        about = told.get("machine", {})
        said = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in about.items())
        yield f"{part.title}: {told['took_s'] / 60:.1f} min; {said or 'machine unknown'}."
    if short := [part.title for part, told in found.items() if told["quick"] and part.quick]:
        yield f"SHORT, for trying, and no result: {', '.join(short)}."
    if absent := [part.title for part in PARTS if part not in found]:
        yield f"Not measured here: {', '.join(absent)}."


def _table(part: Part, told: Found) -> Table:
    """A column is one of numbers where all its cells are."""
    rows = [[shown(cell) for cell in row] for row in told["rows"]]
    columns = [
        Column(head, "number" if all(map(_is_number, cells)) else "words")
        for head, *cells in zip(told["columns"], *rows, strict=True)
    ]
    return Table(f"{part.title} (measured over HTTP)", columns, rows, told["notes"][1:])


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", ""))
    except ValueError:
        return cell == UNDEFINED
    return True


def shown(cell: object) -> str:
    match cell:
        case None:
            return number(None)
        case bool():
            return "yes" if cell else "no"
        case int():
            return f"{cell:,}"
        case float():
            return f"{cell:,.0f}" if cell.is_integer() else number(cell)
        case list():
            return ", ".join(map(shown, cell))
        case _:
            return str(cell)


def figures(found: Mapping[Part, Found]) -> str:
    """Every number of the page, as strict JSON."""
    whole = {
        "study": "robustness",
        "schema": 1,
        "source": "http",
        "figures": {part.name: told for part, told in found.items()},
    }
    return json.dumps(whole, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


# --- pictures -----------------------------------------------------------------------------------------------


def pictures(part: Part, told: Found) -> Iterator[Picture]:
    """One a unit: what stands behind the last comma of a curve's name."""
    by_unit: dict[str, dict[str, list[list[float]]]] = {}
    for name, points in told.get("series", {}).items():
        line, _, unit = name.rpartition(", ")
        by_unit.setdefault(unit, {})[line or unit] = points
    for unit, lines in by_unit.items():
        yield picture(part, AXES.get(unit, unit), unit, lines)


def picture(part: Part, axis: str, unit: str, lines: Mapping[str, Sequence[Sequence[float]]]) -> Picture:
    import altair as alt

    name = f"{part.name}-{'-'.join(unit.lower().split())}"
    title = f"{part.title}: {axis}"
    inks = {line: nth_ink(place) for place, line in enumerate(lines)}
    points = [(line, at_s, value) for line, curve in lines.items() for at_s, value in curve]
    chart = (
        alt.Chart(alt.NamedData(name))
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("at_s:Q", axis=alt.Axis(title="seconds")),
            y=alt.Y("value:Q", axis=alt.Axis(title=axis), scale=alt.Scale(zero=True)),
            color=colour("line", inks),
        )
    )
    rows = [[line, *map(shown, _ends(curve))] for line, curve in lines.items()]
    heads = ("at first", "at last", "most")
    said = (f"{row[0]}: {row[1]} at first, {row[2]} at last, {row[3]} at most" for row in rows)
    return Picture(
        name=name,
        title=title,
        says=f"{'; '.join(said)}.",
        spec=plain(chart),
        data={name: as_columns(("line", "at_s", "value"), points)},
        table=Table(title, [Column("process", "label"), *map(Column, heads)], rows),
        by="line",
        series=inks,
    )


def _ends(curve: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    return curve[0][1], curve[-1][1], max(value for _, value in curve)


def main(told: list[str] | None = None) -> None:
    words = argparse.ArgumentParser(prog="python -m tests.bench.robustness", description=__doc__)
    words.add_argument("--work", type=Path, required=True, help="the folder that keeps what was found")
    words.add_argument("--only-report", action="store_true", help="measure nothing")
    words.add_argument(
        "--only", nargs="+", choices=[part.name for part in PARTS], help="measure these, again"
    )
    words.add_argument("--quick", action="store_true", help="short, for trying")
    words.add_argument("--report", type=Path, default=Path("reports/robustness"), help="(%(default)s)")
    asked = words.parse_args(told)
    work = asked.work.resolve()
    wanted = [
        part for part in PARTS if (part.name in asked.only if asked.only else not kept(work, part).is_file())
    ]
    missed = [] if asked.only_report else [p for p in wanted if not measure(p, work, quick=asked.quick)]
    write(work, asked.report)
    if missed:
        raise SystemExit(f"left out: {', '.join(part.name for part in missed)}")


if __name__ == "__main__":
    main()
