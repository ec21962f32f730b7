"""The whole Summary: one by hand, the same from a folder as from memory, and strict JSON for any run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from unittest.mock import ANY

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.health import Health
from loadgen.records import Outcome, RequestRecord
from loadgen.run_folder import RunWriter, load
from loadgen.stats import (
    Certificate,
    Distribution,
    Finding,
    Goodput,
    Summary,
    from_json,
    summarize,
    vllm_result,
)
from loadgen.stats.summary import Interval
from loadgen.strict_json import as_json
from tests.records import SCENARIO, failed, header, ok, run_of
from tests.test_run import any_record

# Window [1, 11) s; 4 tokens asked of each.
ROWS = [
    ok(0, 0.5, phase="warmup", ttft_s=0.25, gaps_us=[500_000] * 3),  # three of four tokens in the window
    ok(1, 1.0, ttft_s=0.1, gaps_us=[100_000] * 3, connect_s=0.001),
    ok(2, 2.0, ttft_s=0.3, gaps_us=[100_000, 300_000, 200_000], warnings=["odd_chunk"]),
    ok(3, 3.0, ttft_s=0.2, gaps_us=[50_000] * 3, started_s=3.001),
    ok(4, 4.0, ttft_s=0.1, gaps_us=[], asked_output_tokens=4),  # one token only
    failed(5, 5.0, Outcome.REJECTED, status=429, headers_s=5.004, ended_s=5.004, error="queue full"),
    failed(6, 6.0, Outcome.REJECTED, status=429, headers_s=6.002, ended_s=6.002, error="queue full"),
    failed(7, 7.0, Outcome.BROKEN, status=200, first_token_s=7.1, last_token_s=7.2, gaps_us=[100_000],
           ended_s=7.5),  # two tokens of four
    failed(8, 8.0, Outcome.TIMEOUT_FIRST_TOKEN, status=200, ended_s=9.0),
    ok(9, 9.0, ttft_s=0.4, gaps_us=[900_000, 100_000, 100_000]),  # tokens at 9.4, 10.3, 10.4, 10.5
    ok(10, 10.0, ttft_s=0.5, gaps_us=[400_000] * 3),  # tokens at 10.5, 10.9 and, past the window, 11.3, 11.7
    failed(11, 10.5, Outcome.ABORTED, ended_s=12.0),
    ok(12, 11.0, phase="tail", ttft_s=0.1, gaps_us=[]),
]  # fmt: skip
HEADER = {
    "window_start_s": 1.0,
    "window_end_s": 11.0,
    "model": "m",
    "scenario": SCENARIO | {"goodput": {"ttft": "200ms", "tpot": "100ms", "e2e": None}},
    "health": Health(loop_stall_p99_9_s=0.03, loop_stall_max_s=0.03, loop_probes=1000, reads=40),
}


def spread(
    offered: int, values: list[float], median: float, p75: float, **adjusted: float | None
) -> Distribution:
    """Hand-given: the sorted values, their plain median and p75, and the adjusted percentiles."""
    n, mean = len(values), math.fsum(values) / len(values)
    top, below = values[-1], values[-2]
    plain = {"p50": median, "p75": p75}
    for p in (90, 95, 99, 99.9):  # all between the last two values for fewer than ten of them
        plain[f"p{p}"] = below + (top - below) * ((n - 1) * p / 100 - (n - 2))
    return Distribution(
        n=n,
        offered=offered,
        mean=pytest.approx(mean),
        sd=pytest.approx(math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))),
        min=values[0],
        max=top,
        quantiles=pytest.approx(plain),  # type: ignore[arg-type]
        adjusted={"p50": None, "p75": None, "p90": None, "p95": None, "p99": None, "p99.9": None} | adjusted,
        intervals=dict.fromkeys(("mean", "p50", "p90", "p95", "p99"), Interval()),  # of fewer than forty
        bins=ANY,  # test_bins.py
    )


def test_a_whole_summary_by_hand() -> None:
    """Eleven measured rows, six of them ok, one aborted by our own end: ten offered."""
    summary = summarize(run_of(ROWS, **HEADER))
    metrics = summary.metrics
    assert metrics["ttft_s"] == spread(10, [0.1, 0.1, 0.2, 0.3, 0.4, 0.5], 0.25, 0.375, p50=0.4)
    assert metrics["e2e_s"] == spread(10, [0.1, 0.35, 0.4, 0.9, 1.5, 1.7], 0.65, 1.35, p50=1.5)
    assert metrics["tpot_s"] == spread(
        9, [0.05, 0.1, 0.2, 1.1 / 3, 0.4], 0.2, 1.1 / 3, p50=pytest.approx(0.4)
    )
    assert metrics["longest_stall_s"] == spread(9, [0.05, 0.1, 0.3, 0.4, 0.9], 0.3, 0.4, p50=0.9)
    assert (metrics["itl_s"].n, metrics["itl_s"].offered) == (15, 15 + 4 + 4 + 2 + 4)
    assert metrics["itl_s"] == metrics["chunk_gap_s"]
    assert metrics["send_lag_s"].offered == 11
    assert (metrics["connect_s"].n, metrics["connect_s"].mean) == (1, 0.001)
    assert (metrics["time_to_reject_s"].min, metrics["time_to_reject_s"].max) == (0.002, 0.004)
    expected = Summary(
        run_id="run-1",
        name="run",
        asked="1 requests written out",
        plan_digest="0" * 64,
        source="http",
        target="http://127.0.0.1:8000",
        model="m",
        complete=True,
        interrupted=False,
        window_start_s=1.0,
        window_end_s=11.0,
        window_by="duration",
        offered=10,
        outcomes={"ok": 6, "rejected": 2, "broken": 1, "timeout_first_token": 1, "aborted": 1},
        errors=[("queue full", 2), ("aborted", 1), ("broken", 1), ("timeout_first_token", 1)],
        statuses={"200": 8, "429": 2},
        warnings={"odd_chunk": 1},
        tokens_from={"usage": 6},
        itl_assumed=False,
        offered_rps=1.1,
        completed_rps=0.6,
        output_tokens_per_s=2.2,
        makespan_s=11.2,  # from the warm-up due at 0.5 to the end at 11.7
        makespan_output_tokens_per_s=pytest.approx((21 + 4 + 1) / 11.2),
        makespan_total_tokens_per_s=pytest.approx((26 + 8 * 16) / 11.2),
        wasted_tokens=2,
        rejection_rate=0.2,
        error_rate=0.2,
        error_rates={"broken": 0.1, "timeout_first_token": 0.1},
        in_flight_max=2,
        in_flight_mean=pytest.approx(0.7505),
        overloaded=None,
        metrics=metrics,
        goodput=Goodput(limits_s={"ttft": 0.2, "tpot": 0.1}, good=3, attainment=0.3, rps=pytest.approx(0.3)),
        partly_closed_loop=False,
        max_concurrency=None,
        held_back=None,
        findings=[
            Finding(
                name="loop_stall",
                effect="invalid",
                text="the client's event loop stalled 30ms (p99.9); the limit is 20ms",
                remedy="close other work on this machine, give the client more cores, or lower the rate",
            )
        ],
        validity="INVALID",
        itl_valid=False,
        rows_seen={"warmup": 1, "measured": 11, "tail": 1},
        certificate=Certificate(
            verdict="not tested",
            text="not tested: rows written out have no law; 100.0% of 11 requests started within 9.5ms of "
            "due (p99 900us, most 1ms late)",
            sent=11,
            on_time=1.0,
            tolerance_s=pytest.approx(0.0095),  # a hundredth of 9.5 s / 10
            lag_p99_s=pytest.approx(0.0009),
            lag_max_s=pytest.approx(0.001),
            p_values={},
            p=None,
        ),
        intervals={  # Clopper and Pearson's of 2 and 3 in 10; from no request on, where from less than one
            name: Interval(low=0.0, high=pytest.approx(high, abs=1e-4), decided=True)
            for name, high in (("rejection_rate", 0.5561), ("error_rate", 0.5561), ("attainment", 0.6525))
        },
    )
    for field in Summary.__struct_fields__:
        assert getattr(summary, field) == getattr(expected, field), field


def test_a_summary_is_the_same_from_a_folder_as_from_memory(tmp_path: Path) -> None:
    """Nothing a summary needs is left out of the folder."""
    with RunWriter(tmp_path / "run") as writer:
        writer.write_header(header(rows_due=len(ROWS), plan_rows=len(ROWS), **HEADER))
        for row in ROWS:
            writer.append(row)
    assert summarize(load(tmp_path / "run")) == summarize(run_of(ROWS, **HEADER))


def test_no_figure_depends_on_the_source() -> None:
    """The same records mean the same from a socket or from virtual time, but for the word itself."""
    http, virtual = (
        as_json(summarize(run_of(ROWS, source=source, **HEADER))) for source in ("http", "virtual")
    )
    assert virtual == http.replace(b'"source": "http"', b'"source": "virtual"')


def test_an_interrupted_runs_window_is_the_part_that_was_used() -> None:
    """Planned [1, 11) s and cut at the last due, 6 s: rates and the words about them are over [1, 6) s."""
    summary = summarize(run_of([ok(i, i + 1.0) for i in range(6)], **HEADER | {"interrupted": True}))
    assert (summary.window_start_s, summary.window_end_s) == (1.0, 6.0)
    whole = summarize(run_of([ok(i, i + 1.0) for i in range(6)], **HEADER))
    assert (whole.window_start_s, whole.window_end_s) == (1.0, 11.0)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ('{"error": {"message": "queue full", "type": "x", "code": 429}}', "queue full"),
        ('{"object": "error", "message": "too long", "code": 400}', "too long"),
        ('{"error": "model not found"}', "model not found"),
        ('{"detail": "Not Found"}', '{"detail": "Not Found"}'),
        ('{"error": {"mess', '{"error": {"mess'),
        ("[Errno 111] Connection refused", "Connection refused"),
        ("plain words", "plain words"),
        ("half \ud800 a pair", "half \ud800 a pair"),
    ],
)
def test_errors_are_in_the_servers_words(error: str, said: str) -> None:
    """The message of an error body rather than its JSON; anything else as it came, without errno."""
    assert summarize(run_of([failed(0, error=error)])).errors == [(said, 1)]


def test_bodies_with_one_message_are_one_error() -> None:
    """Request ids beside the message part nothing."""
    rows = [failed(i, error=f'{{"error": {{"message": "full", "request": {i}}}}}') for i in range(3)]
    assert summarize(run_of(rows)).errors == [("full", 3)]


def test_tokens_of_what_we_aborted_ourselves_are_not_wasted() -> None:
    """The two tokens of a broken answer are waste; the three of one that our own end cut are not."""
    broken = failed(0, 0.0, Outcome.BROKEN, first_token_s=0.1, last_token_s=0.2, gaps_us=[100_000])
    aborted = failed(1, 1.0, Outcome.ABORTED, first_token_s=1.1, last_token_s=1.3, gaps_us=[100_000] * 2)
    assert summarize(run_of([broken, aborted, ok(2, 2.0)])).wasted_tokens == 2


EVERY_SLO = [
    *(
        "p99(ttft) <= 1s",
        "p50(itl) <= 9ms",
        "mean(tpot) <= 1s",
        "mean(itl) <= 9ms",
        "max(longest_stall) <= 1s",
    ),
    *("share(ttft <= 1s, tpot <= 9ms) >= 90%", "rejection_rate <= 1%", "error_rate <= 0%", "goodput >= 1/s"),
    "output_tokens_per_s >= 1",
]
EDGES = {
    "no rows": [],
    "one row": [ok(0)],
    "one row without a token": [ok(0, first_token_s=None, last_token_s=None, gaps_us=[], event_tokens=None)],
    "all aborted": [failed(i, i / 10, Outcome.ABORTED) for i in range(60)],
    "all aborted at the end": [failed(i, i / 10, Outcome.ABORTED, ended_s=12.0) for i in range(60)],
    "none ok": [failed(i, i / 10) for i in range(60)],
    "all at one instant": [ok(i, 1.0) for i in range(60)],
    "all at one far instant": [ok(i, 4e9) for i in range(60)],
    "only tail": [ok(i, i / 10, phase="tail") for i in range(60)],
    "never started": [failed(i, i / 10, Outcome.BROKEN, started_s=None, ended_s=None) for i in range(60)],
    "no tokens by usage": [ok(i, i / 10, output_tokens=0) for i in range(60)],
}


@pytest.mark.parametrize("by", ["duration", "count", "burst"])
@pytest.mark.parametrize("rows", EDGES.values(), ids=EDGES)
@pytest.mark.filterwarnings("error")
def test_a_run_at_the_edge_has_a_summary_without_a_warning(rows: list[RequestRecord], by: str) -> None:
    """Nothing offered, nothing ok, one instant for all: figures or None, no division by nothing."""
    asked = {"load": {"arrivals": {"kind": "poisson", "rate": "5/s"}, "max_concurrency": 2}}
    asked |= {"goodput": {"ttft": "1s", "tpot": "1s", "e2e": "1s"}, "slos": EVERY_SLO}
    for scenario in (asked, {}):
        run = run_of(rows, window_by=by, scenario=scenario, health=Health())
        summary = summarize(run)
        assert from_json(as_json(summary)) == summary
        json.dumps(vllm_result(run, summary), allow_nan=False)


def test_messages_are_grouped_cut_and_the_ten_most_frequent_kept() -> None:
    """A long error text is cut to 200 characters; twelve kinds leave ten."""
    rows = [failed(i, error=f"{'x' * 250}") for i in range(3)]
    rows += [failed(10 + i, error=f"kind {i}") for i in range(12)]
    errors = summarize(run_of(rows)).errors
    assert errors[0] == ("x" * 200, 3)
    assert len(errors) == 10


def test_a_summary_reads_back_from_its_json() -> None:
    """summary.json holds everything."""
    summary = summarize(run_of(ROWS, **HEADER))
    assert from_json(as_json(summary)) == summary


@given(st.lists(any_record(), max_size=12), st.sampled_from(["duration", "count", "burst"]), st.booleans())
@settings(deadline=None)
def test_any_run_has_a_summary_in_strict_json(records: list[RequestRecord], by: str, is_cut: bool) -> None:
    """Whatever happened, including nothing, there is no NaN, no infinity, no warning; shares are shares."""
    asked = {"load": {"arrivals": {"kind": "poisson", "rate": "5/s"}}, "goodput": {"ttft": "1s"}}
    asked |= {"slos": EVERY_SLO}
    run = run_of(records, window_by=by, interrupted=is_cut, scenario=asked, health=Health())
    summary = summarize(run)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(as_json(summary), parse_constant=refuse)
    json.dumps(vllm_result(run, summary), allow_nan=False)
    measured = sum(r.phase == "measured" for r in records)
    assert sum(summary.outcomes.values()) == measured == summary.offered + summary.outcomes.get("aborted", 0)
    if summary.offered:
        assert summary.rejection_rate is not None
        assert summary.error_rate is not None
        good = summary.outcomes.get("ok", 0) / summary.offered
        assert good + summary.rejection_rate + summary.error_rate == pytest.approx(1)
