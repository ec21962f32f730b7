"""Shares that are drawn: of classes, of prefixes, of turns; by the chi-square test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from loadgen.plan import NONE
from loadgen.workload import draw
from tests.workload.asked import asked, poisson

ALPHA = 1e-4  # seeds are fixed: what passes once passes always


def p_value(counts: Any, shares: Any) -> float:
    expected = np.array(shares) / np.sum(shares) * np.sum(counts)
    return float(stats.chisquare(counts, expected).pvalue)


def test_classes_have_shares_by_their_weights() -> None:
    """Weights of any sum."""
    weights = [5.0, 0.5, 2.5, 12.0]
    classes = {f"k{i}": {"weight": weight} for i, weight in enumerate(weights)}
    plan = draw(poisson(num_requests=20_000, classes=classes))
    assert p_value(np.bincount(plan.class_id), weights) > ALPHA


def test_classes_are_drawn_independently_of_one_another_and_of_the_gaps() -> None:
    """Neither the class before nor the gap before tells anything: correlations within 4 sd of 0."""
    plan = draw(poisson(num_requests=20_000, classes={"a": {"weight": 1}, "b": {"weight": 1}}))
    kind, gaps_ns = plan.class_id.astype(float), np.diff(plan.due_ns)
    assert abs(np.corrcoef(kind[1:], kind[:-1])[0, 1]) < 4 / np.sqrt(20_000)
    assert abs(np.corrcoef(kind[1:], gaps_ns)[0, 1]) < 4 / np.sqrt(20_000)


def test_a_class_keeps_its_laws_and_takes_the_rest_from_the_load() -> None:
    """Priority, lengths and prefix, of its own or the load's."""
    classes = {
        "own": {"weight": 1, "priority": -4, "prompt_tokens": 11, "output_tokens": 22},
        "prefixed": {"weight": 1, "prompts": {"prefix": {"kind": "shared", "tokens": 500}}},
        "plain": {"weight": 1},
    }
    load = {"priority": 3, "prompt_tokens": 44, "output_tokens": 55, "classes": classes}
    plan = draw(poisson(num_requests=300, **load))
    columns = (plan.class_id, plan.priority, plan.prompt_tokens, plan.output_tokens)
    assert {*zip(*(column.tolist() for column in columns), strict=True)} == {
        (0, -4, 11, 22),
        (1, 3, 501, 55),
        (2, 3, 44, 55),
    }


def test_a_row_has_the_lengths_that_it_would_have_if_its_class_were_alone() -> None:
    """Classes are compared on common random numbers: another class beside it changes none of its rows."""
    spread = {"kind": "uniform", "min": 1, "max": 999}
    alone = draw(poisson(num_requests=400, prompt_tokens=spread))
    mixed = draw(
        poisson(
            num_requests=400,
            classes={"a": {"weight": 1, "prompt_tokens": spread}, "b": {"weight": 1, "prompt_tokens": 7}},
        )
    )
    mine = mixed.class_id == 0
    assert np.array_equal(mixed.prompt_tokens[mine], alone.prompt_tokens[mine])


@pytest.mark.parametrize("zipf", [0.0, 0.9, 2.0])
def test_prefixes_are_popular_by_zipfs_law(zipf: float) -> None:
    """The k-th of seven with a share of k^-zipf."""
    prompts = {"prefix": {"kind": "groups", "groups": 7, "tokens": 20, "zipf": zipf}}
    plan = draw(poisson(num_requests=20_000, prompts=prompts))
    shares = [k**-zipf for k in range(1, 8)]
    assert p_value(np.bincount(plan.group, minlength=7), shares) > ALPHA


def test_only_classes_with_groups_have_them() -> None:
    """The others' rows are in none."""
    groups = {"prefix": {"kind": "groups", "groups": 3, "tokens": 20}}
    plan = draw(
        poisson(num_requests=200, classes={"a": {"weight": 1, "prompts": groups}, "b": {"weight": 1}})
    )
    assert {*plan.group[plan.class_id == 0].tolist()} == {0, 1, 2}
    assert {*plan.group[plan.class_id == 1].tolist()} == {NONE}


@pytest.mark.parametrize(
    "prefix", [{"kind": "shared", "tokens": 60}, {"kind": "groups", "groups": 3, "tokens": 60}]
)
def test_no_prompt_is_shorter_than_its_prefix_and_a_token(prefix: dict[str, Any]) -> None:
    """Longer ones are as long as the law says."""
    spread = {"kind": "uniform", "min": 1, "max": 99}
    plain = draw(poisson(num_requests=500, prompt_tokens=spread))
    plan = draw(poisson(num_requests=500, prompt_tokens=spread, prompts={"prefix": prefix}))
    assert plan.prompt_tokens.tolist() == [max(61, n) for n in plain.prompt_tokens.tolist()]


def test_sessions_have_turns_and_think_by_their_laws() -> None:
    """Turns uniform from 1 to 5, by chi-square; think times exponential, by Kolmogorov and Smirnov's test."""
    sessions = {
        "turns": {"kind": "uniform", "min": 1, "max": 5},
        "think": {"kind": "exponential", "mean": "3s"},
    }
    plan = draw(asked({"kind": "burst"}, num_sessions=4000, sessions=sessions))
    _, turns = np.unique(plan.session, return_counts=True)
    assert p_value(np.bincount(turns)[1:], [1] * 5) > ALPHA
    think_s = plan.think_ns[plan.turn > 1] / 1e9
    assert stats.kstest(think_s, "expon", args=(0, 3)).pvalue > ALPHA
    assert not plan.think_ns[plan.turn == 1].any()
