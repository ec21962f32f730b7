"""`loadgen gate`: is the candidate worse than the baseline, by more than is allowed?"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadgen.cli import options
from loadgen.cli.exits import Exit, of_gate

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
    typer.Option(
        help="Standard deviation of one run's figure between runs of the same, such as 1%, "
        "instead of what the runs show."
    ),
]
Junit = Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML to this file.")]
Markdown = Annotated[
    Path | None,
    typer.Option(
        "--markdown", help="Write Markdown to this file, for a pull request. (The flag of report prints it.)"
    ),
]

Between = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--between",
        metavar="A B",
        help="Two URLs, or two variants of the SCENARIO that stands for CANDIDATE: run it on both in turn, "
        "and compare B with A.",
    ),
]
Repeats = Annotated[
    int | None,
    typer.Option(
        metavar="INTEGER", help="With --between: runs of each side. Default 5, or the scenario's repeats."
    ),
]
WaitReady = Annotated[
    str | None, typer.Option(help="With --between: wait at most so long for both servers to be ready.")
]
Init = Annotated[
    bool, typer.Option("--init", help="Write a GitHub workflow that gates each pull request, and a scenario.")
]
ServerCommand = Annotated[
    str | None, typer.Option(help="With --init: what starts the server. Default the bundled engine.")
]
_OF_RUNNING = ("virtual", "repeats", "seed", "num_prompts", "request_rate", "wait_ready", "no_preflight")


def gate(
    ctx: typer.Context,
    candidates: Annotated[
        list[Path] | None, typer.Argument(metavar="CANDIDATE", help="Run folders, or a folder of them.")
    ] = None,
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
    between: Between = None,
    repeats: Repeats = None,
    virtual: options.Virtual = False,
    seed: options.Seed = None,
    num_prompts: options.NumPrompts = None,
    request_rate: options.RequestRate = None,
    wait_ready: WaitReady = None,
    no_preflight: options.NoPreflight = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder for gate.json; with --between, for the runs too.")
    ] = None,
    junit: Junit = None,
    markdown: Markdown = None,
    init: Init = False,
    server_command: ServerCommand = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Did the candidate get slower than the baseline?

    Exit codes: 0 no worse, and its SLOs hold; 1 worse, or an SLO fails; 2 they cannot be compared;
    3 it cannot be told; 4 a run cannot be trusted, or a PASS could not be written where it was asked for.
    """
    from loadgen.baseline import of_run, runs_in, sides
    from loadgen.cli.words import Words
    from loadgen.scenario import ScenarioError

    words = Words(as_json, quiet)
    _refuse_stray(ctx)
    if init:
        from loadgen.cli.ci_kit import next_steps, write_kit

        words.document(next_steps(write_kit(Path(), server_command), server_command))
        raise typer.Exit
    allowed, of, sd = judged_by(tolerance, metric, noise)  # before anything is read
    if out is not None and ((out / "run.json").exists() or any(out.glob("*/run.json"))):
        raise ScenarioError(f"{out} holds runs: choose another folder with --out")
    if between:
        from loadgen.cli.between import run_between

        first, second = run_between(ctx.params, words)
        baseline, candidates, out = [first], [second], first.parent
    if not candidates:
        raise ScenarioError("CANDIDATE: a run folder, or a folder of several, to be judged")
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
    raise typer.Exit(told(found, words, out=out, junit=junit, markdown=markdown))


def _refuse_stray(ctx: typer.Context) -> None:
    """Raises ScenarioError for a word that would be passed over."""
    from loadgen.cli.shaping import spelt
    from loadgen.scenario import ScenarioError

    def given(*names: str) -> str:
        sources = {name: ctx.get_parameter_source(name) for name in names}
        return ", ".join(
            spelt(name) for name, source in sources.items() if source and source.name == "COMMANDLINE"
        )

    between, init, words = (ctx.params[name] for name in ("between", "init", "candidates"))
    if not between and (stray := given(*_OF_RUNNING)):
        raise ScenarioError(f"{stray}: nothing is run without --between")
    if between and (stray := given("baseline", "unpaired")):
        raise ScenarioError(f"{stray} cannot stand beside --between: the first side is the baseline")
    if between and len(words or ()) > 1:
        raise ScenarioError("--between runs one SCENARIO on both sides, and got several")
    if init and (words or given("baseline", "between")):
        raise ScenarioError("--init writes files and compares none: give it alone, or with --server-command")
    if not init and given("server_command"):
        raise ScenarioError("--server-command: goes into the workflow that --init writes")


def judged_by(
    tolerance: list[str] | None, metric: list[str] | None, noise: str | None
) -> tuple[dict[str, Tolerance], list[str], float | None]:
    """What the flags say: tolerances, metrics, noise. Raises ScenarioError."""
    from loadgen.cli.tolerances import noise_from, tolerances_from
    from loadgen.gate import refuse_senseless
    from loadgen.stats.figures import GATED

    allowed, metrics = tolerances_from(tolerance or []), metric or [*GATED]
    sd = None if noise is None else noise_from(noise)
    refuse_senseless(allowed, sd, metrics)
    return allowed, metrics, sd


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
) -> Exit:
    """Say it wherever it was asked for, and on GitHub where this is a workflow.

    What cannot be written keeps nothing else from being said, and turns a PASS alone into Exit.INVALID: a
    workflow that looks for it there must not go on.
    """
    from loadgen.report.github import commands
    from loadgen.report.terminal import print_gate
    from loadgen.units import printable
    from loadgen.whole_file import WriteError

    words.show(partial(print_gate, found), found)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print(*commands(found), sep="\n", file=sys.stderr)
    code = of_gate(found)
    for write in _writes(found, out, junit, markdown):
        try:
            write()
        except WriteError as problem:
            print(f"loadgen: {printable(str(problem))}", file=sys.stderr)
            code = code or Exit.INVALID
    return code


def _writes(
    found: Gate, out: Path | None, junit: Path | None, markdown: Path | None
) -> Iterator[Callable[[], None]]:
    """Each raises WriteError."""
    from loadgen.report.junit import junit as as_junit
    from loadgen.report.markdown import gate_markdown
    from loadgen.strict_json import as_json
    from loadgen.whole_file import write_whole

    if out:
        yield partial(_write_in, out, as_json(found))
    if junit:
        yield partial(write_whole, junit, as_junit(found))
    if markdown:
        yield partial(write_whole, markdown, gate_markdown(found).encode())
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        yield partial(_append, Path(summary), gate_markdown(found))


def _write_in(folder: Path, content: bytes) -> None:
    from loadgen.whole_file import write_whole, writing

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "gate.json", content)


def _append(path: Path, text: str) -> None:
    from loadgen.whole_file import writing

    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(text)
