"""What the study says of preemption holds, by other roads."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loadgen.studies import preemption_tail as study


def test_quantiles_are_over_all_seeds_together() -> None:
    """Of 0 to 1000 ms in two runs: the 99th and 99.9th percentiles are 990 and 999 ms."""
    values = np.arange(1001) / 1000
    runs = [study.Latencies(values[:400], values[:400], values[:400]), study.Latencies(*[values[400:]] * 3)]
    found = study.pooled(runs, "stall_s")
    assert found == {"p50": pytest.approx(0.5), "p99": pytest.approx(0.99), "p99.9": pytest.approx(0.999)}


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
