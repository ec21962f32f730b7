"""A plan in figures."""

from __future__ import annotations

import math

import pytest

from loadgen.scenario import Scenario
from loadgen.workload import PlanFacts, draw, facts
from tests.workload.asked import asked, poisson


def facts_of(scenario: Scenario) -> PlanFacts:
    return facts(draw(scenario), scenario)


def test_a_hand_counted_plan() -> None:
    """Five rows over 4 s: gaps 1, 1, 2, 0; every figure worked out by hand."""
    rows = [(0, 4, 1), (1, 8, 2), (2, 12, 3), (4, 16, 4), (4, 60, 90)]
    scenario = asked(requests=[{"due": f"{due}s", "prompt": p, "output": o} for due, p, o in rows])
    found = facts_of(scenario)
    assert (found.rows, found.warmup_rows, found.span_s, found.rate_rps) == (5, 0, 4.0, 1.0)
    assert found.gap_cv == pytest.approx(math.sqrt(0.5))  # squares off the mean: 0, 0, 1, 1, over 4
    assert found.gap_lag1 == pytest.approx(-0.5)  # products 0, 0, -1 over the sum of squares 2
    assert found.dispersion is None
    assert (found.prompt.mean, found.prompt.p50, found.prompt.p99, found.prompt.max) == (20.0, 12, 60, 60)
    assert (found.output.total, found.output.per_s) == (100, 20.0)
    assert found.arrivals == found.prompt.law == "written out"
    assert found.prompt.exact_mean is None


def test_a_poisson_plan_looks_like_one() -> None:
    """CV 1, dispersion 1, lag-1 0, each within 5 standard deviations; rate and lengths near the law's."""
    law = {"kind": "truncated_exponential", "mean": 128, "cap": 512}
    found = facts_of(poisson(num_requests=20_000, output_tokens=law))
    assert found.rate_rps == pytest.approx(8, rel=5 / math.sqrt(20_000))
    assert found.gap_cv == pytest.approx(1, abs=5 / math.sqrt(20_000))
    assert found.gap_lag1 == pytest.approx(0, abs=5 / math.sqrt(20_000))
    assert found.dispersion_window_s == pytest.approx(1, rel=0.05)  # eight mean gaps
    assert found.dispersion == pytest.approx(1, abs=5 * math.sqrt(2 / 2500))
    assert found.output.exact_mean == pytest.approx(118.948, abs=5e-4)
    assert found.output.mean == pytest.approx(118.948, rel=5 / math.sqrt(20_000))
    assert found.digest == draw(poisson(num_requests=20_000, output_tokens=law)).digest()


def test_bursty_arrivals_show_in_the_dispersion() -> None:
    """Gamma of CV 2: for long windows the dispersion tends to CV squared, 4; at 8 gaps it is well above 2."""
    found = facts_of(asked({"kind": "gamma", "rate": 8, "burstiness": 0.25}, num_requests=20_000))
    assert found.gap_cv == pytest.approx(2, abs=0.1)
    assert found.dispersion is not None
    assert 2 < found.dispersion < 4.5


def test_constant_arrivals_have_no_variation() -> None:
    """CV and dispersion 0; a correlation of equal gaps is not defined."""
    found = facts_of(asked({"kind": "constant", "rate": 3}, num_requests=1000))
    assert found.gap_cv == pytest.approx(0, abs=1e-8)
    assert found.dispersion == 0
    assert found.gap_lag1 is None


@pytest.mark.parametrize("requests", [1, 2, 100])
def test_a_burst_has_no_rate_and_nothing_that_needs_one(requests: int) -> None:
    """None, never 0 and never infinite."""
    found = facts_of(asked({"kind": "burst"}, num_requests=requests))
    assert found.span_s == 0
    assert found.rate_rps is found.gap_cv is found.gap_lag1 is found.dispersion is found.prompt.per_s is None
    assert found.output.total == 128 * requests


def test_warm_up_rows_are_counted_apart() -> None:
    """They belong to the rows."""
    found = facts_of(poisson(num_requests=30, warmup_requests=12))
    assert (found.rows, found.warmup_rows) == (42, 12)


def test_the_mean_of_a_mixture_is_that_of_its_classes_by_weight() -> None:
    """Three of 100 tokens for one of 500: 200."""
    classes = {"short": {"weight": 3, "prompt_tokens": 100}, "long": {"weight": 1, "prompt_tokens": 500}}
    assert facts_of(poisson(num_requests=10, classes=classes)).prompt.exact_mean == 200


def test_prompts_that_were_raised_to_their_prefix_are_counted() -> None:
    """Of lengths 1 to 200, half are below 101: their law's mean is no longer the plan's, and is not given."""
    prompts = {"prefix": {"kind": "shared", "tokens": 100}}
    law = {"kind": "uniform", "min": 1, "max": 200}
    plain = draw(poisson(num_requests=500, prompt_tokens=law)).prompt_tokens
    found = facts_of(poisson(num_requests=500, prompt_tokens=law, prompts=prompts))
    short = int((plain < 101).sum())
    assert found.notes == (f"{short} prompts were shorter than their prefix, and were raised to it",)
    assert found.prompt.exact_mean is None
