"""The line on what the client had to do."""

from __future__ import annotations

import io
from typing import Literal

import pytest
from rich.console import Console

from loadgen.report.markdown import summary_markdown
from loadgen.report.terminal import print_summary
from loadgen.stats.summary import Finding
from tests.report.summaries import summary


def printed(effect: Literal["info", "warning"]) -> list[str]:
    text = "client: one process at 34% of a core"
    s = summary(findings=[Finding(name="client", effect=effect, text=text, remedy="lower the rate")])
    out = io.StringIO()
    print_summary(s, Console(file=out, width=100), folder=None)
    return [line for line in (out.getvalue() + summary_markdown(s)).splitlines() if "lient: one" in line]


@pytest.mark.parametrize(
    ("effect", "lines"),
    [
        ("info", ["  client: one process at 34% of a core", "client: one process at 34% of a core"]),
        (
            "warning",
            [
                "  WARNING  Client: one process at 34% of a core. Lower the rate.",
                "- Client: one process at 34% of a core. Lower the rate.",
            ],
        ),
    ],
)
def test_the_client_has_a_line_of_its_own_unless_it_is_a_warning(
    effect: Literal["info", "warning"], lines: list[str]
) -> None:
    """Once on the terminal and once in Markdown: among what a run is, or among what speaks against it."""
    assert printed(effect) == lines
