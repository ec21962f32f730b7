"""Anyscale's benchmark: our figures are pinned, and what was published stands beside them."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from loadgen.engine.trace import Iteration
from loadgen.studies import anyscale_figures
from loadgen.studies.anyscale import (
    CAPS,
    POLICIES,
    SYSTEMS,
    all_at_once,
    exact_in_slots,
    in_time,
    latencies_s,
    lengths,
    mean_running,
    on_a100,
    policy_throughput,
    system_throughput,
    throughput,
)
from loadgen.studies.anyscale_2023 import study
from tests.studies.committed import REPORTS, figures


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
    assert [policy_throughput(name, cap).tokens_per_s for name in POLICIES] == [pinned(each) for each in ours]


def test_every_policy_gains_more_over_static_the_more_lengths_differ() -> None:
    """Cap 1536: 4.2, 7.3 and 7.5 times static batches of 4; at each narrower cap, of larger ones, less."""

    def over_static(name: str, cap: int) -> float:
        return policy_throughput(name, cap).tokens_per_s / policy_throughput("static", cap).tokens_per_s

    others = [*POLICIES][1:]
    assert [over_static(name, 1536) for name in others] == [pinned(4.21), pinned(7.30), pinned(7.48)]
    for name in others:
        assert all(narrow < wide for narrow, wide in pairwise(over_static(name, cap) for cap in CAPS))


def over_static_of_four(cap: int) -> float:
    """Joining and leaving at every step, in as many slots as a static batch of four."""
    asked = all_at_once(cap)
    static = on_a100({"preset": "fastertransformer", "max_sequences": 4})
    joining = on_a100(exact_in_slots(cap, 4))
    return throughput(asked, joining).tokens_per_s / throughput(asked, static).tokens_per_s


@pytest.mark.parametrize(("cap", "ours"), [(32, 1.38), (128, 1.58), (512, 1.95), (1536, 2.00)])
def test_at_equal_slots_the_policy_gains_twofold_at_most(cap: int, ours: float) -> None:
    """4 slots for both at every cap: what is more than that, over smaller static batches, is memory's."""
    assert over_static_of_four(cap) == pinned(ours)
    made = figures("anyscale-2023")["equal_slots"]
    assert made["joins and leaves"][str(cap)] / made["static"][str(cap)] == pinned(ours)


def test_in_four_slots_no_more_than_four_run() -> None:
    """Nor fewer, while there are requests: memory binds neither."""
    seen: list[Iteration] = []
    throughput(all_at_once(1536)[:200], on_a100(exact_in_slots(1536, 4)), seen.append)
    at_once = [len(each.active) + len(each.completed) for each in seen if each.queue]
    assert max(at_once) == 4
    assert mean_running([each for each in seen if each.queue]) > 3.9


def test_the_answer_parts_joining_and_leaving_from_room_for_more() -> None:
    """2.0 times 2.1 is the 4.2 of exact reservation over a static batch of 4, which runs 10 in its place."""
    made, page = figures("anyscale-2023"), (REPORTS / "anyscale-2023" / "report.md").read_text()
    rungs = made["ladder"]
    joins = rungs["joins and leaves, 4 slots"] / rungs["5 ms a step, not 8"]
    room = rungs["room by exact lengths"] / rungs["joins and leaves, 4 slots"]
    assert joins * room == pinned(policy_throughput("exact reservation", 1536).tokens_per_s / 322)
    assert (f"{joins:.1f}", f"{room:.1f}") == ("2.0", "2.1")
    answer = page.split("**Answer.**")[1].split("Made by:")[0]
    assert f"{joins:.1f}x that requests join and leave at every step, with 4 slots as before" in answer
    assert f"{room:.1f}x room for {made['running']['exact reservation']:.0f} at once instead of 4" in answer
    assert "4.2x continuous batching" not in page


@pytest.mark.parametrize(
    ("policy", "running", "recomputed"), [("exact reservation", 10.1, 0), ("paged", 23.2, 213)]
)
def test_paged_memory_runs_twice_as_many_at_once_and_recomputes_some(
    policy: str, running: float, recomputed: int
) -> None:
    """Cap 1536: mean sequences over time, and preemptions, each of which is computed anew."""
    seen: list[Iteration] = []
    throughput(all_at_once(1536), on_a100(POLICIES[policy](1536)), seen.append)
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
    made = [system_throughput(name, 1536, overheads).tokens_per_s for name in SYSTEMS]
    assert made == [pinned(each) for each in ours]


def test_overheads_move_the_ratios_by_less_than_a_quarter() -> None:
    """FasterTransformer 4.2 to 5.1 times HF, TGI and Ray 8.5 to 9.4, vLLM 23.3 to 25.0."""
    for name, low, high in (
        ("FasterTransformer", 4.17, 5.05),
        ("TGI, Ray", 8.48, 9.39),
        ("vLLM", 23.3, 25.0),
    ):
        ratios = sorted(
            system_throughput(name, 1536, times).tokens_per_s
            / system_throughput("HF", 1536, times).tokens_per_s
            for times in (0.5, 1, 2)
        )
        assert (ratios[0], ratios[-1]) == (pinned(low), pinned(high))
        assert ratios[-1] / ratios[0] < 1.25


def test_the_efficiencies_of_the_profile_give_the_roofline_s_own_figure() -> None:
    """0.75 and 0.70, by a fitted cost without attention in prompts: within 1 % of the roofline itself."""
    for name in ("HF", "vLLM"):
        roofline = system_throughput(name, 1536).tokens_per_s
        assert anyscale_figures.at_efficiencies(name, 0.75, 0.70) == pinned(roofline)


def test_output_tokens_are_a_fifth_of_what_the_benchmark_counts() -> None:
    """Cap 1536, by hand: a mean of 129.57 of 641.57 tokens a request."""
    both = system_throughput("vLLM", 1536)
    assert both.output_tokens_per_s / both.tokens_per_s == pytest.approx(129.57 / 641.57, rel=1e-3)


def test_the_ladder_s_rungs_are_the_systems_and_policies_it_names() -> None:
    """HF first, vLLM as benchmarked last; padding to the batch is 3.3x; equal kernels make it static."""
    made = anyscale_figures.rungs()
    assert made["HF as benchmarked"] == system_throughput("HF", 1536).tokens_per_s
    assert made["vLLM as benchmarked"] == system_throughput("vLLM", 1536).tokens_per_s
    assert made["paged memory"] == policy_throughput("paged", 1536).tokens_per_s
    assert made["5 ms a step, not 8"] == pytest.approx(policy_throughput("static", 1536).tokens_per_s)
    assert made["padded to its own batch"] / made["HF as benchmarked"] == pinned(3.28)


def test_requests_in_time_come_by_the_laws_that_are_told() -> None:
    """Poisson at QPS 4, prompts uniform from 1 to 512, answers exponential of mean 128: means within three
    standard errors.
    """
    due_s, prompts, outputs = zip(*in_time(4, 1, 10_000, (1, 512)), strict=True)
    n = math.sqrt(10_000)
    assert np.mean(np.diff(due_s)) == pytest.approx(0.25, abs=3 * 0.25 / n)
    assert np.mean(prompts) == pytest.approx(256.5, abs=3 * 148 / n)
    assert np.mean(outputs) == pytest.approx(128, abs=3 * 128 / n)
    assert (min(prompts), max(prompts)) == (1, 512)


def test_vllm_s_latency_hardly_moves_from_qps_1_to_4_and_static_s_is_worse_by_far() -> None:
    """As the published text says; its medians are not known."""

    def p50_s(name: str, qps: int) -> float:
        rows = in_time(qps, 1, 100, (1, 512))
        return float(np.median(latencies_s(rows, anyscale_figures.latency_engine(name))))

    assert p50_s("vLLM", 4) < 1.5 * p50_s("vLLM", 1)
    assert p50_s("TGI, Ray", 4) > 3 * p50_s("TGI, Ray", 1)
    assert p50_s("HF", 1) > 10 * p50_s("vLLM", 1)


def test_it_is_saturated_where_throughput_is_within_three_per_cent_of_the_highest() -> None:
    """By hand: 97 of 100."""
    assert anyscale_figures.saturation_qps({1: 50.0, 2: 96.9, 3: 97.0, 4: 100.0, 5: 98.0}) == 3


@pytest.mark.slow
def test_published_numbers_stand_beside_ours_and_none_is_made_up() -> None:
    """81 tokens/s, 4x, 8x, 23x, more than 2x, near 1900 around QPS 8: nothing finer could be read."""
    made = study()
    published = [claim.published for claim in made.claims if claim.published is not None]
    assert published == [81, 4, 8, 23, 2, 1900, 8]
    ours = [claim.ours for claim in made.claims if claim.published is not None]
    assert ours[:5] == [pinned(each) for each in (79.8, 4.49, 9.00, 24.3, 1.59)]
    assert ours[5] == pytest.approx(1900, rel=0.1)
    assert 4 <= ours[6] <= 10
    for picture in made.pictures:
        assert "SIMULATED" in picture.title
