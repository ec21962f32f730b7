"""What the study says of preemption holds, by other roads."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loadgen.studies import preemption_tail as study
from tests.studies import committed

VALUES_S = np.arange(1, 1002) / 1000
SLOW, FAST = (study.Latencies(*[VALUES_S * factor] * 3) for factor in (4, 1))


def test_a_quantile_over_seeds_is_the_geometric_mean_of_each_seeds() -> None:
    """Of 1 to 1001 ms, and of four times that: p99 is 0.991 and 3.964 s, between them 1.982."""
    assert study.over_seeds([SLOW, FAST], "stall_s").value == pytest.approx(2 * 0.991)
    assert study.over_seeds([SLOW, FAST], "e2e_s", "p50").value == pytest.approx(2 * 0.501)


def test_a_ratio_is_taken_seed_by_seed() -> None:
    """Four times as slow on every plan is four, without any width, however the plans differ."""
    found = study.against([SLOW, SLOW], [FAST, FAST], "ttft_s")
    assert found == (pytest.approx(4), pytest.approx(4), pytest.approx(4))


def test_table_and_picture_have_one_number_for_one_quantity() -> None:
    """Of the figures as committed: every p99 of the table is the point of the curve."""
    kept = committed.figures("preemption-tail")
    for policy, by_metric in kept["tail"].items():
        for metric, quantiles in by_metric.items():
            assert quantiles["p99"] == kept["p99_by_load"][metric][policy][str(study.SATURATED)]


def test_what_the_answer_concludes_rests_on_intervals() -> None:
    """One is told of victims' stalls, and of an oracle's TTFT."""
    kept = committed.figures("preemption-tail")
    assert kept["victims"]["most_remaining / last"]["stall_s p99"][2] < 1
    ttft = {policy: kept["tail"][policy]["ttft_s"]["p99"] for policy in (study.EXACT, study.RECOMPUTE)}
    assert ttft[study.EXACT][1] > ttft[study.RECOMPUTE][2]


@pytest.mark.parametrize(
    ("ratio", "seen"),
    [
        ("recompute / swap", {("ttft_s", "3")}),
        ("recompute / ideal", {("ttft_s", "2.6"), ("ttft_s", "3"), ("e2e_s", "3"), ("stall_s", "3")}),
        ("swap / ideal", {("ttft_s", "2.6"), ("ttft_s", "3"), ("e2e_s", "3"), ("stall_s", "3")}),
    ],
)
def test_a_difference_by_how_victims_come_back_is_told_where_one_was_seen(
    ratio: str, seen: set[tuple[str, str]]
) -> None:
    """Recompute / swap: only TTFT at 3 requests/s. Over ideal: all at 3, and TTFT already at 2.6."""
    kept = committed.figures("preemption-tail")["ratios"][ratio]
    above = {(m, f"{float(rate):g}") for m, at in kept.items() for rate, each in at.items() if each[1] > 1}
    below = [each for at in kept.values() for each in at.values() if each[2] < 1]
    assert (above, below) == (seen, [])


def test_a_ratio_of_the_table_is_that_of_the_curve() -> None:
    """E2E p99 against victims who come back at no cost, at 3 requests/s."""
    kept = committed.figures("preemption-tail")
    for policy, at in kept["p99_by_load"]["e2e_p99_against_ideal"].items():
        (top,) = (rate for rate in at if float(rate) == study.TOP)
        assert kept["ratios"][f"{policy} / ideal"]["e2e_s"][top] == at[top]


def test_recomputing_against_swapping_by_hand() -> None:
    """OPT-13B on an A100 40 GB: 25.69 GB of weights at 75 % of 1.555 TB/s, 25.69 GFLOP a token at 70 % of 312
    TFLOPS, and 819,200 bytes a position twice over a bus of 25 GB/s; attention is 4 x 40 x 5120 x n x n/2.
    """
    n = 500
    flops = 0.7 * 312e12
    weights_s, tokens_s = 2 * 12.843e9 / (0.75 * 1.555e12), 2 * 12.843e9 * n / flops
    attention_s = 4 * 40 * 5120 * n * n / 2 / flops
    by_hand = (math.hypot(weights_s, tokens_s) + attention_s) / (2 * n * 819_200 / 25e9)
    assert study.recompute_against_swap(n) == pytest.approx(by_hand, rel=0.01)
    with_overhead = by_hand + 5e-3 / (2 * n * 819_200 / 25e9)
    assert study.recompute_against_swap(n, overhead=True) == pytest.approx(with_overhead, rel=0.01)


def test_where_memory_suffices_policies_are_one() -> None:
    """At 1.5 requests/s nobody of the first seed is put back: it cannot matter how one would come back."""
    runs = [study.of_policy(policy, 1.5, 1) for policy in (study.RECOMPUTE, study.SWAP, study.IDEAL)]
    assert all(np.array_equal(runs[0].e2e_s, other.e2e_s) for other in runs[1:])


def test_preemption_stops_answers_and_reservation_keeps_people_waiting() -> None:
    """At 3 requests/s, first seed: the longest stall against TTFT."""
    paged, exact = (study.of_policy(policy, 3.0, 1) for policy in (study.RECOMPUTE, study.EXACT))
    assert np.quantile(paged.stall_s, 0.99) > 5 * np.quantile(exact.stall_s, 0.99)
    assert np.quantile(exact.ttft_s, 0.99) > 2 * np.quantile(paged.ttft_s, 0.99)


def test_every_policy_is_explained() -> None:
    """In the table beside the pictures."""
    assert set(study.MEANT) == set(study.POLICIES)
