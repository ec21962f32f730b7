"""`loadgen reproduce`: make a study again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The study; without it, all are listed.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Where its files go. Default reports/NAME."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="One self-contained page, too.")
    ] = None,
) -> None:
    """Make a published study of batching again, in virtual time.

    Writes report.md, its pictures as SVG, and figures.json.
    """
    from loadgen.cli.files import PAGE, folder, refuse_folder, refuse_unwritable, written
    from loadgen.cli.words import Words
    from loadgen.report.terminal import print_tables
    from loadgen.scenario import ScenarioError
    from loadgen.studies.listing import listed, of_name

    words = Words()
    if name is None:
        if out or html:
            raise ScenarioError("reproduce: --out and --html need the NAME of a study")
        print_tables([listed()], words.results)
        return
    from loadgen.studies.written import files

    chosen = of_name(name)
    into = out or Path("reports") / name
    refuse_folder(into, lambda there: _study_of(there) == name)
    refuse_unwritable(html, *PAGE, made=into)
    words.say(f"making {name}: about {chosen.seconds} s of one core")
    try:
        study, command = chosen.make(), f"loadgen reproduce {name}"
        texts = files(study, command)
    except KeyboardInterrupt:
        words.say("interrupted: nothing was written")
        raise
    folder(into)
    for file, text in texts.items():
        written(into / file, text)
    words.results.print(f"{study.title}\n", markup=False)
    for said in study.answer:
        words.results.print(said, markup=False)
    words.say(f"files in {into}: report.md, figures.json, {len(study.pictures)} pictures")
    if html is not None:
        from loadgen.studies.study_page import study_page

        written(html, study_page(study, command))
        words.say(f"page: {html}")


def _study_of(folder: Path) -> str | None:
    """Which study's figures are there; None where those of none are."""
    from loadgen.strict_json import of_json

    try:
        found = of_json((folder / "figures.json").read_bytes(), dict[str, object])
    except (OSError, ValueError):
        return None
    return str(found.get("study"))
