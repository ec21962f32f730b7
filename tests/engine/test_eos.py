"""Answers that end by themselves: the law's quantiles, and what bounds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine.chance import uniform
from loadgen.engine.eos import answer_tokens, quantile
from loadgen.knobs import Engine
from loadgen.workload import lengths, streams

LAWS: list[dict[str, Any]] = [
    {"kind": "fixed", "tokens": 7},
    {"kind": "uniform", "min": 3, "max": 9},
    {"kind": "truncated_exponential", "mean": 128, "cap": 512},
    {"kind": "truncated_exponential", "mean": 128, "cap": 512, "min": 20},
    {"kind": "truncated_exponential", "mean": 300, "cap": 200, "min": 4, "rounding": "redraw"},
]


@pytest.mark.parametrize("law", LAWS)
def test_a_quantile_is_what_the_workload_draws_from_the_same_number(law: dict[str, Any]) -> None:
    """Two implementations of one law, one for arrays and one for a number at a time."""
    eos = Engine.model_validate({"eos": law}).eos
    assert eos is not None
    drawn = lengths.draw(eos, 5, "x", 0, 500)
    assert [quantile(eos, float(u)) for u in streams.uniforms(5, "x", 0, 500)] == drawn.tolist()


def test_answers_have_the_mean_of_their_law() -> None:
    """4,000 answers within four standard errors of theory."""
    engine = Engine.model_validate({"eos": LAWS[2], "seed": 3})
    assert engine.eos is not None
    drawn = np.array([answer_tokens(engine, 10_000, 0, key) for key in range(4000)])
    assert drawn.mean() == pytest.approx(lengths.exact_mean(engine.eos), abs=4 * drawn.std() / 4000**0.5)


@given(st.integers(1, 600), st.integers(0, 600), st.integers())
def test_an_answer_stays_between_its_least_and_its_most(asked: int, least: int, key: int) -> None:
    """And the same key gives the same answer; without a law it is exactly what was asked."""
    engine = Engine.model_validate({"eos": LAWS[2]})
    tokens = answer_tokens(engine, asked, least, key)
    assert min(asked, least) <= tokens <= asked
    assert tokens == answer_tokens(engine, asked, least, key)
    assert answer_tokens(Engine(), asked, least, key) == asked


def test_chance_is_the_same_everywhere_and_differs_by_seed_purpose_and_key() -> None:
    """A value written down; and nothing shared between its neighbours."""
    assert uniform(1, "eos", 2) == pytest.approx(0.620944488345441, abs=1e-15)
    assert len({uniform(1, "eos", 2), uniform(2, "eos", 2), uniform(1, "x", 2), uniform(1, "eos", 3)}) == 4
