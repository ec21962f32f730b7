"""`loadgen report`: say again, later, what a run folder holds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from loadgen.cli import options
from loadgen.cli.exits import of_comparison, of_run


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="A run folder, or a comparison's; several runs make a comparison.")
    ],
    slo: options.Slo = None,
    as_json: options.AsJson = False,
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown", help="Print Markdown instead, for a pull request. (That of gate takes a file.)"
        ),
    ] = False,
) -> None:
    """Summarise a run folder again, or set several side by side."""
    from loadgen.cli.words import Words
    from loadgen.compare import compare
    from loadgen.report.markdown import comparison_markdown, summary_markdown
    from loadgen.report.terminal import print_comparison, print_summary
    from loadgen.run import Run, load
    from loadgen.scenario import ScenarioError
    from loadgen.stats import summarize

    def judged(folder: Path) -> Run:
        run = load(folder)
        return run.promising([*(run.asked("slos") or ()), *slo]) if slo else run

    folders = [folder for given in runs for folder in _of_comparison(given) or [given]]
    found = {folder.name or str(folder.resolve().name): (folder, judged(folder)) for folder in folders}
    if len(found) != len(folders):
        raise ScenarioError("two of these runs have the same folder name")
    if as_json and markdown:
        raise ScenarioError("give --json or --markdown, not both")
    words = Words(as_json)
    summaries = {name: summarize(run) for name, (_, run) in found.items()}
    if len(summaries) == 1:
        [(name, summary)] = summaries.items()
        if markdown:
            words.document(summary_markdown(summary))
        else:
            words.show(partial(print_summary, summary, folder=found[name][0]), summary)
        raise typer.Exit(of_run(summary))
    comparison = compare(summaries, {name: run.header.plan_digest for name, (_, run) in found.items()})
    if markdown:
        words.document(comparison_markdown(comparison))
    else:
        words.show(partial(print_comparison, comparison), comparison)
    raise typer.Exit(of_comparison(list(summaries.values())))


_OTHERS = {
    "gate.json": "a gate's verdict, which loadgen gate makes again",
    "sweep.json": "the capacity of several settings, which the same loadgen capacity prints again",
    "capacity.json": "a search for capacity, which the same loadgen capacity prints again",
}


def _of_comparison(folder: Path) -> list[Path]:
    """The run folders of a comparison's folder, the baseline first; none where it is no comparison's."""
    import msgspec

    from loadgen.scenario import ScenarioError

    path = folder / "comparison.json"
    if not path.is_file():
        for name, what in _OTHERS.items():
            if (folder / name).is_file():
                raise ScenarioError(
                    f"{folder} holds {what}: {folder / name}. loadgen report takes a run folder"
                )
        if inside := sorted(found.parent for found in folder.glob("*/run.json")):
            them = " ".join(map(str, inside))
            raise ScenarioError(f"{folder} holds no finished comparison, but runs: loadgen report {them}")
        return []
    try:
        variants = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])["variants"]
        return [folder / name for name in msgspec.convert(variants, dict[str, Any])]
    except (msgspec.DecodeError, KeyError) as problem:
        raise ScenarioError(f"{path}: {problem}") from None
