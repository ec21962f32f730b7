"""`loadgen gate --init`: what a repository needs to be gated on each pull request."""

from __future__ import annotations

import json
import os
from pathlib import Path

from loadgen import __version__
from loadgen.scenario import ScenarioError
from loadgen.units import argument

_KIT = Path(__file__).with_name("kit")
FILES = {"loadgen.yml": Path(".github/workflows/loadgen.yml"), "loadgen.yaml": Path("loadgen.yaml")}
SERVER = "loadgen serve --port 8000"  # the bundled engine stands in until it is replaced


def write_kit(repository: Path, server: str | None) -> list[Path]:
    """Write a GitHub workflow that starts `server`, a shell command, and the scenario that it fires.

    Raises ScenarioError where either is there already, or cannot be written.
    """
    paths = {name: repository / place for name, place in FILES.items()}
    if there := [str(path) for path in paths.values() if os.path.lexists(path)]:
        raise ScenarioError(f"{' and '.join(there)} would be overwritten: move it away, or change it by hand")
    said = {"SAID_BY_INIT_PACKAGE": f"loadgen=={__version__}", "SAID_BY_INIT_SERVER": server or SERVER}
    for name, path in paths.items():
        text = (_KIT / name).read_text(encoding="utf-8")
        for place, words in said.items():
            text = text.replace(place, json.dumps(words, ensure_ascii=False))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as problem:
            raise ScenarioError(f"cannot write {path}: {problem.strerror}") from None
    return list(paths.values())


def next_steps(paths: list[Path], server: str | None) -> str:
    """What was written, and what is to be done with it."""
    workflow, scenario = paths
    own = "" if server else f"1. Put your server's command after SERVER: in {workflow}.\n"
    more = 2 if own else 1
    top = _top(scenario.resolve().parent)
    below = (
        f"GitHub reads workflows at the top of a repository only: move both files to {top}.\n" if top else ""
    )
    return (
        f"written: {workflow} and {scenario}\n{below}{own}"
        f"{more}. Say in {scenario} where the server listens and what is asked of it; try it with\n"
        f"   loadgen run {argument(scenario)}\n"
        f"{more + 1}. Commit both, and make the first baselines as {workflow} says."
    )


def _top(folder: Path) -> Path | None:
    """The git repository that `folder` is below the top of."""
    within = next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)
    return None if within == folder else within
