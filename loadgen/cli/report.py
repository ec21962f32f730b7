"""`loadgen report`: say again, later, what a run folder holds; draw it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadgen.cli import options

if TYPE_CHECKING:
    from loadgen.cli.reporting import Reported


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="A run folder, that of a comparison or of a search for capacity; several runs make a "
            "comparison."
        ),
    ],
    slo: options.Slo = None,
    as_json: options.AsJson = False,
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown", help="Print Markdown instead, for a pull request. (That of gate takes a file.)"
        ),
    ] = False,
    html: options.Html = None,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A file for each picture, and report.md which shows them."),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show the page in a browser, on loopback, until Ctrl-C.")
    ] = False,
) -> None:
    """Say again what a run holds, or compare several; draw it."""
    from loadgen.cli.files import PAGE, refuse_folder, refuse_unwritable
    from loadgen.cli.reporting import draw_page, reported
    from loadgen.cli.words import Words
    from loadgen.scenario import ScenarioError

    if as_json and markdown:
        raise ScenarioError("give --json or --markdown, not both")
    refuse_unwritable(html, *PAGE)
    if svg is not None:
        refuse_folder(svg, _is_ours)
    words, found = Words(as_json), reported(runs, slo or ())
    if markdown:
        words.document(found.markdown({}))
    else:
        words.show(found.show, found.document)
    if html is not None:
        draw_page(html, found, words)
    if svg is not None:
        _draw(found, svg)
        words.say(f"pictures and report.md: {svg}")
    if serve:
        from loadgen.cli.showing import show

        show(found.page(), words.say)
    raise typer.Exit(found.code)


def _is_ours(folder: Path) -> bool:
    return any(folder.glob("*.svg")) and not (folder / "figures.json").exists()


def _draw(found: Reported, folder: Path) -> None:
    from loadgen.charts.picture import svg
    from loadgen.cli import files

    pictures = found.pictures()
    drawn = {f"{picture.name}.svg": svg(picture) for picture in pictures}
    files.folder(folder)
    for name, text in drawn.items():
        files.written(folder / name, text)
    shown = {picture.title: f"{picture.name}.svg" for picture in pictures}
    files.written(folder / "report.md", found.markdown(shown))
