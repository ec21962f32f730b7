"""What is said before anything is sent: which SLOs the plan cannot decide, and what would."""

from __future__ import annotations

from typing import Any

import pytest
from scipy import stats

from loadgen.scenario import build
from loadgen.stats.decidable import early_stopping_n, sayings

LOAD = {"arrivals": {"kind": "poisson", "rate": 10}, "num_requests": 100, "output_tokens": 11}


def said(rows: int, *slos: str, **load: Any) -> list[str]:
    """Of a plan of `rows` at ten a second."""
    return sayings(build({"slos": list(slos), "load": LOAD | load}), rows, rows / 10)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (
            298,
            "298 requests cannot show it: it takes 299 (30 seconds) if none misses, 1,146 (1.9 minutes)",
        ),
        (
            299,
            "299 requests can show it if almost none misses; it takes 1,146 (1.9 minutes) if half as",
        ),
    ],
)
def test_too_few_requests_are_told_with_those_that_would_do(rows: int, line: str) -> None:
    """299 at least for a p99, 1,146 where one in two hundred misses."""
    (found,) = said(rows, "p99(ttft) <= 500ms")
    assert found.startswith(f"p99(ttft) <= 500ms: {line}")
    assert said(1146, "p99(ttft) <= 500ms") == []


def test_gaps_are_many_to_a_request() -> None:
    """Eleven tokens have ten gaps: 30 requests have the 299 of a p99, 115 the 1,146."""
    assert "it takes 30 (3 seconds) if none misses, 115" in said(29, "p99(itl) <= 50ms")[0]
    assert said(115, "p99(itl) <= 50ms") == []


def test_a_class_has_its_share_of_the_requests() -> None:
    """A tenth of 1,146 decides nothing, and its minutes are ten times as many."""
    rare = {"weight": 1, "slos": ["p99(ttft) <= 500ms"]}
    (found,) = said(1146, classes={"rare": rare, "common": {"weight": 9}})
    assert found.startswith("rare: p99(ttft) <= 500ms: 115 requests cannot show it: it takes 299 (5 minutes)")


@pytest.mark.parametrize(
    ("slo", "load", "line"),
    [
        ("mean(ttft) <= 1s", {}, "can PASS only with SLOs of rejection_rate and error_rate beside it"),
        ("max(ttft) <= 1s", {}, "judges the requests of this run, and says nothing of others"),
        ("rejection_rate <= 0%", {}, "no number of requests can show it; it can only FAIL"),
        ("output_tokens_per_s >= 1", {"max_concurrency": 4}, "a closed loop waits for slow answers"),
    ],
)
def test_what_can_never_pass_is_told(slo: str, load: dict[str, Any], line: str) -> None:
    """However many requests there are."""
    assert line in said(100_000, slo, **load)[0]


def test_an_interval_needs_two_requests_a_block() -> None:
    """40 for a rate; without a rate of the load there are no minutes."""
    assert said(39, "output_tokens_per_s >= 1")[0].endswith("for an interval: 40 (4 seconds) are needed")
    burst = build({"load": LOAD | {"arrivals": {"kind": "burst"}}, "slos": ["p95(ttft) <= 1s"]})
    assert "(" not in sayings(burst, 50, None)[0].partition(": ")[2]


def test_nothing_promised_nothing_said() -> None:
    """No SLO, no line; not even of a closed loop."""
    assert said(1, max_concurrency=4) == []


def test_a_closed_loop_by_duration_does_not_know_its_requests_before() -> None:
    """Its plan has but each user's first row: of so few nothing is said."""
    loop = {"arrivals": {"kind": "closed", "concurrency": 8}, "duration": "20s"}
    scenario = build({"slos": ["output_tokens_per_s > 10"], "load": loop})
    closed, unknown = sayings(scenario, None, 20.0)
    assert "no SLO of latency" in closed
    assert unknown.startswith("how many requests there will be is told by the answers")


@pytest.mark.parametrize(
    ("share", "queries"),
    [
        (0.90, [44, 64, 81, 97, 127, 197, 325, 681, 1246]),
        (0.95, [90, 130, 165, 198, 259, 398, 656, 1372, 2504]),
        (0.99, [459, 662, 838, 1001, 1307, 2010, 3304, 6898, 12571]),
    ],
)
def test_early_stopping_takes_as_many_queries_as_mlperf_has_it(share: float, queries: list[int]) -> None:
    """The published table, by misses; each the least by SciPy's binomial, one fewer being too few."""
    misses = [0, 1, 2, 3, 5, 10, 20, 50, 100]
    assert [early_stopping_n(t, share) for t in misses] == queries
    for t, n in zip(misses, queries, strict=True):
        assert stats.binom.cdf(t, n, 1 - share) <= 0.01 < stats.binom.cdf(t, n - 1, 1 - share)


def test_a_set_of_mlperf_takes_more_than_a_p99_of_its_own() -> None:
    """459 without a miss at 99 % confidence, where 299 do at 95 %."""
    assert "it takes 459 (46 seconds) if none misses" in said(458, "mlperf-llama2-70b-server")[0]
    assert len(said(458, "mlperf-llama2-70b-server")) == 2
    assert "can show it" in said(459, "mlperf-llama2-70b-server")[0]
