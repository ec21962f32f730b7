"""Published comparisons: our figures are pinned, and what was published stands beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadgen.engine.trace import Iteration
from tests.engine import published, sarathi
from tests.engine.anyscale import (
    CAPS,
    POLICIES,
    SYSTEMS,
    engine,
    lengths,
    mean_running,
    policy_tokens_per_s,
    system_tokens_per_s,
    tokens_per_s,
)

REPORT = Path(__file__).parents[2] / "reports" / "published-comparisons.md"


def pinned(value: float) -> object:
    return pytest.approx(value, rel=0.01)


@pytest.mark.parametrize(
    ("cap", "first", "n", "mean", "longest", "zeros"),
    [
        (32, [21, 23, 1, 6], 1008, 15.67, 32, 20),
        (128, [64, 48, 35, 106], 1008, 54.94, 128, 7),
        (512, [437, 174, 23, 12], 1000, 122.11, 510, 1),
        (1536, [437, 174, 23, 12], 1000, 129.57, 843, 1),
    ],
)
def test_the_benchmark_s_lengths_are_drawn_again_from_its_seed(
    cap: int, first: list[int], n: int, mean: float, longest: int, zeros: int
) -> None:
    """As listed from the benchmark's own generators; the longest answer of cap 1536 has 843 tokens."""
    drawn = lengths(cap)
    assert drawn[:4] == first
    assert (len(drawn), max(drawn), drawn.count(0)) == (n, longest, zeros)
    assert np.mean(drawn) == pytest.approx(mean, abs=0.005)


@pytest.mark.parametrize(
    ("cap", "ours"),
    [
        (32, (4319, 5465, 7184, 6799)),
        (128, (1583, 2684, 4328, 4565)),
        (512, (497, 1452, 2513, 2571)),
        (1536, (322, 1357, 2350, 2408)),
    ],
)
def test_what_the_policy_alone_gives_at_every_spread_of_lengths(cap: int, ours: tuple[int, ...]) -> None:
    """Tokens/s on equal kernels, static to chunked. Nobody published these."""
    assert [policy_tokens_per_s(name, cap) for name in POLICIES] == [pinned(each) for each in ours]


def test_paged_memory_is_seven_times_a_static_batch_where_lengths_differ_most() -> None:
    """Cap 1536: 4.2, 7.3 and 7.5 times static; about a quarter more than static at cap 32."""
    static, *others = (policy_tokens_per_s(name, 1536) for name in POLICIES)
    assert [each / static for each in others] == [pinned(4.21), pinned(7.30), pinned(7.48)]
    ratios = [
        policy_tokens_per_s("exact reservation", cap) / policy_tokens_per_s("static", cap) for cap in CAPS
    ]
    assert ratios == sorted(ratios)


@pytest.mark.parametrize(
    ("policy", "running", "recomputed"), [("exact reservation", 10.1, 0), ("paged", 23.2, 213)]
)
def test_paged_memory_runs_twice_as_many_at_once_and_recomputes_some(
    policy: str, running: float, recomputed: int
) -> None:
    """Cap 1536: mean sequences over time, and preemptions, each of which is computed anew."""
    seen: list[Iteration] = []
    tokens_per_s(1536, engine(POLICIES[policy](1536)), seen.append)
    assert mean_running(seen) == pinned(running)
    assert sum(len(each.preempted) for each in seen) == recomputed


@pytest.mark.parametrize(
    ("overheads", "ours"),
    [
        (0.5, (89, 372, 837, 2229)),
        (1, (80, 358, 718, 1939)),  # published: 81, and 4, 8 and 23 times as many: ours 4.5, 9.0 and 24.3
        (2, (66, 333, 559, 1539)),
    ],
)
def test_as_it_was_benchmarked_with_each_system_s_handicaps(overheads: float, ours: tuple[int, ...]) -> None:
    """Tokens/s at cap 1536 of HF, FasterTransformer, TGI and Ray, vLLM. None of it reproduces a published
    figure: HF's 8 ms a step were solved for from its 81 tokens/s, by which all ratios divide, and the 15 ms
    of TGI and Ray were chosen with 8x in view. Half and twice the overheads show what hangs on them.
    """
    assert [system_tokens_per_s(name, 1536, overheads) for name in SYSTEMS] == [pinned(each) for each in ours]


def test_overheads_move_the_ratios_by_less_than_a_quarter() -> None:
    """FasterTransformer 4.2 to 5.1 times HF, TGI and Ray 8.5 to 9.4, vLLM 23.3 to 25.0."""
    for name, low, high in (
        ("FasterTransformer", 4.17, 5.05),
        ("TGI, Ray", 8.48, 9.39),
        ("vLLM", 23.3, 25.0),
    ):
        ratios = sorted(
            system_tokens_per_s(name, 1536, times) / system_tokens_per_s("HF", 1536, times)
            for times in (0.5, 1, 2)
        )
        assert (ratios[0], ratios[-1]) == (pinned(low), pinned(high))
        assert ratios[-1] / ratios[0] < 1.25


def test_a_large_chunk_is_worse_under_a_strict_limit_and_no_worse_under_a_relaxed_one() -> None:
    """Sarathi's inversion. Requests/s that keep the limit on the 99th percentile of the time between tokens.
    Published, off a graph: strict 2.0 with chunks of 512 and 0.5 with 2048; relaxed 2.0 and 2.3.
    """
    ours = {key: sarathi.capacity_rps(key[1], key[0]) for key in published.CAPACITY_RPS}
    assert ours["strict", 2048] < ours["strict", 512] / 3
    assert ours["relaxed", 2048] >= ours["relaxed", 512]
    coarsely = {("strict", 512): 3.3, ("strict", 2048): 0.7, ("relaxed", 512): 3.3, ("relaxed", 2048): 4.0}
    assert ours == {key: pytest.approx(value, rel=0.1) for key, value in coarsely.items()}


def test_the_reference_report_is_made_again_to_the_letter() -> None:
    """By `python -m tests.engine.published`, on any machine."""
    assert REPORT.read_text(encoding="utf-8") == published.page()
