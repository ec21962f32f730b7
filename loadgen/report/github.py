"""A gate in GitHub's own forms: annotations on a workflow's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadgen.report import gate_view
from loadgen.report.figures import clean

if TYPE_CHECKING:
    from loadgen.gate import Gate

_TITLE = "loadgen gate"


def commands(g: Gate) -> list[str]:
    """A workflow command for each thing that is wrong, or that nothing is, and for each note."""
    wrong = [_command("error", f"{word}: {said}") for word, said in gate_view.reasons(g)]
    good = _command("notice", " ".join(gate_view.verdict(g)))
    return [*(wrong or [good]), *(_command("warning", note) for note in gate_view.notes(g))]


def _command(level: str, said: str) -> str:
    message = clean(said, 1000).replace("%", "%25")  # on one line by now
    return f"::{level} title={_TITLE}::{message}"
