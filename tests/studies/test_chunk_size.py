"""What the study says of chunks holds, by other roads."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from loadgen.engine.cost import seconds_of
from loadgen.records import Records
from loadgen.studies import chunk_size as study
from loadgen.studies import mixed_prompts as load
from loadgen.studies.simulated import engine
from tests.records import ok
from tests.studies import committed


def test_a_lone_prompt_takes_the_steps_that_the_formula_says() -> None:
    """Steps of 2,048 tokens one after the other, each with its share of attention and its overhead."""
    s = seconds_of(engine(load.ENGINE).cost)
    steps = [
        math.hypot(s.weights_s, s.token_s * 2048) + s.pair_s * 2048 * (start + 1024) + s.fixed_s
        for start in range(0, study.LONE_TOKENS, 2048)
    ]
    assert study.lone_s(2048) == pytest.approx(sum(steps), abs=2e-6)


def test_smaller_chunks_cost_a_lone_prompt_more() -> None:
    """Every further step reads the weights again."""
    slowdowns = [study.lone_s(budget) for budget in study.BUDGETS]
    assert slowdowns == sorted(slowdowns, reverse=True)


def test_spikes_are_the_longest_gaps_by_when_they_ended() -> None:
    """Gaps of 0.1 and 0.5 s that end at 1.1 and 1.6; another stream's of 0.2 s at 1.2."""
    one = ok(0, ttft_s=1.0, gaps_us=[100_000, 500_000])
    other = ok(1, ttft_s=1.0, gaps_us=[200_000])
    found = study.spikes(Records.from_records([one, other]), 1.0, 2.0, 0.5)
    assert [at_s for at_s, _ in found] == [1.5, 2.0]
    assert [gap_s for _, gap_s in found] == pytest.approx([0.2, 0.5])


def test_chunks_bound_the_stall_and_delay_first_tokens() -> None:
    """Under the heavy load, one seed: the stall falls tenfold and TTFT rises; far too small is far worse."""
    heavy = study.RATES[study.HEAVY]
    found = {budget: load.figures(study.knobs(budget), heavy, 1) for budget in (64, 512, study.WHOLE)}
    assert found[512]["stall_p99_s"] < found[study.WHOLE]["stall_p99_s"] / 10
    assert found[512]["ttft_p50_s"] > found[study.WHOLE]["ttft_p50_s"]
    assert found[64]["ttft_p50_s"] > 20 * found[512]["ttft_p50_s"]
    assert found[512]["stalled_share"] == 0 < found[study.WHOLE]["stalled_share"]


def test_only_the_light_load_s_turn_of_itl_p99_is_told() -> None:
    """Beyond 2048 there, by figures and by ratios; of whole / 8192 under the heavy load 1 lies between."""
    kept = committed.figures("chunk-size")
    at = {float(budget): each[load.ITL_P99] for budget, each in kept["by_load"][study.LIGHT].items()}
    assert at[4096][2] < at[2048][1]
    assert kept["ratios"][study.LIGHT]["4096 / 2048"][load.ITL_P99][2] < 1
    _, low, high = kept["ratios"][study.HEAVY]["whole / 8192"][load.ITL_P99]
    assert low < 1 < high


def test_beyond_2048_no_first_token_was_seen_earlier() -> None:
    """Under both loads, at p50 and p99; under the heavy one 512 is later at p50, whole at p99."""
    ratios = committed.figures("chunk-size")["ratios"]
    for of_load in ratios.values():
        for pair in ("4096 / 2048", "8192 / 2048", "whole / 2048"):
            assert all(of_load[pair][key][2] >= 1 for key in (load.TTFT_P50, load.TTFT_P99))
    assert ratios[study.HEAVY]["512 / 2048"][load.TTFT_P50][1] > 1
    assert ratios[study.HEAVY]["whole / 2048"][load.TTFT_P99][1] > 1


def test_the_longest_stall_grows_with_the_budget() -> None:
    """Up to the longest prompt: each interval lies above that of the budget before."""
    for of_load in committed.figures("chunk-size")["by_load"].values():
        stalls = [of_load[at][load.STALL_P99] for at in sorted(of_load, key=float) if float(at) <= 8192]
        assert all(before[2] < after[1] for before, after in pairwise(stalls))


@pytest.mark.parametrize("labels", [study.FOLDED, study.UNFOLDED])
def test_every_budget_is_written_beside_its_points(labels: study.Labels) -> None:
    """Once a load; of two in one label the points lie within a twentieth of each other in ITL p99."""
    kept = committed.figures("chunk-size")["by_load"]
    words = {word: at for at, word in study.WORDS.items()}
    for of in study.RATES:
        itl = {float(at): each[load.ITL_P99][0] for at, each in kept[of].items()}
        said = [labels.get((of, at), ("", study.WORDS[at]))[1].split(", ") for at in study.BUDGETS]
        written = [word for label in said for word in label if word]
        assert sorted(written) == sorted(words)
        for first, *others in said:
            assert all(itl[words[o]] == pytest.approx(itl[words[first]], rel=0.05) for o in others)


def test_a_whole_prompt_stalls_a_stream_as_long_as_published() -> None:
    """Within a tenth of Sarathi-Serve's four figures for one stream."""
    for (context, chunk), published in study.STALLS.items():
        assert study.stall(context, chunk) == pytest.approx(published, rel=0.1)
