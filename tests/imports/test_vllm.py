"""Results of vLLM's serving benchmark as runs. `chat.json` and `completions.json` are what vLLM 0.32 wrote of
runs against its own server, less the texts of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadgen.imports.vllm import bring_in
from loadgen.records import OUTCOMES, Outcome
from loadgen.run import Run
from loadgen.scenario import ScenarioError
from loadgen.stats import summarize, vllm_result
from loadgen.stats.vllm import with_requests
from tests.records import failed, ok, run_of

HERE = Path(__file__).parent
RESULT: dict[str, Any] = {
    "backend": "openai",
    "model_id": "m",
    "date": "20260102-030405",
    "request_rate": 2.0,
    "burstiness": 1.0,
    "max_concurrency": None,
    "input_lens": [10, 20, 30],
    "output_lens": [3, 2, 0],
    "ttfts": [0.1, 0.2, 0.0],
    "itls": [[0.01, 0.02], [0.03, 0.04, 0.05], []],
    "errors": ["", "", "Not Found"],
    "start_times": [100.0, 100.5, 101.5],
    "generated_texts": ["a", "b", ""],
}

Import = Callable[..., Run]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Import RESULT with changes."""

    def make(slos: tuple[str, ...] = (), **changes: Any) -> Run:
        path = tmp_path / "result.json"
        path.write_text(json.dumps(RESULT | changes))
        return bring_in(path, tmp_path / "run", slos=slos)[0]

    return make


def test_what_no_number_of_requests_would_mend_is_said_in_place_of_a_number(imported: Import) -> None:
    """Measured again it would be UNRESOLVED again."""
    slo = summarize(imported(slos=("p50(ttft) <= 10s",), errors=["", "", ""], ttfts=[0.1] * 3)).slos[0]
    assert slo.verdict == "UNRESOLVED"
    assert slo.n_to_decide is None
    assert "nothing tells whether the client kept up" in slo.reason


@pytest.mark.parametrize("name", ["chat", "completions"])
def test_its_own_figures_come_out_again(name: str, tmp_path: Path) -> None:
    """By vLLM's definitions, the imported run has the figures that vLLM printed beside the requests."""
    run, folder = bring_in(HERE / f"{name}.json", tmp_path / "run")
    theirs, again = json.loads((HERE / f"{name}.json").read_text()), vllm_result(run, summarize(run))
    for metric in ("ttft", "tpot", "itl"):
        for stat in ("mean", "median", "std", "p99"):
            key = f"{stat}_{metric}_ms"
            assert again[key] == pytest.approx(theirs[key], abs=0.002), key  # of whole microseconds
    same = ("completed", "failed", "total_input_tokens", "total_output_tokens", "max_concurrent_requests")
    assert {key: again[key] for key in same} == {key: theirs[key] for key in same}
    assert folder == tmp_path / "run"


def test_a_request_is_what_the_file_says_of_it(imported: Import) -> None:
    """Instants count from the first start; where events are not as many as tokens, theirs are unknown."""
    r = imported().records
    assert r.due_s.tolist() == r.started_s.tolist() == [0.0, 0.5, 1.5]
    assert r.first_token_s[:2].tolist() == [0.1, 0.7]
    assert r.last_token_s[:2].tolist() == pytest.approx([0.13, 0.82])
    assert r.gaps_us.tolist() == [10_000, 20_000, 30_000, 40_000, 50_000]
    assert r.per_event.tolist() == [1, 0, 0]
    assert r.received_tokens[:2].tolist() == [3, 2]
    assert OUTCOMES[r.outcome[2]] is Outcome.HTTP_ERROR
    assert r.status[2] == 404
    assert np.isnan(r.sent_s).all()
    assert np.isnan(r.ended_s[2])


@pytest.mark.parametrize(
    ("error", "ttft_s", "outcome"),
    [
        ("Service Unavailable", 0.0, Outcome.REJECTED),
        ("Too Many Requests", 0.0, Outcome.REJECTED),
        ("HTTP 503: busy", 0.0, Outcome.REJECTED),
        ("Internal Server Error", 0.0, Outcome.HTTP_ERROR),
        ("", 0.0, Outcome.HTTP_ERROR),
        ("Service Unavailable", 0.1, Outcome.STREAM_ERROR),
        ('{"message": "out of memory"}', 0.1, Outcome.STREAM_ERROR),
        ("Traceback (most recent call last):\n ...\nTimeoutError\n", 0.0, Outcome.TIMEOUT_TOTAL),
        ("Traceback:\naiohttp.client_exceptions.ServerDisconnectedError: gone", 0.1, Outcome.BROKEN),
        ("a\naiohttp.client_exceptions.ClientConnectorError: no", 0.0, Outcome.CONNECT_ERROR),
        ("a\njson.decoder.JSONDecodeError: Expecting value: line 1", 0.0, Outcome.MALFORMED),
        ("Never received a valid chunk to calculate TTFT.This response will ...", 0.0, Outcome.EMPTY),
    ],
)
def test_failures_are_told_apart_by_their_words(
    imported: Import, error: str, ttft_s: float, outcome: Outcome
) -> None:
    """A status in words, the end of a traceback, or neither; a refusal only before the first token."""
    run = imported(errors=["", "", error], ttfts=[0.1, 0.2, ttft_s])
    assert OUTCOMES[run.records.outcome[2]] is outcome


def test_under_a_cap_it_is_due_when_it_asked_for_a_place(imported: Import) -> None:
    """The wait for a place counts, and the run is a partly closed loop."""
    run = imported(max_concurrency=2, queue_times=[0.0, 0.0001, 0.7])
    assert run.records.due_s.tolist() == pytest.approx([0.0, 0.4999, 0.8])
    assert run.records.slot_s[2] == 1.5
    summary = summarize(run)
    assert (summary.partly_closed_loop, summary.held_back) == (True, 1)


def test_nothing_is_said_of_how_late_the_client_was(imported: Import) -> None:
    """No send lag, no certificate; a warning instead, and the source on the run."""
    run = imported()
    summary = summarize(run)
    assert summary.metrics["send_lag_s"].n == 0
    assert summary.certificate is None
    assert [f.effect for f in summary.findings if f.name == "due_unknown"] == ["warning"]
    assert run.header.source == "imported"


def test_no_latency_passes_and_what_fails_fails(imported: Import) -> None:
    """1,000 fast answers pass a measured run's SLO; imported they leave it open, though a FAIL stands."""
    n = 1000
    slos = ("p90(ttft) <= 1s", "p90(ttft) <= 10ms", "rejection_rate <= 10%", "output_tokens_per_s >= 1")
    run = imported(
        slos,
        input_lens=[10] * n,
        output_lens=[3] * n,
        ttfts=[0.1] * n,
        itls=[[0.01, 0.02]] * n,
        errors=[""] * n,
        start_times=[i * 0.5 for i in range(n)],
    )
    assert [result.verdict for result in summarize(run).slos] == [
        *("UNRESOLVED", "FAIL", "UNRESOLVED"),
        "PASS",  # a late client could only have lowered it
    ]


@pytest.mark.parametrize(
    ("changes", "law", "by"),
    [
        ({}, {"kind": "poisson"}, "count"),
        ({"burstiness": 0.5}, {"kind": "gamma", "burstiness": 0.5}, "count"),
        ({"burstiness": float("inf")}, {"kind": "constant"}, "count"),
        ({"request_rate": "inf", "start_times": [1.0, 1.01, 1.02]}, {"kind": "burst"}, "burst"),
        ({"request_rate": "inf"}, None, "count"),  # a trace with instants of its own
        ({"ramp_up_strategy": "linear", "request_rate": "inf"}, None, "count"),
    ],
)
def test_the_law_is_the_one_that_was_asked_for(
    imported: Import, changes: dict[str, Any], law: dict[str, Any] | None, by: str
) -> None:
    """Where the file does not tell it, the requests are written out one by one."""
    run = imported(**changes)
    assert run.header.window_by == by
    asked = run.asked("load", "arrivals")
    if law is None:
        assert asked is None
        assert len(run.asked("load", "requests")) == 3
    else:
        assert law.items() <= asked.items()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ttfts": None}, "has no ttfts, so no single request: run vLLM's benchmark with --save-result"),
        ({"start_times": None}, "has no start_times"),
        ({"errors": ["", ""]}, "not of one length: 3 start_times, 3 queue_times, 3 ttfts, 3 itls"),
        ({"ttfts": [0.1, -0.2, 0.0]}, "ttfts[1] is -0.2: it must be from 0"),
        ({"ttfts": [0.1, float("nan"), 0.0]}, "ttfts[1] is nan"),
        ({"itls": [[0.01, float("inf")], [], []]}, "itls[0][1] is inf"),
        ({"itls": [[0.01, 5000.0], [], []]}, "itls[0][1] is 5000.0"),
        ({"input_lens": [1, -2, 3]}, "input_lens[1] is -2"),
        ({"output_lens": ["3", 2, 0]}, "not a result of vLLM's serving benchmark"),
        ({"start_times": [1.0, 2.0, "x"]}, "not a result of vLLM's serving benchmark"),
        ({key: [] for key in RESULT if isinstance(RESULT[key], list)}, "holds no request"),
    ],
)
def test_what_cannot_be_is_one_line(imported: Import, changes: dict[str, Any], said: str) -> None:
    """That says where, and what to do."""
    with pytest.raises(ScenarioError) as told:
        imported(**changes)
    assert said in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not the JSON of one result"),
        (json.dumps(RESULT).encode()[:-20], "not the JSON of one result"),
        (b"[1, 2]", "not a result of vLLM's serving benchmark"),
        (b"\xff\xfe", "not the JSON of one result"),
        (b'{"x": ' * 100_000, "not the JSON of one result"),
        (2 * (json.dumps(RESULT).encode() + b"\n"), "holds several results (--append-result)"),
    ],
    ids=["empty", "cut", "list", "bytes", "deep", "several"],
)
def test_a_broken_file_is_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    """However it is broken."""
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(ScenarioError) as told:
        bring_in(path, tmp_path / "run")
    assert said in str(told.value)
    assert not (tmp_path / "run").exists()


def test_our_own_result_comes_back_the_same(tmp_path: Path) -> None:
    """What a run exports for vLLM's users, imported again, has the same latencies, tokens and failures."""
    rows = [
        ok(
            0, 0.0, started_s=0.2, first_event_s=0.25, first_choice_s=0.25, ttft_s=0.3, gaps_us=[9_000, 8_000]
        ),
        ok(1, 1.0, ttft_s=0.2, gaps_us=[70_000], event_tokens=[1, 2], output_tokens=3),
        failed(2, 1.5, Outcome.REJECTED, status=503, error='{"error": "busy"}'),
        failed(3, 2.0, Outcome.HTTP_ERROR, status=404),
    ]
    mine = run_of(rows, window_by="count", window_end_s=2.0)
    path = tmp_path / "run.vllm.json"
    path.write_text(json.dumps(with_requests(mine, summarize(mine))))
    again, _ = bring_in(path, tmp_path / "again")
    assert again.records.outcome.tolist() == mine.records.outcome.tolist()
    first, second = (vllm_result(run, summarize(run)) for run in (mine, again))
    for key in first:
        if key.endswith(("_ms", "_tokens", "completed", "failed")):
            assert second[key] == pytest.approx(first[key], abs=1e-6), key


def test_it_compares_with_a_measured_run_from_the_start(imported: Import) -> None:
    """A measured run that was sent 0.4 s late is as fast, from the start, as the imported one; and no winner
    is named, as nothing tells that both had one load."""
    from loadgen.compare import compare

    mine = run_of([ok(i, i * 0.5, started_s=i * 0.5 + 0.4, ttft_s=0.5) for i in range(3)])
    theirs = imported(errors=[""] * 3, ttfts=[0.1] * 3, output_lens=[3, 2, 1])
    summaries = {"mine": summarize(mine), "theirs": summarize(theirs)}
    found = compare(summaries, {"mine": "a", "theirs": "b"})
    [row] = [row for row in found.rows if row.key == "ttft_from_start_p50_s"]
    assert row.ratios["theirs"] == pytest.approx(1.0)
    assert found.winner is None
    assert any(note.startswith("Imported: theirs.") for note in found.notes)


def test_it_gates_from_the_start_and_only_unpaired(imported: Import) -> None:
    """As with a comparison; pairs need one plan, and an imported run has none."""
    from loadgen.gate import gate
    from loadgen.stats.sample import sample

    n = 60
    mine = run_of([ok(i, i * 0.5, started_s=i * 0.5 + 0.4, ttft_s=0.5) for i in range(n)], plan_digest="a")
    theirs = imported(
        input_lens=[16] * n,
        output_lens=[4] * n,
        ttfts=[0.1] * n,
        itls=[[0.01] * 3] * n,
        errors=[""] * n,
        start_times=[i * 0.5 for i in range(n)],
    )
    samples = [sample(run, summarize(run)) for run in (theirs, mine)]
    with pytest.raises(ScenarioError, match="is imported, and nothing tells its plan"):
        gate(samples[:1], samples[1:])
    found = gate(samples[:1], samples[1:], paired=False)
    [change] = [change for change in found.changes if change.label == "TTFT p50"]
    assert change.baseline == change.candidate == pytest.approx(0.1, rel=0.001)
    assert any(note.startswith("Imported, candidate") for note in found.notes)


CHAT: dict[str, Any] = {
    "backend": "openai-chat",
    "output_lens": [2, 3, 2],
    "errors": [""] * 3,
    "ttfts": [0.1] * 3,
    "itls": [[0.2, 0.01], [0.2, 0.01, 0.01], [0.2, 0.01]],  # n gaps of n tokens: the first to the first token
}


def test_a_role_alone_is_no_token(imported: Import) -> None:
    """On chat TTFT ends one event later than vLLM's; TPOT and gaps are of what bears tokens."""
    run = imported(**CHAT)
    r, found = run.records, summarize(run)
    assert r.first_choice_s[0] == pytest.approx(0.1)
    assert r.first_token_s[0] == pytest.approx(0.3)
    assert found.metrics["tpot_s"].max == pytest.approx(0.01)
    assert found.metrics["itl_s"].max == pytest.approx(0.01)
    [told] = [f.text for f in found.findings if f.name == "due_unknown"]
    assert "which event of a chat bore the first token" in told
    assert r.per_event.tolist() == [1, 1, 1]


def test_a_chat_without_an_event_for_the_role_keeps_its_first_token(imported: Import) -> None:
    """Where most answers have as many events as tokens, the first bears one, and so it is known."""
    run = imported(**CHAT | {"output_lens": [3, 4, 9]})
    assert run.records.first_token_s[0] == pytest.approx(0.1)
    assert run.header.first_token_known


def _many(n: int) -> dict[str, Any]:
    few = {key: CHAT[key][:1] * n for key in ("errors", "ttfts", "itls", "output_lens")}
    return few | {"input_lens": [16] * n, "start_times": [i * 0.5 for i in range(n)]}


@pytest.mark.parametrize("backend", ["openai-chat", "openai"])
def test_a_gate_says_nothing_of_tokens_that_are_guessed(imported: Import, backend: str) -> None:
    """On chat a server that is as fast as may be, or slow, neither passes nor fails in what hangs on them."""
    from loadgen.gate import gate
    from loadgen.stats.sample import sample

    n = 60
    mine = run_of([ok(i, i * 0.5, ttft_s=0.1, gaps_us=[200_000, 10_000]) for i in range(n)])
    theirs = imported(backend=backend, **_many(n))
    samples = [sample(run, summarize(run)) for run in (mine, theirs)]
    found = gate(samples[:1], samples[1:], paired=False, noise=0.01)
    verdicts = {change.metric: change.verdict for change in found.changes}
    guessed = {verdicts[name] for name in ("ttft_p50", "tpot_mean")}
    assert guessed == {"UNRESOLVED"} if backend == "openai-chat" else "UNRESOLVED" not in guessed


def test_a_baseline_file_that_counts_from_due_is_not_compared_with_it(imported: Import) -> None:
    """It does not keep when requests were started, so TTFT and E2E are open, and the rest is judged."""
    from dataclasses import replace

    from loadgen.gate import gate
    from loadgen.stats.sample import sample

    n = 60
    mine = run_of([ok(i, i * 0.5, ttft_s=0.1, gaps_us=[200_000, 10_000]) for i in range(n)])
    theirs = imported(**_many(n) | {"output_lens": [3] * n})
    kept = replace(sample(mine, summarize(mine)), lag_s=None)
    found = gate([sample(theirs, summarize(theirs))], [kept], paired=False, noise=0.01)
    verdicts = {change.metric: (change.verdict, change.reason) for change in found.changes}
    assert verdicts["ttft_p50"] == verdicts["e2e_mean"]
    assert verdicts["e2e_mean"][0] == "UNRESOLVED"
    assert "counts from due in some of the runs" in verdicts["e2e_mean"][1]
    assert verdicts["tpot_mean"][0] == "PASS"


def test_what_the_file_is_silent_of_is_not_made_up(imported: Import) -> None:
    """No seed, not in words, and not as a difference; lengths in words a reader can use."""
    from loadgen.compare import compare
    from loadgen.gate import gate
    from loadgen.stats.sample import sample

    theirs = imported()
    asked = summarize(theirs).asked
    assert "seed" not in asked
    assert "prompt 10 to 30 as in the file" in asked
    load = {**theirs.header.scenario["load"], "prompt_tokens": {"kind": "fixed", "tokens": 64}}
    mine = run_of([ok(i, i * 0.5) for i in range(3)], scenario={"load": load, "seed": 1})
    summaries = {"mine": summarize(mine), "theirs": summarize(theirs)}
    found = gate(
        [sample(theirs, summaries["theirs"])], [sample(mine, summaries["mine"])], paired=False, noise=0.1
    )
    assert [note for note in found.notes if note.startswith("other settings")] == [
        "other settings: load.prompt_tokens: 64, then 10 to 30 as in the file."
    ]
    scenarios = {"mine": mine.header.scenario, "theirs": theirs.header.scenario}
    differs = compare(summaries, {"mine": "a", "theirs": "b"}, scenarios).variants["mine"].differs
    assert differs["load.prompt_tokens"] == "64"
    assert "seed" not in differs


def test_only_a_file_of_some_size_is_read(tmp_path: Path) -> None:
    """A device that never ends is one line."""
    with pytest.raises(ScenarioError, match="/dev/zero: cannot be read: it is no regular file"):
        bring_in(Path("/dev/zero"), tmp_path / "run")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(ScenarioError, match="bytes, and a result has 1 GiB at most"):
        bring_in(huge, tmp_path / "run")
