"""Goodput: who is good, of whom, and how many a second."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.manners import Goodput as Limits
from loadgen.records import Outcome, RequestRecord
from loadgen.stats.goodput import goodput
from loadgen.stats.summary import Goodput
from tests.records import failed, ok, run_of


def of(limits: dict[str, str], *rows: RequestRecord, rps: float | None = 2.0) -> Goodput:
    asked = Limits.model_validate(limits).model_dump(mode="json", by_alias=True)
    found = goodput(run_of(rows, scenario={"goodput": asked}), rps)
    assert found is not None
    return found


def test_a_request_is_good_when_it_meets_every_limit() -> None:
    """One fast, one slow to start, one slow per token, one slow in all: only the first is good."""
    found = of(
        {"ttft": "200ms", "tpot": "20ms", "e2e": "1s"},
        ok(0, ttft_s=0.2, gaps_us=[20_000]),
        ok(1, ttft_s=0.200001, gaps_us=[20_000]),
        ok(2, ttft_s=0.2, gaps_us=[20_001]),
        ok(3, ttft_s=0.2, gaps_us=[20_000] * 41),
    )
    assert found == Goodput(
        limits_s={"ttft": 0.2, "tpot": 0.02, "e2e": 1.0}, good=1, attainment=0.25, rps=0.5
    )


def test_attainment_is_over_all_offered() -> None:
    """70 of 100 within the limit beats 60 answered and 40 refused; aborted rows are in neither."""
    slow = [ok(i, ttft_s=0.5 if i < 70 else 4.0) for i in range(100)]
    picky = [ok(i, ttft_s=0.4) if i < 60 else failed(i, outcome=Outcome.REJECTED) for i in range(100)]
    ours = failed(100, outcome=Outcome.ABORTED)
    for rows, share in ((slow, 0.7), (picky, 0.6)):
        assert of({"ttft": "1s"}, *rows, ours).attainment == share


def test_one_token_misses_no_tpot_and_no_token_misses_ttft() -> None:
    """An undefined TPOT is no miss; an answer without a token never met its TTFT."""
    one = ok(0, gaps_us=[])
    none = ok(1, gaps_us=[], first_token_s=None, last_token_s=None, event_tokens=None, output_tokens=0)
    assert of({"tpot": "10ms"}, one, none).good == 2
    assert of({"ttft": "10s"}, one, none).good == 1
    assert of({"e2e": "10s"}, one, none).good == 1


def test_each_request_is_held_to_the_limits_of_its_class() -> None:
    """A class's own, else the load's, else the scenario's; where they differ, no one set is named."""
    classes = {"quick": {"goodput": {"ttft": "100ms"}}, "slow": {"goodput": None}}
    rows = [ok(i, ttft_s=0.2, class_=name) for i, name in enumerate(["quick", "slow", "slow", "slow"])]
    asked: dict[str, Any] = {"load": {"classes": classes}, "goodput": {"ttft": "1s"}}
    found = goodput(run_of(rows, scenario=asked), 4.0)
    assert found == Goodput(limits_s={}, good=3, attainment=0.75, rps=3.0)
    assert found.limits() == "the limits of their class"
    asked["load"]["goodput"] = {"ttft": "150ms"}
    assert goodput(run_of(rows, scenario=asked), 4.0) == Goodput(limits_s={}, good=0, attainment=0.0, rps=0.0)
    alike = goodput(run_of(rows[1:], scenario=asked), 4.0)
    assert alike is not None
    assert alike.limits_s == {"ttft": 0.15}


def test_without_limits_there_is_no_goodput() -> None:
    """No goodput in the scenario, or one without a limit, is None rather than everything."""
    for asked in ({}, {"goodput": None}, {"goodput": {"ttft": None, "tpot": None, "e2e": None}}):
        assert goodput(run_of([ok(0)], scenario=asked), 1.0) is None


@pytest.mark.parametrize(("rps", "expected"), [(None, None), (4.0, 2.0)])
def test_the_rate_is_the_offered_rate_of_the_good(rps: float | None, expected: float | None) -> None:
    """Half are good, so half the offered rate; a burst has none."""
    assert of({"ttft": "1s"}, ok(0), ok(1, ttft_s=2.0), rps=rps).rps == expected


def test_a_run_without_rows_attains_nothing_and_fails_nothing() -> None:
    """Nothing offered: no share, rather than 0 or 1."""
    assert of({"ttft": "1s"}, rps=0.0) == Goodput(limits_s={"ttft": 1.0}, good=0, attainment=None, rps=None)


def test_a_longer_prompt_may_wait_longer() -> None:
    """100 ms and 1 ms a token: asked for 16 and for 400; where none was asked for, as the server counted."""
    rows = [
        ok(0, ttft_s=0.116),
        ok(1, ttft_s=0.116001),
        ok(2, ttft_s=0.5, asked_prompt_tokens=400, prompt_tokens=9000),
        ok(3, ttft_s=0.116, asked_prompt_tokens=None, prompt_tokens=16),
        ok(4, ttft_s=0.116, asked_prompt_tokens=None, prompt_tokens=None),
    ]
    found = of({"ttft": "100ms + 1ms/token"}, *rows)
    assert (found.good, found.limits_s, found.per_token_s) == (3, {"ttft": 0.1}, {"ttft": 0.001})
    assert found.limits() == "TTFT <= 100ms + 1ms/token"


rows = st.lists(
    st.tuples(st.integers(1, 2000), st.lists(st.integers(0, 200_000), max_size=5), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(rows, st.sampled_from([Outcome.REJECTED, Outcome.ABANDONED, Outcome.UNSENT]))
def test_refusing_or_dropping_late_requests_never_raises_attainment(
    drawn: list[tuple[int, list[int], bool]], instead: Outcome
) -> None:
    """Whichever are refused, those that would have been late among them: the share of offered is not more."""
    limits = {"ttft": "500ms", "tpot": "50ms"}
    served = [ok(i, ttft_s=ms / 1000, gaps_us=gaps) for i, (ms, gaps, _) in enumerate(drawn)]
    picky = [failed(i, outcome=instead) if drawn[i][2] else row for i, row in enumerate(served)]
    before, after = of(limits, *served), of(limits, *picky)
    assert before.attainment is not None
    assert after.attainment is not None
    assert after.attainment <= before.attainment


def test_all_limits_hold_together_and_only_what_we_cut_short_is_left_out() -> None:
    """At the limit, above it, one token; error, refusal and timeout miss: three of seven, 0.3/s of 0.7/s."""
    rows = [
        ok(0, ttft_s=0.15, gaps_us=[40_000] * 3),
        ok(1, ttft_s=0.2, gaps_us=[50_000] * 3),
        ok(2, ttft_s=0.201, gaps_us=[10_000] * 3),
        ok(3, ttft_s=0.1, gaps_us=[]),
        failed(4),
        failed(5, outcome=Outcome.REJECTED),
        failed(6, outcome=Outcome.TIMEOUT_TOTAL),
        failed(7, outcome=Outcome.ABORTED),
    ]
    found = of({"ttft": "200ms", "tpot": "50ms"}, *rows, rps=0.8)
    assert (found.good, found.attainment, found.rps) == (3, 3 / 7, pytest.approx(0.3))
