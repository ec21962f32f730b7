"""The table of `loadgen check`."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from loadgen.report.check_view import table
from loadgen.report.terminal import print_tables
from loadgen.traits import Trait

TRAITS = [
    Trait(name="streaming", has=True, says="16 token events, the first after 28.1 ms, then one each 1.45 ms"),
    Trait(name="ignore_eos", has=False, says="ignore_eos is refused (422)", instead="answers may end early"),
    Trait(name="TLS", has=None, says="plain \x1b[31mHTTP\nnow"),
]


def shown(width: int) -> str:
    page = StringIO()
    print_tables([table(["http://h:1", "http://h:2"], TRAITS, 9)], Console(file=page, width=width))
    return page.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_every_trait_is_a_row_that_fits(width: int) -> None:
    """Yes, no or untold; what was found; what follows. Plain text where it is no terminal."""
    lines = shown(width).splitlines()
    assert max(map(len, lines)) <= width
    rows = {words[0]: words[1] for line in lines if (words := line.split())[1:]}
    assert (rows["streaming"], rows["ignore_eos"], rows["TLS"]) == ("yes", "no", "–")
    assert "answers may end early" in shown(width)
    assert "9 small requests were sent, and no load." in shown(width)


def test_what_a_server_said_cannot_reach_the_terminal() -> None:
    """No escape sequence, no line of its own."""
    assert "\x1b" not in shown(120)
    assert "plain HTTP now" in shown(120)
