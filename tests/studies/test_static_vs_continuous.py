"""What the study says of static and continuous batching holds, by other roads."""

from __future__ import annotations

import re
from itertools import product

import pytest

from loadgen.studies import static_vs_continuous as study
from tests.studies import committed

WHOLE, CHUNKED = "continuous, prompts whole", "continuous, chunks of 256"


def gain(law: str, policy: str, seed: int = 1) -> float:
    return study.burst(law, policy, seed)[0] / study.burst(law, "static", seed)[0]


def test_the_expected_longest_of_two_by_hand() -> None:
    """Of 1 and 3, two draws: 1 in one case of four, else 3."""
    assert study.largest_of(2, [1, 3]) == pytest.approx(2.5)


@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_the_expected_longest_of_a_batch_by_all_batches(batch: int) -> None:
    """The mean over every batch that can be drawn, repeated lengths too."""
    lengths = [2, 9, 5, 2, 17]
    every = [max(drawn) for drawn in product(lengths, repeat=batch)]
    assert study.largest_of(batch, lengths) == pytest.approx(sum(every) / len(every))


def test_no_gain_at_zero_variance() -> None:
    """Answers of one length end in one step: membership has nothing to change."""
    assert gain("fixed 64", WHOLE) == pytest.approx(1, abs=0.001)
    assert study.largest_of(study.SLOTS, [64] * 9) == 64
    assert 1 < gain("fixed 64", CHUNKED) < 1.1


def test_the_gain_grows_with_the_spread_of_lengths() -> None:
    """And stays within a seventh of what order statistics say."""
    laws = ["fixed 64", *(f"lognormal, cv {cv}" for cv in (0.25, 0.5, 1, 1.5, 2))]
    gains = [gain(law, WHOLE) for law in laws]
    assert gains == sorted(gains)
    assert gains[-1] > 3.5
    for law, found in zip(laws, gains, strict=True):
        drawn = study.burst(law, "static", 1)[1]
        assert found == pytest.approx(
            study.largest_of(study.SLOTS, drawn) / (sum(drawn) / len(drawn)), rel=1 / 7
        )


@pytest.mark.parametrize(("policy", "ends_s"), [("static", 16), ("dynamic", 19), ("continuous", 10)])
def test_the_pictures_on_paper_by_hand(policy: str, ends_s: float) -> None:
    """static: four are there at 2, their longest takes 8, the next four's 6. dynamic: 8 for the two who are
    there, 5 for four, 6 for the last two. continuous: the longest way is A's slot, then F, then G.
    """
    steps = study.on_paper(policy)
    assert steps[-1].start_s + steps[-1].step_s == ends_s
    tokens = sum(output for _, _, output in study.PAPER_ROWS)
    assert study.used_share(steps) == pytest.approx(tokens / (4 * ends_s))


def test_captions_of_latency_are_of_rates_that_every_policy_serves() -> None:
    """Past its capacity a figure says how long the run was, not what the policy does."""
    assert study.capacity("static").low > study.SERVED
    assert study.RATES[-1] > study.capacity("continuous, chunks of 256").high


def test_slots_on_paper_are_told_in_seconds_all_three() -> None:
    """Though steps take a second each where nobody waits for a batch."""
    pictures = [study._slots(policy, study.on_paper(policy)) for policy in study.POLICIES]
    said = [re.findall(r"4 slots in (\S+ \w+)", picture.says) for picture in pictures]
    assert said == [["16.0 s"], ["19.0 s"], ["10.0 s"]]


def test_latency_gains_at_every_load_that_was_tried() -> None:
    """Over static and over dynamic batching: every interval as committed lies above 1."""
    gains = committed.figures("static-vs-continuous")["gain_by_load"]["e2e_p50_s"]
    assert {len(at) for at in gains.values()} == {len(study.RATES)}
    assert all(low > 1 for at in gains.values() for _, low, _ in at.values())


def test_most_of_the_gain_at_low_load_is_the_second_that_static_batching_waits() -> None:
    """At 1 request/s more than half of what static batching adds is gone where 50 ms are waited."""
    p50 = {
        p: at["1"][0] for p, at in committed.figures("static-vs-continuous")["by_load"]["e2e_p50_s"].items()
    }
    assert p50["static"] - p50["dynamic"] > (p50["static"] - p50["continuous"]) / 2


def test_no_gain_is_told_without_slots_and_model() -> None:
    """In the answer's first paragraph and in every caption of a simulated load; no source's ratio at all."""
    page = (committed.REPORTS / "static-vs-continuous" / "report.md").read_text(encoding="utf-8")
    first = page.split("**Answer.**")[1].split("\n\n")[0]
    captions = re.findall(r"^!\[.+\]\((?:gain|load)-.+\)\n\n(.+)$", page, re.MULTILINE)
    assert len(captions) == 3 + len(study.TITLES)
    assert all(
        word in said for said in (first, *captions) for word in (study.MACHINE, f"{study.SLOTS} slots")
    )
    assert not re.search(r"\d+x", page.split("## Sources")[1])


def test_there_is_no_throughput_to_gain_at_low_load() -> None:
    """Everybody is served as they come; past the static knee they are not."""

    def ratio(rate: float) -> float:
        ours, theirs = (study.at_rate(policy, rate, 1) for policy in ("continuous", "static"))
        return ours["tokens_per_s"] / theirs["tokens_per_s"]

    assert ratio(1) == pytest.approx(1, abs=0.02)
    assert ratio(32) > 2
