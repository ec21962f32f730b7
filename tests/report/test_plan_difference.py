"""Two plans side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadgen.plan import Blocks, Plan
from loadgen.report.plan_difference import sentences
from loadgen.scenario import build
from loadgen.workload import draw

BASE = draw(build({"load": {"arrivals": {"kind": "constant", "rate": "2/s"}, "num_requests": 4}}))


def test_equal_plans_are_one_line() -> None:
    """The same rows, however they came about."""
    assert sentences(BASE, replace(BASE, notes=("other",))) == [f"equal: 4 rows, digest {BASE.digest()}"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"priority": np.array([0, 5, 5, 0], np.int32)},
            "priority: differs in 2 of 4 rows, first in row 1: 0 and 5",
        ),
        ({"ids": ("a", None, None, None)}, "ids: differ in 1 of 4 rows, first in row 0: None and a"),
        ({"users": 3}, "users: None and 3"),
        ({"law_hash": "x"}, "source of the law: None and x"),
        ({"prompts": replace(BASE.prompts, texts=("hi",))}, "prompts: other texts"),
        (
            {
                "prompts": replace(
                    BASE.prompts, blocks=Blocks(4, np.zeros(1, np.int64), np.zeros(2, np.int64))
                )
            },
            "prompts: other blocks",
        ),
        ({"prompts": replace(BASE.prompts, seed=8)}, "seed of the prompts: 0 and 8"),
    ],
)
def test_what_differs_is_named(change: dict[str, Any], said: str) -> None:
    """Exactly the one difference, below the digests."""
    other = replace(BASE, **change)
    assert sentences(BASE, other)[1:] == [said]


def test_rows_in_one_alone_are_counted() -> None:
    """A shard has half of the rows; those that both have are equal."""
    half: Plan = BASE.shard(1, 2)
    assert sentences(BASE, half)[1:] == [
        "rows: 4 and 2",
        "rows of the first alone: 2, the first of them 0",
    ]
