"""What the study says of chunks holds, by other roads."""

from __future__ import annotations

import math

import pytest

from loadgen.engine.cost import seconds_of
from loadgen.records import Records
from loadgen.studies import chunk_size as study
from loadgen.studies import mixed_prompts as load
from loadgen.studies.simulated import engine
from tests.records import ok


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


def test_a_whole_prompt_stalls_a_stream_as_long_as_published() -> None:
    """Within a tenth of Sarathi-Serve's four figures for one stream."""
    for (context, chunk), published in study.STALLS.items():
        assert study.stall(context, chunk) == pytest.approx(published, rel=0.1)
