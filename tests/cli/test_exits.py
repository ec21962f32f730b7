"""Which exit code a summary deserves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from loadgen import drive
from loadgen.cli.exits import Exit, of_comparison, of_run
from loadgen.order import Order
from loadgen.scenario import build
from loadgen.stats import summarize
from loadgen.stats.summary import Finding, Summary
from loadgen.workload import draw


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    """A run that is valid and had answers."""
    asked = build({"load": {"arrivals": {"kind": "constant", "rate": "10/s"}, "num_requests": 5}})
    return summarize(drive.simulate(Order(asked, draw(asked), tmp_path_factory.mktemp("run"), "r")))


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, Exit.OK),
        ({"outcomes": {"rejected": 5}}, Exit.FAILED),
        ({"outcomes": {}, "offered": 0}, Exit.OK),
        ({"validity": "INVALID"}, Exit.INVALID),
        ({"validity": "INVALID", "outcomes": {}}, Exit.INVALID),
        ({"verdict": "PASS", "outcomes": {"rejected": 5}}, Exit.OK),
        ({"verdict": "FAIL"}, Exit.FAILED),
        ({"verdict": "UNRESOLVED"}, Exit.UNRESOLVED),
        ({"verdict": "INVALID"}, Exit.INVALID),
        ({"verdict": "FAIL", "validity": "INVALID"}, Exit.INVALID),
        ({"verdict": "FAIL", "interrupted": True}, Exit.INTERRUPTED),
        ({"interrupted": True}, Exit.INTERRUPTED),
        ({"interrupted": True, "validity": "INVALID"}, Exit.INTERRUPTED),
        ({"interrupted": True, "outcomes": {}}, Exit.INTERRUPTED),
    ],
)
def test_an_interrupt_comes_before_invalid_and_that_before_the_slos(
    good: Summary, changed: dict[str, Any], code: Exit
) -> None:
    """However bad the figures of an interrupted run are, its code is 130, alone and in a comparison."""
    other = msgspec.structs.replace(good, **changed)
    assert of_run(other) == code
    assert of_comparison([good, other]) == (Exit.OK if code in (Exit.FAILED, Exit.UNRESOLVED) else code)


def test_answers_of_other_lengths_than_asked_cannot_be_compared(good: Summary) -> None:
    """Alone such a run stands, with a warning; in a comparison it is INVALID."""
    short = Finding(name="output_tokens", effect="warning", text="", remedy="")
    other = msgspec.structs.replace(good, findings=[short])
    assert of_run(other) == Exit.OK
    assert of_comparison([good, other]) == Exit.INVALID
