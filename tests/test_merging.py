"""Shards of a run, merged: what they mean together is what the whole means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import merge
from loadgen.records import Outcome, RequestRecord
from loadgen.run import Health, Run
from loadgen.scenario import ScenarioError
from loadgen.stats import summarize
from tests.records import failed, ok, run_of

SLOS = ["p90(ttft) <= 200ms", "p99(itl) <= 50ms", "output_tokens_per_s >= 1", "rejection_rate <= 5%"]
SCENARIO = {"load": {"requests": [{"prompt": 16, "output": 4}], "warmup": "auto"}, "slos": SLOS}


def some_rows(n: int, seed: int) -> list[RequestRecord]:
    """Requests of all sorts, some due together, in any order."""
    rng = np.random.default_rng(seed)
    rows: list[RequestRecord] = []
    for i, due in enumerate(np.sort(np.round(rng.uniform(0, 10, n), 1)).tolist()):
        gaps = rng.integers(0, 60_000, rng.integers(0, 20)).tolist()
        listed = rng.integers(1, 5, len(gaps) + 1).tolist() if i % 3 else 1
        row = ok(i, due, ttft_s=float(np.round(rng.exponential(0.1), 6)), gaps_us=gaps, event_tokens=listed)
        if i % 7 == 6:
            row = failed(i, due, [Outcome.REJECTED, Outcome.BROKEN][i % 2], error=f"trouble {i % 3}")
        rows.append(row)
    rng.shuffle(rows)  # type: ignore[arg-type]
    return rows


def shards_of(whole: Run, of: int, seed: int) -> list[Run]:
    """The rows of `whole` dealt out at random."""
    owner = np.random.default_rng(seed).integers(0, of, len(whole.records))
    parts = [whole.records.only(owner == k) for k in range(of)]
    headers = [
        msgspec.structs.replace(
            whole.header, run_id=f"shard-{k}", rows_due=len(part), health=Health(reads=k + 1)
        )
        for k, part in enumerate(parts)
    ]
    return [Run(header, part) for header, part in zip(headers, parts, strict=True)]


def whole_of(rows: list[RequestRecord], **header: Any) -> Run:
    return run_of(rows, scenario=SCENARIO, rows_not_sent=0, **header)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(1, 150), of=st.integers(1, 5), seed=st.integers(0, 99), order=st.randoms())
def test_merged_shards_mean_what_the_whole_means(n: int, of: int, seed: int, order: Any) -> None:
    """However the rows were dealt out, and in whatever order shards come: the same to the last bit."""
    whole = whole_of(some_rows(n, seed))
    shards = shards_of(whole, of, seed)
    order.shuffle(shards)
    found, expected = summarize(merge(shards)), summarize(whole)
    assert (found.source, found.run_id) == ("merged", "shard-0")
    said = [f for f in found.findings if f.name != "client"]
    assert msgspec.structs.replace(found, source="http", run_id="run-1", findings=said) == expected


def test_rows_come_in_order_with_their_own_gaps() -> None:
    """Each row keeps its gaps, its tokens and its words."""
    whole = whole_of(some_rows(60, 3))
    r = merge(shards_of(whole, 3, 1)).records
    assert r.index.tolist() == list(range(60))
    for place, i in enumerate(whole.records.index):
        theirs = whole.records.gaps_us[whole.records.gap_start[place] : whole.records.gap_start[place + 1]]
        assert r.gaps_us[r.gap_start[i] : r.gap_start[i + 1]].tolist() == theirs.tolist()
        assert r.request_id[i] == whole.records.request_id[place]
        assert r.error[i] == whole.records.error[place]


def test_what_shards_counted_adds_up() -> None:
    """Rows that fell due and reads are sums, and each shard is a process."""
    header = merge(shards_of(whole_of(some_rows(30, 0)), 3, 0)).header
    assert header.health is not None
    assert (header.rows_due, header.health.reads, header.health.processes) == (30, 6, 3)


def test_simulated_shards_stay_simulated() -> None:
    """Merged, they are no measurement; nor are they merged with one."""
    shards = shards_of(whole_of(some_rows(30, 0), source="virtual"), 2, 0)
    assert merge(shards).header.source == "virtual"
    measured = replace(shards[1], header=msgspec.structs.replace(shards[1].header, source="http"))
    with pytest.raises(ScenarioError, match="some shards are simulated and some measured"):
        merge([shards[0], measured])


def test_a_row_twice_is_refused() -> None:
    """A shard given twice would count its requests twice."""
    one, two = shards_of(whole_of(some_rows(30, 0)), 2, 0)
    with pytest.raises(ScenarioError, match=r"^row \d+ is in two shards"):
        merge([one, two, one])


def test_a_missing_shard_is_refused() -> None:
    """Rows of the plan that nobody tells of."""
    one, two = shards_of(whole_of(some_rows(30, 0)), 2, 0)
    lacking = len(two.records)
    with pytest.raises(ScenarioError, match=rf"^{lacking} of the plan's 30 rows are in no shard"):
        merge([one])


def test_rows_known_not_to_have_been_sent_are_no_gap() -> None:
    """A shard that was interrupted tells how many it did not send; one that was killed tore a line."""
    one, two = shards_of(whole_of(some_rows(30, 0)), 2, 0)
    lacking = len(two.records)
    stopped = replace(
        one, header=msgspec.structs.replace(one.header, rows_not_sent=lacking, interrupted=True)
    )
    assert merge([stopped]).header.interrupted
    torn = merge([replace(one, torn_lines=lacking)])
    assert torn.header.notes == [f"shard-0: lines that were cut short, and are left out: {lacking}"]


@pytest.mark.parametrize("change", [{"plan_digest": "1" * 64}, {"window_end_s": 9.0}, {"scenario": {}}])
def test_shards_of_different_plans_are_refused(change: dict[str, Any]) -> None:
    """They are told apart by what they were asked."""
    one, two = shards_of(whole_of(some_rows(30, 0)), 2, 0)
    with pytest.raises(ScenarioError, match=f"not shards of one run: they differ in {next(iter(change))}"):
        merge([one, replace(two, header=msgspec.structs.replace(two.header, **change))])


def test_nothing_is_no_run() -> None:
    with pytest.raises(ScenarioError, match="no shards"):
        merge([])
