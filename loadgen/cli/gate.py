"""`loadgen gate`: is the candidate worse than the baseline, by more than is allowed?"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadgen.cli import options
from loadgen.cli.exits import of_gate

if TYPE_CHECKING:
    from loadgen.baseline import Side
    from loadgen.cli.words import Words
    from loadgen.gate import Gate
    from loadgen.stats.figures import Tolerance

Tolerances = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerance",
        help="How much worse is still good: 5% of all figures; or of one, METRIC=5%,20ms: the larger counts.",
    ),
]
Metrics = Annotated[list[str] | None, typer.Option("--metric", help="Gate this one only; several times.")]
Noise = Annotated[
    str | None,
    typer.Option(help="Between runs of the same (sd), such as 1%, instead of what the runs show."),
]
Junit = Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML to this file.")]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", help="Write Markdown to this file, for a pull request.")
]


def gate(
    candidates: Annotated[
        list[Path], typer.Argument(metavar="CANDIDATE...", help="Run folders, or a folder of them.")
    ],
    baseline: Annotated[
        list[Path] | None,
        typer.Option(help="Run folders, baseline files, folders of them, or names under baselines/."),
    ] = None,
    tolerance: Tolerances = None,
    metric: Metrics = None,
    noise: Noise = None,
    unpaired: Annotated[
        bool, typer.Option("--unpaired", help="Compare runs of different plans: finds only larger changes.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="A folder for gate.json.")] = None,
    junit: Junit = None,
    markdown: Markdown = None,
    as_json: options.AsJson = False,
) -> None:
    """Did the candidate get slower than the baseline? Exit 1 if so."""
    from loadgen.baseline import of_run, runs_in, sides
    from loadgen.cli.words import Words
    from loadgen.scenario import ScenarioError

    allowed, of, sd = judged_by(tolerance, metric, noise)  # before anything is read
    if not baseline:
        raise ScenarioError("--baseline: a run, or a baseline, to compare the candidate with")
    found = gated(
        [of_run(run) for path in candidates for run in runs_in(path)],
        [side for path in baseline for side in sides(path)],
        tolerances=allowed,
        metrics=of,
        noise=sd,
        paired=not unpaired,
    )
    told(found, Words(as_json), out=out, junit=junit, markdown=markdown)
    raise typer.Exit(of_gate(found))


def judged_by(
    tolerance: list[str] | None, metric: list[str] | None, noise: str | None
) -> tuple[dict[str, Tolerance], list[str], float | None]:
    """What the flags say: tolerances, metrics, noise. Raises ScenarioError."""
    from loadgen.gate import known, noise_from, tolerances_from
    from loadgen.stats.figures import METRICS

    metrics = list(dict.fromkeys(known(word, "--metric") for word in metric or METRICS))
    return tolerances_from(tolerance or []), metrics, None if noise is None else noise_from(noise)


def gated(
    candidates: list[Side],
    baselines: list[Side],
    *,
    tolerances: dict[str, Tolerance],
    metrics: list[str],
    noise: float | None,
    paired: bool = True,
) -> Gate:
    """The gate of two sides as they were found."""
    from loadgen.gate import gate

    return gate(
        [side.sample for side in candidates],
        [side.sample for side in baselines],
        summaries=[side.summary for side in (*candidates, *baselines) if side.summary],
        tolerances=tolerances,
        metrics=metrics,
        noise=noise,
        paired=paired,
    )


def told(
    found: Gate, words: Words, *, out: Path | None = None, junit: Path | None, markdown: Path | None
) -> None:
    """Say it wherever it was asked for, and on GitHub where this is a workflow. Raises WriteError."""
    import msgspec

    from loadgen.report.github import commands
    from loadgen.report.junit import junit as as_junit
    from loadgen.report.markdown import gate_markdown
    from loadgen.run import write_whole, writing

    words.gate(found)
    if out is not None:
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
        write_whole(out / "gate.json", msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    if junit is not None:
        write_whole(junit, as_junit(found))
    if markdown is not None:
        write_whole(markdown, gate_markdown(found).encode())
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with writing(summary), Path(summary).open("a", encoding="utf-8") as file:
            file.write(gate_markdown(found))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print(*commands(found), sep="\n", file=sys.stderr)
