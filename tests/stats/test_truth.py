"""What a client claims beside what a server knows."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from loadgen.records import Records, RequestRecord
from loadgen.scenario import ScenarioError
from loadgen.stats.truth import COLUMNS, errors, read_truth, spread
from tests.records import failed, ok

ORIGIN_NS = 5_000_000_000


def log(path: Path, *rows: str) -> Path:
    """A server's log with these rows: xid, t_request_read, offsets."""
    lines = [f"{x},200,ok,{read},0,0,{len(o.split(';'))},{o}" for x, read, o in (r.split(",") for r in rows)]
    path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    return path


def of(*records: RequestRecord) -> Records:
    return Records.from_records(records)


def test_each_claim_is_held_against_the_servers_stamps(tmp_path: Path) -> None:
    """Counted by hand: sent at 1 s and read 50 us after, written at 1.1 s and 10 ms later, each read late."""
    truth = read_truth(log(tmp_path / "log", "r0,6000050000,99950000;109970000"))
    mine = ok(due_s=0.9999, started_s=0.99993, sent_s=1.0, ttft_s=0.10013, gaps_us=[10_010])
    found = errors(of(mine), ORIGIN_NS, truth)
    # written at 1.1 s and 1.11002 s; claimed at 1.10003 s and 1.11004 s
    assert found.read_lag_us == pytest.approx([30, 20], abs=1e-3)
    assert found.send_lag_us == pytest.approx([30], abs=1e-3)
    assert found.arrival_us == pytest.approx([150], abs=1e-3)
    assert found.ttft_us == pytest.approx([100_030 - 99_950], abs=1e-3)
    assert found.gap_us == pytest.approx([-10], abs=1e-3)
    assert (found.unmatched, found.miscounted) == (0, 0)
    assert found.accuracy().gap_us.max == pytest.approx(10, abs=1e-3)


def test_a_claim_before_the_truth_is_shown_as_one(tmp_path: Path) -> None:
    """An event claimed 4 us before it was written has a lag of -4 us."""
    truth = read_truth(log(tmp_path / "log", "r0,5000000000,100004000"))
    found = errors(of(ok(ttft_s=0.1, gaps_us=[])), ORIGIN_NS, truth)
    assert found.read_lag_us == pytest.approx([-4], abs=1e-3)


def test_only_measured_good_answers_are_compared(tmp_path: Path) -> None:
    """Warm-up and failures are left out; what the server never saw, or counts otherwise, is told."""
    truth = read_truth(log(tmp_path / "log", *(f"r{i},5000000000,100000000" for i in (0, 1, 2, 4))))
    records = of(
        ok(0, gaps_us=[]),
        ok(1, gaps_us=[], phase="warmup"),
        failed(2),
        ok(3, gaps_us=[]),
        ok(4, gaps_us=[7]),
    )
    found = errors(records, ORIGIN_NS, truth).accuracy()
    assert (found.requests, found.events, found.unmatched, found.miscounted) == (2, 1, 1, 1)


def test_an_answer_without_a_token_has_nothing_to_compare(tmp_path: Path) -> None:
    """Zero events on both sides agree, and there is no first token to be wrong about."""
    truth = read_truth(log(tmp_path / "log", "r0,5000000000,"))
    silent = ok(gaps_us=[], first_token_s=None, last_token_s=None, first_visible_s=None, event_tokens=None)
    found = errors(of(silent), ORIGIN_NS, truth)
    assert (len(found.send_lag_us), len(found.ttft_us), found.miscounted) == (1, 0, 0)


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    """Another order and further columns change nothing; of two rows with one id the last counts."""
    path = tmp_path / "log"
    path.write_text(
        "user,offsets_ns,n_chunks,t_last_token,t_first_token,t_request_read,outcome,status,xid\n"
        "u,1;2,2,0,0,10,aborted,200,a\nu,5;7,2,0,0,100,ok,200,a\n"
    )
    truth = read_truth(path)
    place = truth.place["a"]
    assert truth.read_ns[place] == 100
    assert truth.written(place).tolist() == [105, 107]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("xid,status\na,200\n", "it has no column outcome"),
        ("", "it has no column xid"),
        (",".join(COLUMNS) + "\na,200,ok,soon,0,0,1,5\n", ":2: a stamp is no whole number"),
        (",".join(COLUMNS) + "\na,200,ok,1,0,0,1,5;x\n", ":2: a stamp is no whole number"),
        (",".join(COLUMNS) + "\na,200\n", ":2: a stamp is no whole number"),
    ],
)
def test_what_is_no_log_is_refused_in_a_line(text: str, said: str, tmp_path: Path) -> None:
    """The line names the file and what is wrong with it."""
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=said):
        read_truth(path)


def test_a_spread_interpolates_and_knows_nothing_of_nothing() -> None:
    """NumPy's percentiles; None of an empty set."""
    values = np.arange(101.0)
    found = spread(values)
    assert (found.p50, found.p99, found.max) == (50, 99, 100)
    assert spread(np.array([])).p50 is None


def test_reading_a_log_leaves_the_limits_of_other_files_alone(tmp_path: Path) -> None:
    """Fields as long as a long answer's are read, and what CSV takes elsewhere is as it was."""
    before = csv.field_size_limit()
    offsets = ";".join(str(n) for n in range(50_000))
    assert len(read_truth(log(tmp_path / "log.csv", f"a,5,{offsets}")).written_ns) == 50_000
    assert csv.field_size_limit() == before
