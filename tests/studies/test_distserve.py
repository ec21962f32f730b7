"""DistServe's limits: what the answer says holds, and each figure is counted by hand on a small case."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest

from loadgen.studies.distserve import (
    CHUNKS,
    PACE_S,
    REFUSING,
    SETTINGS,
    SMALL,
    STEP,
    SYSTEMS,
    V1,
    Seen,
)
from tests.studies.committed import REPORTS, figures

FOUND = figures("distserve")


def test_a_good_request_keeps_both_limits_and_a_refused_one_keeps_none() -> None:
    """Of four: good, late, slow, refused; the last is offered, but not accepted."""
    found = Seen(np.array([0.1, 0.3, 0.1, np.inf]), np.array([0.05, 0.05, 0.2, np.inf]), 10.0)
    assert found.good(0.25, 0.1) == 1
    assert found.attainment(0.25, 0.1) == 0.25
    assert found.accepted == 3


def test_looser_limits_never_bear_less() -> None:
    """Of every setting, system and seed."""
    for setting in SETTINGS:
        for system in SYSTEMS:
            for rates in zip(*FOUND["highest_rps"][setting][system].values(), strict=True):
                assert [*rates] == sorted(rates)


def test_at_the_published_limits_the_systems_differ_by_less_than_a_fifth() -> None:
    """With every seed; prompts first is one to three steps of the search below the others, which are equal
    within a step.
    """
    for setting in SETTINGS:
        found = FOUND["highest_rps"][setting]
        for first, *others in zip(*(found[system]["1"] for system in SYSTEMS), strict=True):
            assert max(others) / min(others) < STEP**1.5
            assert STEP**0.5 < max(others) / first < 1.2
    assert next(iter(SYSTEMS)) == "prompts first"


def test_seeds_differ_by_more_than_a_step_of_the_search() -> None:
    """So that the rate of one seed is not told in three digits."""
    for setting in SETTINGS:
        for of_scales in FOUND["highest_rps"][setting].values():
            assert max(of_scales["1"]) > STEP**1.5 * min(of_scales["1"])


def test_pictures_show_the_median_of_the_seeds() -> None:
    """Not the first seed, which is the highest of the three in every series at the published limits."""
    for setting in SETTINGS:
        of_systems = FOUND["highest_rps"][setting]
        assert all(rates["1"][0] == max(rates["1"]) > median(rates["1"]) for rates in of_systems.values())
    page = (REPORTS / "distserve" / "report.md").read_text(encoding="utf-8")
    small = [sorted(rates["1"])[1] for rates in FOUND["highest_rps"][SMALL].values()]
    assert f"At the published limits the systems bear {min(small):.1f} to {max(small):.1f} requests/s" in page


def test_at_the_edge_neither_direction_of_length_holds_for_every_seed() -> None:
    """A longer run keeps the limits for a smaller share with two seeds, and for a larger with one."""
    shares = [[of["attainment"] for of in lengths.values()] for lengths in FOUND["near"].values()]
    assert sorted(long > short for short, long in shares) == [False, False, True]
    assert shares[0][0] > 0.99 > 0.5 > shares[0][1]


def test_past_capacity_good_requests_per_second_are_the_run_s_and_not_the_server_s() -> None:
    """Four times as many requests: less than half, at the highest rate."""
    rate = max(FOUND["rates"][V1], key=float)
    assert FOUND["long"][f"{V1} at {rate}"]["good_rps"] < FOUND["rates"][V1][rate]["good_rps"] / 2


def test_good_requests_per_second_fall_past_their_peak() -> None:
    """By half at the highest rate; up to 6/s nearly all are good."""
    for system in SYSTEMS:
        rates = {float(rate): each["good_rps"] for rate, each in FOUND["rates"][system].items()}
        assert rates[max(rates)] < 0.6 * max(rates.values())
        assert rates[6.0] > 0.95 * 6
    assert CHUNKS in FOUND["rates"]


def test_counting_the_refused_turns_the_order_of_two_servers_round() -> None:
    """The one that refuses is better by accepted requests and worse by offered ones, however long it runs."""
    for found in (FOUND["refusing"], FOUND["long"]):
        everyone, tight = (found[name] for name in REFUSING)
        assert tight["attainment_of_accepted"] > everyone["attainment_of_accepted"]
        assert tight["attainment"] < everyone["attainment"]
        assert tight["attainment"] == pytest.approx(tight["attainment_of_accepted"] * (1 - tight["refused"]))


def test_holding_tokens_back_flatters_the_tail_of_gaps_and_helps_nobody() -> None:
    """The p99 of the gaps is the pace itself, and answers end later."""
    paced = FOUND["paced"]
    assert paced["paced_gap_p99_s"] == pytest.approx(PACE_S)
    assert paced["gap_p99_s"] > 2 * PACE_S
    assert paced["paced_e2e_s"] > paced["e2e_s"] + 1
