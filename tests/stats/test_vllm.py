"""The same four requests by vLLM's definitions and by ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadgen.records import Outcome
from loadgen.run import Run
from loadgen.scenario import Scenario
from loadgen.stats import summarize, vllm_result
from loadgen.stats.vllm import _busiest_second
from tests.records import failed, ok, run_of

ROWS = [
    ok(0, 0.0, started_s=0.5, sent_s=0.51, first_event_s=0.6, ttft_s=0.7, gaps_us=[100_000], prompt_tokens=10,
       event_tokens=[1, 2], output_tokens=3),  # sent 0.5 s late; a role event, then two events
    ok(1, 1.0, ttft_s=0.2, gaps_us=[], prompt_tokens=None, asked_prompt_tokens=20),  # one token
    ok(2, 2.0, ttft_s=0.3, gaps_us=[40_000] * 4, prompt_tokens=30, ended_s=4.0),
    failed(3, 3.0, Outcome.BROKEN, first_event_s=3.1, first_token_s=3.1, last_token_s=3.1, ended_s=3.2),
]  # fmt: skip


def scenario(**load: Any) -> dict[str, Any]:
    load = {"arrivals": {"kind": "poisson", "rate": 1}, "num_requests": 4} | load
    asked = {
        "target": {"base_url": "http://127.0.0.1:1"},
        "load": load,
        "goodput": {"ttft": "150ms", "tpot": "1s"},
    }
    return Scenario.model_validate(asked).as_asked()


def of(run: Run) -> dict[str, Any]:
    return vllm_result(run, summarize(run))


def test_its_definitions_and_ours_differ_where_they_should() -> None:
    """From start instead of due, to the first event instead of the first token, chunks instead of tokens."""
    run = run_of(ROWS, scenario=scenario(), model="m", window_by="count", window_end_s=3.0)
    theirs, ours = vllm_result(run, summarize(run)), summarize(run).metrics
    assert theirs["mean_ttft_ms"] == pytest.approx((100 + 200 + 300) / 3)
    assert ours["ttft_s"].mean == pytest.approx((0.7 + 0.2 + 0.3) / 3)
    assert theirs["mean_e2el_ms"] == pytest.approx((300 + 200 + 460) / 3)
    assert ours["e2e_s"].mean == pytest.approx((0.8 + 0.2 + 0.46) / 3)
    assert theirs["mean_tpot_ms"] == pytest.approx((200 / 2 + 160 / 4) / 2)
    assert ours["tpot_s"].mean == pytest.approx((0.1 / 2 + 0.16 / 4) / 2)
    assert theirs["mean_itl_ms"] == pytest.approx((100 + 100 + 4 * 40) / 6)
    assert ours["itl_s"].mean == pytest.approx((2 * 0.05 + 4 * 0.04) / 6)
    assert ours["chunk_gap_s"].mean == pytest.approx((0.1 + 4 * 0.04) / 5)


def test_only_events_with_choices_count_for_it() -> None:
    """Opener 50 ms, role 100 ms, tokens 400 and 500 ms, finish chunk 530 ms, usage 600 ms after the start."""
    row = ok(0, 0.0, started_s=0.1, sent_s=0.1, headers_s=0.12, first_event_s=0.15, first_choice_s=0.2,
             ttft_s=0.5, gaps_us=[100_000], last_choice_s=0.63, ended_s=0.7)  # fmt: skip
    result = of(run_of([row], window_by="burst"))
    found = {key: result[f"{key}_ms"] for key in ("mean_ttft", "mean_e2el", "mean_tpot", "median_itl")}
    assert found == pytest.approx(
        {"mean_ttft": 100, "mean_e2el": 530, "mean_tpot": (530 - 100) / (2 - 1), "median_itl": 100}
    )
    assert result["mean_itl_ms"] == pytest.approx((300 + 100 + 30) / 3)


def test_an_answer_of_choices_without_a_token_has_its_times() -> None:
    """A role chunk and a finish chunk: TTFT and E2EL as of any other; without tokens there is no TPOT."""
    none = dict.fromkeys(("first_token_s", "first_visible_s", "last_token_s", "event_tokens"))
    row = ok(
        0, ttft_s=0.1, gaps_us=[], first_choice_s=0.1, last_choice_s=0.3, ended_s=0.3, output_tokens=0, **none
    )
    result = of(run_of([row], window_by="burst"))
    assert (result["mean_ttft_ms"], result["mean_e2el_ms"]) == (100, 300)
    assert result["mean_tpot_ms"] is None


def test_what_is_not_computed_is_null() -> None:
    """Scripts that look keys up find all of them."""
    result = of(run_of(ROWS))
    assert (result["max_output_tokens_per_s"], result["rtfx"]) == (None, None)


def test_its_counts_and_throughputs() -> None:
    """Three of four completed; 9 output tokens over the 4 s until the last one ended, drain included."""
    result = of(run_of(ROWS, scenario=scenario(), model="m", window_by="count", window_end_s=3.0))
    expected = {
        "endpoint_type": "/v1/chat/completions", "backend": "openai-chat", "model_id": "m", "num_prompts": 4,
        "request_rate": 1.0, "burstiness": 1.0, "max_concurrency": None, "duration": 4.0, "completed": 3,
        "failed": 1, "total_input_tokens": 60, "total_output_tokens": 9, "request_throughput": 0.75,
        "request_goodput": 0.25, "output_throughput": 2.25, "total_token_throughput": 17.25,
        "max_concurrent_requests": 2,
        "median_ttft_ms": 200.0, "std_ttft_ms": pytest.approx(81.6497), "p99_ttft_ms": pytest.approx(298.0),
    }  # fmt: skip
    assert {key: result[key] for key in expected} == expected


def test_its_duration_leaves_the_warm_up_out() -> None:
    """From the window's start at 10 s to the last end at 14 s are 4 s: two requests in them are 0.5/s."""
    rows = [
        ok(0, 0.0, phase="warmup"),
        ok(1, 10.0, ttft_s=1.0, gaps_us=[]),
        ok(2, 12.0, ttft_s=2.0, gaps_us=[]),
    ]
    result = of(run_of(rows, window_by="count", window_start_s=10.0, window_end_s=12.0))
    assert (result["duration"], result["request_throughput"]) == (4.0, 0.5)


@pytest.mark.parametrize(
    ("load", "rate", "burstiness"),
    [
        ({"arrivals": {"kind": "burst"}}, "inf", None),
        ({"arrivals": {"kind": "constant", "rate": 2}}, 2.0, "inf"),
        ({"arrivals": {"kind": "gamma", "rate": "3/s", "burstiness": 0.5}}, 3.0, 0.5),
    ],
)
def test_arrivals_in_its_words(
    load: dict[str, Any], rate: float | str, burstiness: float | str | None
) -> None:
    """A burst's rate is the text "inf", as scripts expect; constant gaps are infinitely smooth."""
    result = of(run_of(ROWS, scenario=scenario(**load), window_by="burst" if rate == "inf" else "count"))
    assert (result["request_rate"], result["burstiness"]) == (rate, burstiness)


def test_a_ramp_in_its_words() -> None:
    """Its keys of a ramp are there only then; it leaves the rate at infinity."""
    ramp = {"arrivals": {"kind": "ramp", "from": "1/s", "to": "4/s", "over": "10s"}}
    result = of(run_of(ROWS, scenario=scenario(**ramp)))
    found = {key: value for key, value in result.items() if "ramp" in key or "rate" in key}
    ends = {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1.0, "ramp_up_end_rps": 4.0}
    assert found == {"request_rate": "inf"} | ends


def test_waits_for_a_place_have_their_own_keys() -> None:
    """Two requests due at 0 with room for one: the second waits 130 ms, then takes as long itself."""
    rows = [ok(0, 0.0), ok(1, 0.0, slot_s=0.13, started_s=0.13, sent_s=0.13, ttft_s=0.23)]
    result = of(run_of(rows, scenario=scenario(max_concurrency=1)))
    assert result["mean_client_queue_time_ms"] == pytest.approx((0 + 130) / 2)
    assert result["mean_e2el_including_client_queue_ms"] == pytest.approx((130 + 260) / 2)
    assert result["mean_e2el_ms"] == pytest.approx(130)
    assert not [key for key in of(run_of(rows, scenario=scenario())) if "queue" in key]


def test_without_an_answer_its_times_are_null() -> None:
    """Zeros would read as a very fast server."""
    result = of(run_of([failed(0)], scenario=scenario()))
    assert (result["completed"], result["failed"], result["request_throughput"]) == (0, 1, 0.0)
    assert {v for k, v in result.items() if k.endswith("_ms")} == {None}
    assert of(run_of([]))["request_throughput"] is None


def test_the_bundled_engine_is_asked_for_chat() -> None:
    """Without a target the endpoint is the one that the load goes to, not an unknown one."""
    result = of(run_of(ROWS, scenario={"target": None}))
    assert (result["endpoint_type"], result["backend"]) == ("/v1/chat/completions", "openai-chat")


def test_the_busiest_second_of_years_is_found_without_a_place_for_each() -> None:
    """Three touch the first second, two a second of the hundredth year."""
    year_s = 31_536_000.0
    began = np.array([0.0, 0.2, 0.9, 100 * year_s, 100 * year_s + 0.5])
    assert _busiest_second(began, began + 0.05) == 3


def test_its_reader_can_tell_a_run_that_is_not_to_be_trusted() -> None:
    """By the names of the findings that say so; none of a run that is."""
    assert of(run_of(ROWS))["loadgen_invalid"] == []
    assert of(run_of(ROWS, complete=False))["loadgen_invalid"] == ["incomplete"]
