"""What single requests measured, by hand counts on small runs."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.records import Outcome, RequestRecord
from loadgen.run import Run
from loadgen.stats.metrics import itl_is_assumed, metrics
from loadgen.stats.summary import Distribution
from tests.records import failed, ok, run_of


def of(*records: RequestRecord, **header: Any) -> dict[str, Distribution]:
    return metrics(run_of(records, **header))


def values(d: Distribution) -> tuple[int, int, float | None, float | None]:
    return d.n, d.offered, d.min, d.max


def test_latency_counts_from_due_however_late_the_client_sent() -> None:
    """Of four requests two are sent 250 and 160 ms late: the headline grows by it, the others do not."""
    rows = [
        ok(i, due_s, ttft_s=first - due_s, started_s=sent, sent_s=round(sent + 0.001, 6), gaps_us=[70_000])
        for i, (due_s, sent, first) in enumerate(
            [(0.0, 0.0, 0.08), (0.1, 0.1, 0.18), (0.2, 0.45, 0.53), (0.3, 0.46, 0.54)]
        )
    ]
    m = of(*rows)
    assert values(m["ttft_s"]) == (4, 4, 0.08, 0.33)
    assert values(m["ttft_from_start_s"]) == (4, 4, 0.08, 0.08)
    assert values(m["ttft_from_send_s"]) == (4, 4, 0.079, 0.079)
    assert values(m["e2e_s"]) == (4, 4, 0.15, 0.4)
    assert values(m["e2e_from_start_s"]) == (4, 4, 0.15, 0.15)
    assert m["send_lag_s"].quantiles["p50"] == pytest.approx(0.08)
    assert m["send_lag_s"].max == 0.25


def test_the_same_speed_in_larger_chunks_has_another_gap_and_the_same_itl() -> None:
    """40 tokens at 0.5 s each, singly or by eight: chunk gaps differ eightfold, TPOT by the first chunk."""
    single = of(ok(0, gaps_us=[500_000] * 39))
    eights = of(ok(0, gaps_us=[4_000_000] * 4, event_tokens=[8] * 5, output_tokens=40))
    assert single["chunk_gap_s"].mean == single["itl_s"].mean == single["tpot_s"].mean == 0.5
    assert eights["chunk_gap_s"].mean == 4.0
    assert (eights["itl_s"].n, eights["itl_s"].mean) == (32, 0.5)
    assert eights["tpot_s"].mean == pytest.approx(16 / 39)
    assert eights["tpot_adjusted_s"].mean == 0.5


def test_a_gap_is_shared_by_the_tokens_of_its_later_event() -> None:
    """Events of 1, 2 and 1 tokens at 0, 40 and 50 ms: ITLs 20, 20 and 10 ms."""
    m = of(ok(0, gaps_us=[40_000, 10_000], event_tokens=[1, 2, 1], output_tokens=4))
    assert m["itl_s"].n == 3
    assert m["itl_s"].quantiles["p50"] == 0.02
    assert m["itl_s"].mean == pytest.approx(0.05 / 3)
    assert values(m["longest_stall_s"]) == (1, 1, 0.04, 0.04)


def test_mixed_rows_pool_their_gaps() -> None:
    """Rows of single tokens and rows of listed ones lie side by side; rows between them disturb nothing."""
    m = of(
        ok(0, gaps_us=[7_000]),
        ok(1, gaps_us=[8_000], event_tokens=[5, 4], output_tokens=9),
        failed(2),
        ok(3, gaps_us=[], event_tokens=[3], output_tokens=3),
        ok(4, gaps_us=[30_000, 9_000], event_tokens=[1, 1, 3], output_tokens=5),
    )
    assert m["itl_s"].n == 1 + 4 + 1 + 3
    assert m["itl_s"].mean == pytest.approx((7 + 8 + 30 + 9) / 9e3)
    assert m["chunk_gap_s"].n == 4


def test_usage_counts_tokens_whatever_the_text_would_encode_to() -> None:
    """101 tokens by usage between 0.1 and 1.1 s: 10 ms each, though only seven events came."""
    m = of(ok(0, ttft_s=0.1, gaps_us=[200_000] * 5, event_tokens=None, output_tokens=101))
    assert m["tpot_s"].mean == pytest.approx(0.01)
    assert m["normalized_latency_s"].mean == pytest.approx(1.1 / 101)
    assert m["output_tokens"].mean == 101


def test_itl_is_unknown_where_usage_disagrees_with_events() -> None:
    """More tokens than events, none said which came in which: no ITL, nothing owed; the chunk gap stands."""
    m = of(ok(0, gaps_us=[5_000], event_tokens=None, output_tokens=7), failed(1, asked_output_tokens=4))
    assert values(m["itl_s"]) == (0, 0, None, None)
    assert values(m["tpot_adjusted_s"])[:2] == (0, 1)
    assert values(m["chunk_gap_s"])[:2] == (1, 5)


def test_without_any_usage_one_token_an_event_is_assumed_and_said() -> None:
    """A server that gives no usage at all still gets an ITL, marked as assumed."""
    run = run_of([ok(0, gaps_us=[5_000], event_tokens=None, tokens_from="events")])
    assert values(metrics(run)["itl_s"]) == (1, 1, 0.005, 0.005)
    assert itl_is_assumed(run.records)
    assert not itl_is_assumed(run_of([ok(0)]).records)


def test_an_event_that_says_it_has_no_token_leaves_its_row_without_itl() -> None:
    """Running usage that lags behind the text cannot place its tokens."""
    m = of(ok(0, gaps_us=[5_000, 5_000], event_tokens=[1, 0, 2]), ok(1, gaps_us=[6_000]))
    assert values(m["itl_s"]) == (1, 1, 0.006, 0.006)


def test_one_token_has_no_tpot_and_is_no_miss() -> None:
    """TPOT and stall leave the one-token answer out of what is offered; TTFT and E2E do not."""
    m = of(ok(0, gaps_us=[]), ok(1, gaps_us=[20_000]), failed(2))
    assert values(m["tpot_s"]) == (1, 2, 0.02, 0.02)
    assert values(m["longest_stall_s"])[:2] == (1, 2)
    assert values(m["ttft_s"])[:2] == (2, 3)


def test_an_answer_without_a_token_is_infinitely_late() -> None:
    """An ok answer with usage and no token is offered, and has no TTFT."""
    m = of(ok(0, first_token_s=None, first_visible_s=None, last_token_s=None, gaps_us=[], event_tokens=None,
              output_tokens=0))  # fmt: skip
    assert values(m["ttft_s"]) == (0, 1, None, None)
    assert m["ttft_s"].adjusted["p50"] is None
    assert values(m["tpot_s"])[:2] == (0, 0)


def test_failed_requests_leave_the_plain_figures_and_weigh_on_the_adjusted() -> None:
    """100, 110 and 120 ms beside failures of 5 ms and 30 s: their mean is 110 ms, p75 of all never."""
    rows = [ok(i, ttft_s=t, gaps_us=[]) for i, t in enumerate((0.1, 0.11, 0.12))]
    m = of(*rows, failed(3, ended_s=0.005), failed(4, outcome=Outcome.TIMEOUT_TOTAL, ended_s=30.0))
    assert m["e2e_s"].mean == pytest.approx(0.11)
    assert m["e2e_s"].quantiles["p99"] == pytest.approx(0.1198)
    assert (m["e2e_s"].adjusted["p50"], m["e2e_s"].adjusted["p75"]) == (0.12, None)


def test_refusing_does_not_improve_an_adjusted_percentile() -> None:
    """A server that refuses 40 of 100 is fast on the rest, yet its p75 is never."""
    takes = of(*(ok(i, ttft_s=0.04 * (i + 1), gaps_us=[]) for i in range(100)))["ttft_s"]
    rows = [ok(i, ttft_s=0.4, gaps_us=[]) for i in range(60)]
    refuses = of(*rows, *(failed(60 + i, outcome=Outcome.REJECTED) for i in range(40)))["ttft_s"]
    assert (takes.quantiles["p75"], refuses.quantiles["p75"]) == (pytest.approx(3.01), 0.4)
    assert (takes.adjusted["p75"], refuses.adjusted["p75"]) == (3.0, None)


def test_what_our_own_end_aborted_is_left_out() -> None:
    """An aborted request is neither a value nor a miss, nor does it owe gaps."""
    m = of(ok(0, gaps_us=[1_000]), failed(1, outcome=Outcome.ABORTED, first_token_s=0.1, last_token_s=0.1))
    assert m["ttft_s"].offered == 1
    assert m["chunk_gap_s"].offered == 1


def test_a_failed_request_owes_the_gaps_it_did_not_deliver() -> None:
    """Asked for 10 tokens, three came: seven infinite gaps beside the one of the good answer."""
    part = failed(1, outcome=Outcome.BROKEN, first_token_s=0.1, last_token_s=0.12, gaps_us=[10_000] * 2,
                  asked_output_tokens=10)  # fmt: skip
    m = of(ok(0, gaps_us=[1_000]), part)
    assert values(m["chunk_gap_s"]) == (1, 8, 0.001, 0.001)
    assert values(m["itl_s"]) == (1, 8, 0.001, 0.001)
    assert m["itl_s"].adjusted["p50"] is None


def test_only_measured_rows_count() -> None:
    """Warm-up and tail rows enter no latency."""
    m = of(ok(0, ttft_s=9.0, phase="warmup"), ok(1, ttft_s=0.1), ok(2, ttft_s=9.0, phase="tail"))
    assert values(m["ttft_s"]) == (1, 1, 0.1, 0.1)
    assert m["chunk_gap_s"].n == 3


def test_time_to_reject_ends_with_the_status_or_the_first_event_of_a_stream() -> None:
    """A 429 is known with its status line; an error as first event of a 200 stream, with that event."""
    m = of(
        failed(0, 1.0, Outcome.REJECTED, status=429, sent_s=1.001, headers_s=1.004),
        failed(1, 2.0, Outcome.REJECTED, status=200, headers_s=2.001, first_event_s=2.05),
        failed(2, 3.0, Outcome.HTTP_ERROR, status=500, headers_s=3.5),
    )
    assert values(m["time_to_reject_s"]) == (2, 2, 0.003, 0.05)


def test_connect_time_is_of_requests_that_opened_a_connection() -> None:
    """Reused connections have none."""
    m = of(ok(0, connect_s=0.002), ok(1, reused=True), failed(2, connect_s=0.004))
    assert values(m["connect_s"]) == (2, 2, 0.002, 0.004)


def test_waiting_for_a_place_is_cap_wait_and_what_comes_after_it_is_send_lag() -> None:
    """A row due at 1 s, its place free at 1.5, started at 1.75; another had to wait for none."""
    rows = [ok(0, 1.0, slot_s=1.5, started_s=1.75), ok(1, 1.75, started_s=2.0)]
    m = of(*rows, scenario={"load": {"max_concurrency": 8}})
    assert values(m["cap_wait_s"]) == (1, 1, 0.5, 0.5)
    assert values(m["send_lag_s"]) == (2, 2, 0.25, 0.25)


def test_a_visible_token_is_told_from_a_reasoning_one() -> None:
    """Reasoning first, answer 0.4 s later: both are shown."""
    m = of(ok(0, 1.0, ttft_s=0.1, first_visible_s=1.5))
    assert (m["ttft_s"].mean, m["ttft_visible_s"].mean) == (0.1, 0.5)


def test_differences_are_whole_microseconds() -> None:
    """4.4 - 3.9 is half a second, as written, and meets a limit of half a second."""
    assert 4.4 - 3.9 > 0.5
    assert of(ok(0, 3.9, ttft_s=0.5))["ttft_s"].max == 0.5


def test_an_empty_run_has_every_metric_and_no_value() -> None:
    """The keys never depend on the data."""
    empty: Run = run_of([])
    assert {d.n for d in metrics(empty).values()} == {0}
    assert set(metrics(empty)) == set(metrics(run_of([ok(0), failed(1)])))
