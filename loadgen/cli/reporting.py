"""What a folder, or several, hold: a run, a comparison or a search for capacity, and all ways to say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadgen.cli.exits import Exit, of_capacity, of_comparison, of_run
from loadgen.cli.files import written
from loadgen.units import argument, quoted

if TYPE_CHECKING:
    from rich.console import Console

    from loadgen.capacity import Capacity
    from loadgen.charts.picture import Picture
    from loadgen.cli.words import Words
    from loadgen.engine.trace import Iteration
    from loadgen.run import Run
    from loadgen.stats.summary import Summary


@dataclass(frozen=True, slots=True)
class Reported:
    """One result in every form. `markdown` takes the pictures that it is to show: files by title."""

    code: Exit
    document: object
    show: Callable[[Console], None]
    markdown: Callable[[Mapping[str, str]], str]
    page: Callable[[], str]
    pictures: Callable[[], Sequence[Picture]]


def reported(given: Sequence[Path], slos: Sequence[str] = ()) -> Reported:
    """What `given` hold, judged by `slos` too. Raises ScenarioError."""
    from loadgen.capacity import FILE
    from loadgen.scenario import ScenarioError
    from loadgen.stats import summarize

    if len(given) == 1 and (given[0] / FILE).is_file():
        if slos:
            raise ScenarioError(
                f"{given[0]} holds a search for capacity: its SLOs are those it was made with"
            )
        return _of_capacity(given[0])
    found = _named([folder for each in given for folder in _of_comparison(each) or [each]])
    runs = {name: _judged(folder, slos) for name, folder in found.items()}
    if len(runs) == 1:
        [(name, run)] = runs.items()
        return of_one(run, summarize(run), found[name])
    return _of_runs(runs, found)


def _named(folders: Sequence[Path]) -> dict[str, Path]:
    """The runs by the ends of their paths, as long as it takes to tell them apart. Raises ScenarioError."""
    from loadgen.scenario import ScenarioError

    whole = [folder.resolve() for folder in folders]
    if twice := next((at for i, at in enumerate(whole) if at in whole[:i]), None):
        raise ScenarioError(f"{twice} is given twice: a run cannot be compared with itself")
    for length in range(1, max(len(at.parts) for at in whole)):
        names = ["/".join(at.parts[1:][-length:]) for at in whole]
        if len({*names}) == len(whole):
            break
    return dict(zip(names, folders, strict=True))


def draw_page(path: Path, found: Reported, words: Words) -> None:
    """The page of what was found, written where the user wants it. Raises ScenarioError."""
    written(path, found.page())
    words.say(f"page: {path}")


def _judged(folder: Path, slos: Sequence[str]) -> Run:
    from loadgen.run_folder import load

    run = load(folder)
    return run.promising([*(run.asked("slos") or ()), *slos]) if slos else run


def trace_of(folder: Path) -> list[Iteration]:
    """What a simulated engine did, where that was kept: all that is drawn, and a step more."""
    from loadgen.charts.of_run import MOST_STEPS
    from loadgen.iterations import ITERATIONS, iterations

    return [*islice(iterations(folder), MOST_STEPS + 1)] if (folder / ITERATIONS).is_file() else []


# --- one run ------------------------------------------------------------------------------------------------


def of_one(run: Run, summary: Summary, folder: Path) -> Reported:
    """One run, which lies in `folder`."""
    from loadgen.report.markdown import summary_markdown
    from loadgen.report.terminal import print_summary

    def page() -> str:
        from loadgen.pages.run_page import run_page

        return run_page(run, summary, trace_of(folder))

    def pictures() -> Sequence[Picture]:
        from loadgen.charts.of_run import pictures

        return pictures(run, summary, trace_of(folder))

    return Reported(
        code=of_run(summary),
        document=summary,
        show=partial(print_summary, summary, folder=folder),
        markdown=lambda shown: summary_markdown(summary, pictures=shown),
        page=page,
        pictures=pictures,
    )


# --- several ------------------------------------------------------------------------------------------------


def _of_runs(runs: Mapping[str, Run], folders: Mapping[str, Path]) -> Reported:
    from loadgen.compare import compare
    from loadgen.report.markdown import comparison_markdown
    from loadgen.report.terminal import print_comparison
    from loadgen.stats import summarize

    summaries = {name: summarize(run) for name, run in runs.items()}
    digests = {name: run.header.plan_digest for name, run in runs.items()}
    comparison = compare(summaries, digests, {name: run.header.scenario for name, run in runs.items()})

    def traces() -> Mapping[str, Sequence[Iteration]]:
        return {name: trace_of(folder) for name, folder in folders.items()}

    def page() -> str:
        from loadgen.pages.comparison_page import comparison_page

        return comparison_page(comparison, runs, traces())

    def pictures() -> Sequence[Picture]:
        from loadgen.charts.of_comparison import pictures

        return pictures(comparison, runs, traces())

    return Reported(
        code=of_comparison(list(summaries.values())),
        document=comparison,
        show=partial(print_comparison, comparison),
        markdown=lambda shown: comparison_markdown(comparison, pictures=shown),
        page=page,
        pictures=pictures,
    )


_OTHERS = {
    "gate.json": "a gate's verdict, which loadgen gate makes again",
    "sweep.json": "the capacity of several settings, each in a folder of its own there",
}


def _of_comparison(folder: Path) -> list[Path]:
    """The run folders of a comparison's folder, the baseline first; none where it is no comparison's."""
    from loadgen.scenario import ScenarioError
    from loadgen.strict_json import of_json

    path = folder / "comparison.json"
    if not path.is_file():
        for name, what in _OTHERS.items():
            if (folder / name).is_file():
                raise ScenarioError(
                    f"{folder} holds {what}: {folder / name}. loadgen report takes a run folder"
                )
        inside = sorted(found.parent for found in folder.glob("*/run.json"))
        if runs := [run for run in inside if not run.name.startswith("unused-")]:
            command = " ".join(["loadgen report", *map(argument, runs)])
            raise ScenarioError(
                f"{folder} holds no run or finished comparison itself{_about(folder, runs)}, "
                f"but runs: {command}"
            )
        return []
    try:
        variants = of_json(path.read_bytes(), dict[str, Any]).get("variants")
        if not isinstance(variants, dict):
            raise ValueError("it has no variants by name")
    except (OSError, ValueError) as problem:
        raise ScenarioError(f"{path}: {problem}") from None
    names = [*variants]
    for name in names:
        if name in ("", ".", "..") or not {"/", "\\", "\0"}.isdisjoint(name):
            raise ScenarioError(
                f"{path}: {quoted(name)} is no variant: each is the name of a folder beside it"
            )
    if len(names) < 2:
        raise ScenarioError(f"{path} has {len(names)} variants: a comparison has two or more")
    return [folder / name for name in names]


def _about(folder: Path, runs: Sequence[Path]) -> str:
    """Where a grid's figures are, and how to have what may be missing.

    Of a grid or of repeats whose runs are all whole, that is nothing.
    """
    from loadgen.cli.grid import TABLE
    from loadgen.run_folder import lines

    is_grid = (folder / TABLE).is_file()
    is_several = is_grid or all(run.name.isdecimal() for run in runs)
    said = [f"the figures of its grid are in {folder / TABLE}"] if is_grid else []
    if not is_several or not all(lines(run)[0].is_whole for run in runs):
        said.append("the same command again makes what is missing")
    return f" ({'; '.join(said)})" if said else ""


# --- capacity -----------------------------------------------------------------------------------------------


def _of_capacity(folder: Path) -> Reported:
    from loadgen.capacity import load
    from loadgen.report.markdown import capacity_markdown
    from loadgen.report.terminal import print_capacity

    found = load(folder)

    def page() -> str:
        from loadgen.pages.capacity_page import capacity_page

        return capacity_page(found, folder, _first(found, folder))

    def pictures() -> Sequence[Picture]:
        from loadgen.charts.of_capacity import pictures

        return pictures(found)

    return Reported(
        code=of_capacity(found),
        document=found,
        show=partial(print_capacity, found, folder=str(folder)),
        markdown=lambda shown: capacity_markdown(found, pictures=shown),
        page=page,
        pictures=pictures,
    )


def _first(found: Capacity, folder: Path) -> Run | None:
    """One of the runs of a search, the first of those that are still there."""
    from loadgen.run_folder import load

    names = sorted(name for probe in found.probes for name in probe.folders if name == Path(name).name)
    kept = [folder / name for name in names if (folder / name / "run.json").is_file()]
    return load(kept[0]) if kept else None
