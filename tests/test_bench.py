"""The benchmarks can still be run, and their arithmetic is right."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.records import Records
from tests.bench import ceiling, cells, fidelity, memory, pages, startup, virtual
from tests.bench.measured import Figures, off_truth
from tests.bench.options import Setup
from tests.bench.process import spend
from tests.bench.reference import read_dump
from tests.bench.search import highest
from tests.bench.server import Server, filled
from tests.bench.shot import Work, median, ratios
from tests.records import ok

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="it pins processes to cores")


def test_the_benchmark_of_virtual_time_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """A small one prints what it took and the machine's load."""
    virtual.steady(50)
    assert capsys.readouterr().out.count("us each") == 2


@ON_LINUX
def test_the_benchmark_of_served_time_has_scenarios_that_are_right() -> None:
    """Both load, and their plans can be drawn."""
    from loadgen.workload import draw
    from tests.bench import served

    assert [len(draw(served.scenario(batching))) > 50 for batching in ("continuous", "dynamic")] == [
        True,
        True,
    ]


LOG_HEAD = "xid,status,outcome,t_request_read,t_first_token,t_last_token,n_chunks,offsets_ns\n"


def off(folder: Path, *read_after_due_us: int) -> Figures:
    """Requests a second apart, due when sent, first tokens claimed after 100 ms and second ones 10 ms later.

    The server had read each so long after it was due, and wrote the tokens 50 and 30 us before the claim.
    """
    log, lines, records = folder / "truth.csv", [LOG_HEAD], []
    for i, late_us in enumerate(read_after_due_us):
        records.append(ok(i, float(i), gaps_us=[10_000]))
        read_us = 7_000_000 + i * 1_000_000 + late_us
        stamps_us = [100_000 - late_us - 50, 110_000 - late_us - 30]
        offsets = ";".join(str(1000 * stamp) for stamp in stamps_us)
        lines.append(f"r{i},200,ok,{1000 * read_us},0,0,2,{offsets}\n")
    log.write_text("".join(lines))
    return off_truth(Records.from_records(records), 7_000_000_000, log)


def test_what_is_off_is_the_claim_less_the_truth(tmp_path: Path) -> None:
    """Of an event, a request and a quantile, each in its unit; what delays the request counts in TTFT's."""
    found = off(tmp_path, 200, 200)
    assert (
        found
        | {
            "read_lag_p50_us": 40.0,  # half of the events 50, half 30
            "ttft_error_p50_us": 250.0,
            "gap_error_p99_us": 20.0,
            "arrival_p50_us": 200.0,
            "true_ttft_p50_ms": 99.75,
            "ttft_off_p50_ms": 0.25,
            "gap_off_p50_ms": -0.02,
            "rate_kept": 1.0,
            "arrived": 2,
            "arrivals_within_ms": 1000.0,
        }
        == found
    )


def test_a_rate_is_kept_as_far_as_the_arrivals_take_no_longer_than_planned(tmp_path: Path) -> None:
    """A second planned and 1.25 s at the server are four fifths of the rate; a burst has none to keep."""
    assert off(tmp_path, 0, 250_000)["rate_kept"] == 0.8
    assert off(tmp_path, 0)["rate_kept"] is None


def test_another_clients_stamps_become_records(tmp_path: Path) -> None:
    """Instants count from its first due one; a request that failed is none that was answered."""
    dump = tmp_path / "dump.csv"
    dump.write_text(
        "xid,t_sched,t_sent,ok,stamps_ns\na-0,5000000000,5000040000,1,5100000000;5110002000\na-1,6000000000,6000000000,0,\n"
    )
    records, origin_ns = read_dump(dump)
    assert origin_ns == 5_000_000_000
    assert records.request_id == ["a-0", "a-1"]
    assert records.answered.tolist() == [True, False]
    assert (records.due_s[1], records.sent_s[0], records.first_token_s[0]) == (1.0, 0.00004, 0.1)
    assert records.gaps_us.tolist() == [10_002]


@given(limit=st.floats(1, 2000), halvings=st.integers(0, 8))
def test_the_highest_rate_that_holds_is_found(limit: float, halvings: int) -> None:
    """It holds, and no more is missed than the last step of the halving; nothing is tried beyond the most."""
    tried: list[float] = []

    def holds(rate: float) -> bool:
        tried.append(rate)
        return rate <= limit

    found = highest(holds, 10, 1000, halvings)
    if limit < 10:
        assert found is None
    else:
        assert found is not None
        assert found <= limit
        assert found == 1000 or limit - found <= found / 2**halvings
    assert max(tried) <= 1000


def test_medians_and_ratios_are_of_numbers_that_all_have() -> None:
    """What is text or missing in a run has no median; ratios are of errors and costs alone."""
    runs: list[Figures] = [
        {"validity": "VALID", "cpu_s": cpu_s, "ok": 5, "read_lag_p50_us": lag}
        for cpu_s, lag in ((1.0, 3.0), (5.0, None), (2.0, 4.0))
    ]
    assert median(runs) == {"cpu_s": 2.0, "ok": 5}
    assert ratios({"cpu_s": 3.0, "ok": 5, "rss_mb": 1.0}, {"cpu_s": 2.0, "ok": 5}) == {"cpu_s": 1.5}


def test_a_command_keeps_braces_that_are_no_placeholder() -> None:
    """Only known names are filled in, within a word too."""
    assert filled("serve --at=:{port} '{a: 1}'", port=80) == ["serve", "--at=:80", "{a: 1}"]


@ON_LINUX
def test_a_process_is_told_its_own_memory_and_not_ours() -> None:
    """One that holds 60 MB and ends with 3 says so; a small one is small, however large its parent."""
    ballast = bytearray(b"1") * 60_000_000
    large = spend(
        [sys.executable, "-c", "held = bytearray(b'1') * 60_000_000; print('held'); raise SystemExit(3)"]
    )
    assert (large.code, large.out) == (3, "held\n")
    assert large.rss_mb > 60 > spend(["true"]).rss_mb
    assert len(ballast) == 60_000_000


def told_in_one_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (line,) = capsys.readouterr().out.splitlines()
    return dict(json.loads(line))


@pytest.fixture
def shots(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Work, Setup]]:
    """No process starts: a client that is VALID up to 12,000 events/s, and how it was called."""
    made: list[tuple[Work, Setup]] = []

    def shoot(work: Work, asked: Setup, seed: int) -> Figures:
        made.append((work, asked))
        is_valid = work.rps is None or work.rps * work.tokens <= 12_000
        return {"validity": "VALID" if is_valid else "INVALID", "because": "", "cpu_s": 1.0 + seed, "ok": 9}

    for bench in (fidelity, ceiling, cells):
        monkeypatch.setattr(bench, "shoot", shoot)
    return made


@ON_LINUX
def test_the_ladder_has_all_runs_of_each_rung_and_their_median(
    shots: list[tuple[Work, Setup]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rungs of three runs; the load lasts as long as asked; other flags are handed on."""
    fidelity.main(["--events", "1000", "20000", "--runs", "3", "--seconds", "2", "--", "--clock", "user"])
    rungs = told_in_one_line(capsys)["rungs"]
    assert [len(rung["runs"]) for rung in rungs] == [3, 3]
    assert [rung["median"] for rung in rungs] == [{"cpu_s": 3.0, "ok": 9}] * 2
    assert {(work.requests, work.rps) for work, _ in shots} == {(20, 10.0), (400, 200.0)}
    assert {asked.flags for _, asked in shots} == {("--clock", "user")}


@ON_LINUX
def test_the_ceiling_is_searched_by_events_and_by_requests(
    shots: list[tuple[Work, Setup]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A client that holds 12,000 events/s is found out within the step, with 100 tokens and with one."""
    ceiling.main(["--events", "1000", "64000", "--requests", "5000", "8000"])
    found = told_in_one_line(capsys)
    assert found["events"]["highest_per_s"] == 12_000
    assert found["requests"]["highest_per_s"] == 8_000
    assert set(found) >= set(ceiling.PARTS)
    assert any(asked.flags == ("--warm", "1000") for _, asked in shots)


@ON_LINUX
def test_the_cells_are_run_in_both_settings(
    shots: list[tuple[Work, Setup]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The server on core 0 always, the client on both or on core 1; only P7's server stalls."""
    cells.main(["--server", "serve {port}"])
    found = told_in_one_line(capsys)["cells"]
    assert [(cell["cell"], cell["setting"]) for cell in found] == [
        (c, s) for c in ("P4", "P5", "P7") for s in "AB"
    ]
    assert {asked.server.place.cpu for _, asked in shots} == {0}
    assert [asked.client.cpu for _, asked in shots] == [None, 1] * 3
    assert ["stall" in asked.server.command for _, asked in shots] == [False] * 4 + [True] * 2


@ON_LINUX
@pytest.mark.slow
def test_a_rung_against_the_pulse_server_says_how_far_off_we_are(capsys: pytest.CaptureFixture[str]) -> None:
    """One of our own servers and one loadgen run: every event joined, its lag not before it was written."""
    fidelity.main(["--events", "1000", "--seconds", "1"])
    (run,) = told_in_one_line(capsys)["rungs"][0]["runs"]
    assert (run["ok"], run["events"], run["unmatched"], run["miscounted"]) == (10, 1000, 0, 0)
    assert run["read_lag_p50_us"] > 0
    assert {
        "ttft_off_p99_ms",
        "arrival_p99_us",
        "gap_error_p99_us",
        "rss_mb",
        "cpu_s",
        "server_cpu_s",
    } <= set(run)


@ON_LINUX
@pytest.mark.slow
def test_a_rung_against_a_server_that_runs_already_leaves_out_what_needs_its_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The claims and the costs are there; nothing is said of the truth."""
    with Server().serving(tmp_path) as served:
        fidelity.main(["--url", served.url, "--events", "1000", "--seconds", "0.5"])
    (run,) = told_in_one_line(capsys)["rungs"][0]["runs"]
    assert run["ok"] == 5
    assert run["ttft_from_due_p50_ms"] > 50
    assert not [name for name in run if name.startswith(("true_", "read_lag", "arriv"))]


@ON_LINUX
@pytest.mark.slow
def test_the_memory_of_a_run_is_told_by_what_each_event_and_request_keeps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """4 bytes a gap, of which there is one less than events; the whole is a process with numpy in it."""
    memory.main(["--parts", "kept", "--requests", "5000", "--tokens", "40"])
    kept = told_in_one_line(capsys)["kept"]
    assert kept["held_bytes_per_event"] == 4 * 39 / 40
    assert 300 < kept["held_bytes_per_request"] < 5000  # of so few, most is what reading them needed
    assert 40 < kept["rss_mb"] < 200


@ON_LINUX
@pytest.mark.slow
def test_what_a_page_takes_is_a_row_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """One of a run and one of a comparison; a page holds its script, and is smaller than 1.5 MB."""
    pages.main(["--requests", "60"])
    head, _, *rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["run of 60", "comparison, 60 a variant"]
    for row in rows:
        size_kb, wall, *_ = row[1:]
        assert len(row) == len(head)
        assert 500 < int(size_kb.removesuffix(" kB").replace(",", "")) < 1500
        assert float(wall.removesuffix(" s")) > 0.3


@ON_LINUX
@pytest.mark.slow
def test_the_start_is_told_with_and_without_preflight(capsys: pytest.CaptureFixture[str]) -> None:
    """All values stand beside their medians, and no request begins before there is a process."""
    startup.main(["--runs", "1"])
    found = told_in_one_line(capsys)
    assert {name for name in found if name.endswith("_s")} == {
        *("help_s", "first_request_s", "first_request_cpu_s"),
        *("without_preflight_s", "without_preflight_cpu_s"),
    }
    for name in ("first_request_s", "without_preflight_s"):
        assert found[name]["median"] == found[name]["all"][0] > found["help_s"]["median"]
