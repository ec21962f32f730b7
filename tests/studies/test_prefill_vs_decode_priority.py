"""What the study says of orders holds."""

from __future__ import annotations

from functools import cache

from loadgen.studies import mixed_prompts as load
from loadgen.studies import prefill_vs_decode_priority as study
from tests.studies import committed


@cache
def at_four(order: str) -> dict[str, float]:
    return load.figures(study.ORDERS[order], 4, 1)


def test_a_list_is_decodes_first_at_one_budget() -> None:
    """Prompts are computed in the order in which they came: whoever decodes was admitted before them."""
    listed = study.ORDERS[study.LIST] | {"token_budget": 512}
    assert load.figures(listed, 4, 1) == at_four(study.CHUNKED)


def test_decodes_first_stalls_nobody_and_prompts_first_stalls_longest() -> None:
    """By the longest stall, at 4 requests/s."""
    stalls = [at_four(order)["stall_p99_s"] for order in (study.CHUNKED, study.HYBRID, study.FIRST)]
    assert stalls[0] < stalls[1] / 5
    assert stalls[1] < stalls[2]
    assert at_four(study.CHUNKED)["stalled_share"] == 0


def test_prompts_first_gives_earlier_first_tokens_than_chunks_and_gates() -> None:
    """By TTFT p50: prompts first, then chunks, then prompts that wait at a gate."""
    first, chunked, gated = (at_four(o)["ttft_p50_s"] for o in (study.FIRST, study.CHUNKED, study.GATED))
    assert first < chunked < gated


def test_a_difference_is_told_only_where_its_interval_says_so() -> None:
    """Of the ratios as committed: prompts first gains no TTFT for sure on whole prompts beside decodes."""
    ratios = committed.figures("prefill-vs-decode-priority")["ratios"]

    def interval(ours: str, theirs: str, key: str) -> tuple[float, float]:
        _, low, high = ratios[f"{ours} / {theirs}"][key]
        return low, high

    low, high = interval(study.FIRST, study.HYBRID, load.TTFT_P50)
    assert low < 1 < high
    assert interval(study.CHUNKED, study.FIRST, load.TTFT_P50)[0] > 1
    assert interval(study.FIRST, study.HYBRID, load.STALL_P99)[0] > 1
    assert interval(study.GATED, study.FIRST, load.TPOT_P99)[1] < 1
    for order in study.ORDERS.keys() - {study.CHUNKED}:
        assert interval(order, study.CHUNKED, load.E2E_P50)[0] > 1


def test_every_order_is_explained() -> None:
    """What it does, and for whom."""
    assert set(study.RULES) == set(study.WHO) == set(study.ORDERS)
