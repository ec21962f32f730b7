"""From a scenario to a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadgen.client import fleet, lost
from loadgen.client.control import Counters, Stop
from loadgen.client.job import Share
from loadgen.drive import fire, simulate
from loadgen.health import Health
from loadgen.order import Order
from loadgen.records import Outcome, Records
from loadgen.run import RunHeader
from loadgen.run_folder import load
from loadgen.scenario import ScenarioError, build
from loadgen.target import Target
from loadgen.whole_file import WriteError
from loadgen.workload import draw


@pytest.mark.parametrize("bound", ["max_concurrency", "max_in_flight"])
def test_a_bound_of_the_client_is_refused_in_virtual_time(tmp_path: Path, bound: str) -> None:
    """The simulation has no client that could keep it; nothing is written."""
    asked = build({"load": {"arrivals": {"kind": "burst"}, "num_requests": 3, bound: 1}})
    with pytest.raises(ScenarioError, match="bound the client"):
        simulate(Order(asked, draw(asked), tmp_path / "r", "r"))
    assert not (tmp_path / "r").exists()


def test_an_interrupted_simulation_says_how_many_rows_it_left_out(tmp_path: Path) -> None:
    """Rows due, rows not sent, and the records, add up."""
    asked = build({"load": {"arrivals": {"kind": "constant", "rate": "1/s"}, "num_requests": 9}})
    answers = iter([False, False, False, True])
    run = simulate(Order(asked, draw(asked), tmp_path / "r", "r"), lambda: next(answers))
    assert (run.header.interrupted, run.header.rows_due, run.header.rows_not_sent) == (True, 3, 6)
    assert len(run.records) == 3


def test_a_simulation_has_no_client_processes(tmp_path: Path) -> None:
    """However many are asked for, the records are the same."""
    load = {"arrivals": {"kind": "poisson", "rate": "50/s"}, "num_requests": 20}
    one, four = (simulated(tmp_path / str(n), load=load, client={"processes": n}) for n in (1, 4))
    assert one.ended_s.tolist() == four.ended_s.tolist()


async def test_a_run_whose_lost_rows_cannot_be_recorded_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that neither a report nor a grid takes it for whole."""

    async def loses_one(*_: object, on_start: Callable[[int], None], **__: object) -> fleet.Fared:
        on_start(time.perf_counter_ns())
        return fleet.Fared(Health(processes=2, processes_lost=1), [Share(1, 2)], 0)

    def on_a_full_disk(*_: object) -> None:
        raise WriteError("no space left")

    monkeypatch.setattr(fleet, "run", loses_one)
    monkeypatch.setattr(lost, "loss", on_a_full_disk)
    arrivals = {"kind": "constant", "rate": "1/s"}
    asked = build({"load": {"arrivals": arrivals, "num_requests": 4}, "client": {"processes": 2}})
    order = Order(asked, draw(asked), tmp_path / "r", "r")
    target = Target(base_url="http://127.0.0.1:1", metrics="none")
    with pytest.raises(WriteError, match="no space left"):
        await fire(order, target, preflight=None, api_key=None, counters=Counters(), stop=Stop())
    assert not load(tmp_path / "r").header.complete


async def test_rows_are_lost_up_to_the_wish_to_end_and_a_shard_says_how_it_knew_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user ended it 7 s after the origin, however long what was in flight then took."""
    stop, until_ns = Stop(), []
    stop.drain()

    async def loses_one(*_: object, on_start: Callable[[int], None], **__: object) -> fleet.Fared:
        assert stop.asked_ns is not None
        on_start(stop.asked_ns - 7 * 10**9)
        return fleet.Fared(Health(processes=2, processes_lost=1), [Share(1, 2)], 3)

    def loss(_job: object, _shares: object, ns: int) -> lost.Loss:
        until_ns.append(ns)
        return lost.Loss([], 2, 1)

    monkeypatch.setattr(fleet, "run", loses_one)
    monkeypatch.setattr(lost, "loss", loss)
    arrivals = {"kind": "constant", "rate": "1/s"}
    asked = build({"load": {"arrivals": arrivals, "num_requests": 8}, "client": {"processes": 2}})
    at = datetime(2026, 12, 1, 10, tzinfo=UTC)
    order = Order(asked, draw(asked), tmp_path / "r", "r", shard=Share(0, 2), start_at=at)
    told: Any = SimpleNamespace(start_ns=None, by="ntp", error_s=0.25)
    target = Target(base_url="http://127.0.0.1:1", metrics="none")
    told = {"preflight": None, "api_key": None, "counters": Counters(), "stop": stop, "appointed": told}
    header = (await fire(order, target, **told)).header
    assert until_ns == [7 * 10**9]
    assert header.health is not None
    assert (header.health.start_by, header.health.start_error_s) == ("ntp", 0.25)
    assert (header.shard, header.start_at) == ("1/2", "2026-12-01T10:00:00Z")
    assert (header.rows_due, header.rows_not_sent) == (5, 3), "of the 4 rows of its half 1 was sent"


FIXED = {"kind": "fixed", "step": "10ms"}
TWO_USERS: dict[str, Any] = {"arrivals": {"kind": "closed", "concurrency": 2, "think": "10ms"}}


def header_of(folder: Path, load: dict[str, Any], **engine: Any) -> RunHeader:
    asked = build({"engine": {"cost": FIXED} | engine, "load": load})
    return simulate(Order(asked, draw(asked), folder, "r")).header


@pytest.mark.parametrize("tail", [True, False])
def test_a_closed_loop_for_a_time_leaves_nothing_out_however_many_rows_it_takes(
    tmp_path: Path, tail: bool
) -> None:
    """Two users, each with a request of 10 ms every 20 ms, for a second: fifty each, of which two planned."""
    load = TWO_USERS | {"duration": "1s", "output_tokens": 1, "tail": tail}
    header = header_of(tmp_path / "r", load)
    assert (header.plan_rows, header.rows_due) == (2, 100)
    assert (header.rows_not_sent, header.rows_dropped) == (0, 0)


def test_turns_that_never_fall_due_are_counted(tmp_path: Path) -> None:
    """Sessions of four turns, a second apart, on an engine that takes one request in three seconds and has no
    queue: the second and the third session are rejected, and three turns of each never fall due.
    """
    header = header_of(
        tmp_path / "r",
        {
            "arrivals": {"kind": "constant", "rate": "1/s"},
            "num_sessions": 3,
            "sessions": {"turns": 4},
            "output_tokens": 300,
            "tail": False,
        },
        max_sequences=1,
        max_queue=0,
    )
    assert (header.plan_rows, header.rows_due) == (12, 6)
    assert (header.rows_not_sent, header.rows_dropped) == (6, 6)


def test_a_turn_after_a_window_without_a_tail_is_dropped(tmp_path: Path) -> None:
    """Turns at 0, 1.01 and 2.02 s in a window of 1.5 s: the third is planned, and never falls due."""
    sessions = {"turns": 3, "think": "1s"}
    load = {"arrivals": {"kind": "constant", "rate": "0.1/s"}, "duration": "1500ms", "sessions": sessions}
    header = header_of(tmp_path / "r", load | {"output_tokens": 1, "tail": False})
    assert (header.rows_due, header.rows_not_sent, header.rows_dropped) == (2, 1, 1)


def simulated(folder: Path, **asked: Any) -> Records:
    scenario = build(asked)
    return simulate(Order(scenario, draw(scenario), folder, "r")).records


def test_a_simulated_answer_ends_by_itself_where_eos_is_not_ignored(tmp_path: Path) -> None:
    """After the engine's own length; as long as asked where it is ignored."""
    rows = [{"prompt": 4, "output": 9}]
    for ignore_eos, tokens in ((True, 9), (False, 3)):
        records = simulated(
            tmp_path / str(ignore_eos),
            engine={"cost": FIXED, "eos": 3},
            load={"requests": rows, "ignore_eos": ignore_eos, "tail": False},
        )
        assert records.output_tokens.tolist() == [tokens]


def test_a_request_that_nothing_can_start_ends_with_the_timeout_for_the_first_token(tmp_path: Path) -> None:
    """One alone waits for a batch of two."""
    records = simulated(
        tmp_path / "r",
        engine={"batching": "static", "max_sequences": 2, "max_wait": "forever", "cost": FIXED},
        load={"requests": [{"due": "1s", "prompt": 4, "output": 9}], "tail": False},
        timeouts={"first_token": "7s"},
    )
    assert records.has(Outcome.TIMEOUT_FIRST_TOKEN).all()
    assert records.ended_s.tolist() == [8.0]


def test_a_simulated_prefix_cache_is_asked_for_the_prompts_texts(tmp_path: Path) -> None:
    """The second of two equal texts finds what the first left; a text of its own finds nothing."""
    same, other = "one two three four five six seven eight " * 8, "another " * 40
    records = simulated(
        tmp_path / "r",
        engine={"cost": FIXED, "preempt": "memory", "kv": {"tokens": 4096, "prefix_cache": True}},
        load={
            "requests": [
                {"due": f"{n}s", "prompt": text, "output": 2} for n, text in enumerate([same, same, other])
            ],
            "tail": False,
        },
    )
    first, second, third = records.cached_tokens.tolist()
    assert (first, third) == (0, 0)
    assert second > 0
