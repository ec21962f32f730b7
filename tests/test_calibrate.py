"""What a ladder of rates says of a client, and what a saved calibration says of a plan."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from loadgen.calibrate import (
    LADDERS,
    QUICK,
    Calibration,
    KeptTime,
    Ladder,
    Limit,
    Rung,
    beyond,
    ceiling,
    climb,
    concluded,
    judged,
    load,
)
from loadgen.health import Health
from loadgen.run import Run
from loadgen.scenario import ScenarioError
from loadgen.stats.truth import Spread, read_truth
from loadgen.workload import draw
from loadgen.workload.demand import Demand
from tests.calibrations import rung
from tests.records import ok, run_of
from tests.stats.test_truth import log

ORIGIN_NS = 5_000_000_000
EVENTS = Ladder("events", (2,), 1, 50.0, 0.0, 10.0, 0)  # as many as the run below has


def a_run(late_s: float = 0.0, **health: object) -> Run:
    """Twenty requests of one token in ten seconds, each started `late_s` after due."""
    records = [ok(i, i / 2, started_s=i / 2 + late_s, sent_s=i / 2 + late_s, gaps_us=[]) for i in range(20)]
    return run_of(records, health=Health(**health), clock_origin_monotonic_ns=ORIGIN_NS)  # type: ignore[arg-type]


def judge(run: Run, tmp_path: Path, *, late_us: float = 5.0, cpu: float = 0.3, lost: int = 0) -> Rung:
    rows = [f"r{i},{ORIGIN_NS + i * 500_000_000},{99_950_000}" for i in range(lost, 20)]
    truth = read_truth(log(tmp_path / "log", *rows))
    return judged(EVENTS, 2, run, truth, KeptTime(late_us=Spread(p50=1, p99=late_us, max=9e9), cpu_share=cpu))


def test_a_valid_run_holds(tmp_path: Path) -> None:
    """It has no limit; the rate is what came in the window, the error what the log says."""
    found = judge(a_run(clock="kernel", busiest_share=0.4), tmp_path)
    assert (found.held, found.limit, found.clock) == (True, None, "kernel")
    assert (found.asked_per_s, found.reached_per_s) == (2, pytest.approx(2))
    assert found.accuracy.read_lag_us.p50 == pytest.approx(50)
    assert (found.client_cpu_share, found.server_cpu_share) == (0.4, 0.3)


def test_a_client_that_is_late_is_the_limit(tmp_path: Path) -> None:
    """The server kept time, and the run cannot be trusted."""
    found = judge(a_run(late_s=0.02), tmp_path)
    assert (found.held, found.limit) == (False, "client")
    assert found.findings


@pytest.mark.parametrize("server", [{"late_us": 1500.0}, {"cpu": 0.97}])
def test_a_server_that_is_behind_is_the_limit(server: dict[str, float], tmp_path: Path) -> None:
    """What a late server does to a client says nothing of the client; where all went well, it was none."""
    assert judge(a_run(late_s=0.02), tmp_path, **server).limit == "server"
    assert judge(a_run(), tmp_path, **server).limit is None


def test_a_rate_that_is_short_by_chance_has_no_limit(tmp_path: Path) -> None:
    """All went well, late server or not, but fewer were drawn; only a full server could not give more."""
    short = a_run()
    truth = read_truth(
        log(tmp_path / "log", *(f"r{i},{ORIGIN_NS + i * 500_000_000},99950000" for i in range(20)))
    )
    late = KeptTime(late_us=Spread(p50=1, p99=5000, max=9e9), cpu_share=0.3)
    assert judged(EVENTS, 3, short, truth, late).limit is None
    full = msgspec.structs.replace(late, cpu_share=0.97)
    assert judged(EVENTS, 3, short, truth, full).limit == "server"


def test_other_work_is_not_held_against_the_client(tmp_path: Path) -> None:
    """A client that waited for its core in most of its stalls may do better alone."""
    late = {"late_s": 0.02, "stalled_s": 1.0}
    assert judge(a_run(**late, stalled_waiting_s=0.4, stalled_asleep_s=0.2), tmp_path).limit == "others"
    assert judge(a_run(**late, stalled_waiting_s=0.4), tmp_path).limit == "client"


def test_other_work_is_not_held_against_the_server_either(tmp_path: Path) -> None:
    """What had the client's core for most of its stalls made the server late, too; a full core is its own."""
    run = a_run(late_s=0.02, stalled_s=1.0, stalled_waiting_s=0.6)
    assert judge(run, tmp_path, late_us=5000.0).limit == "others"
    assert judge(run, tmp_path, cpu=0.97).limit == "server"


def test_a_client_whose_core_is_full_is_its_own_limit(tmp_path: Path) -> None:
    """Whatever the server did meanwhile."""
    run = a_run(late_s=0.02, busiest_share=0.97)
    assert judge(run, tmp_path, late_us=5000.0).limit == "client"


def test_a_request_that_the_server_never_saw_is_no_success(tmp_path: Path) -> None:
    """A valid run with a request too many cannot be compared, and does not hold."""
    found = judge(a_run(), tmp_path, lost=1)
    assert (found.accuracy.unmatched, found.held, found.limit) == (1, False, "client")


def test_the_ceiling_is_the_highest_rate_that_held() -> None:
    """The client gave out above it; the error at half of it is that of the nearest rung."""
    found = ceiling([rung(1000, ttft=1), rung(2000, ttft=2), rung(4000, ttft=4), rung(8000, limit="client")])
    assert found is not None
    assert (found.per_s, found.failed_at_per_s, found.half_per_s) == (4000, 8000, 2000)
    assert (found.at_ceiling.ttft_us.p50, found.at_half.ttft_us.p50) == (4, 2)


@pytest.mark.parametrize("last", [rung(8000, limit="server"), rung(8000, limit="others"), rung(8000)])
def test_a_ceiling_that_was_not_reached_is_said_to_be_a_least(last: Rung) -> None:
    """The server gave out first, other work came between, or nothing higher was tried."""
    found = ceiling([rung(4000), last])
    assert found is not None
    assert found.failed_at_per_s is None


@pytest.mark.parametrize(("reached_per_s", "failed_at_per_s"), [(7995, 7995), (3000, 8000)])
def test_a_rate_that_failed_is_the_one_that_was_sent(reached_per_s: float, failed_at_per_s: float) -> None:
    """By chance a little off the one asked for; of what did not get through, the one asked for."""
    found = ceiling([rung(4000), rung(8000, limit="client", reached_per_s=reached_per_s)])
    assert found is not None
    assert found.failed_at_per_s == failed_at_per_s


def test_a_server_that_gave_less_than_asked_still_showed_so_much() -> None:
    """The client held at what the server could give: at least that."""
    found = ceiling([rung(4000), rung(8000, limit="server", held=True, reached_per_s=6000)])
    assert found is not None
    assert (found.per_s, found.failed_at_per_s) == (6000, None)


def test_without_a_rung_that_held_there_is_no_ceiling() -> None:
    """Nothing was measured, so nothing is said."""
    assert ceiling([rung(1000, limit="client")]) is None


def calibration(*rungs: Rung) -> Calibration:
    return concluded(list(rungs or [rung(10_000), rung(20_000, limit="client")]), 0.5)


def test_a_saved_calibration_comes_back_whole(tmp_path: Path) -> None:
    """Folders on the way are made."""
    path = tmp_path / "a" / "b.json"
    found = calibration()
    found.save(path)
    assert load(path) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "schema null is not 2"),
        ('{"schema": 2}', "not a calibration"),
        ("nonsense", "not a calibration"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, said: str, tmp_path: Path) -> None:
    """In a line that says what to do."""
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(ScenarioError, match=f"{said}.*: run loadgen calibrate again"):
        load(tmp_path / "c.json")


def test_a_calibration_counts_only_where_it_was_taken() -> None:
    """Another host, another number of cores, another version or another clock is another instrument."""
    here = calibration()  # its reads had the user's clock
    assert here.is_of_here("user")
    assert not here.is_of_here("kernel")
    for other in ({"host": "elsewhere"}, {"cpus": 999}, {"loadgen": "0.0.0"}):
        assert not msgspec.structs.replace(here, **other).is_of_here("user")


def test_a_plan_between_what_held_and_what_failed_may_be_beyond() -> None:
    """For each process's share: what is expected, held and failed, when that was seen, what to do."""
    found = msgspec.structs.replace(calibration(), cpus=4, taken_at="2026-03-04T05:06:07+00:00")
    assert beyond(Demand(1, 9_900), found, 1) == []
    assert beyond(Demand(1, 12_000), found, 2) == []
    (said,) = beyond(Demand(1, 12_000), found, 1)
    assert said == (
        "the plan may be beyond the client: 12,000 token events/s a process are expected; on this machine "
        "one held 10,000, and failed at 20,000 (loadgen calibrate, 2026-03-04): calibrate again when nothing "
        "else runs, or take --processes 2, another machine, or fewer requests"
    )


def test_a_plan_above_what_failed_is_beyond() -> None:
    """No other calibration would help; a quick one is named so."""
    found = msgspec.structs.replace(calibration(), cpus=4, quick=True, taken_at="2026-03-04T05:06:07+00:00")
    (said,) = beyond(Demand(1, 21_000), found, 1)
    assert said == (
        "the plan is beyond the client: 21,000 token events/s a process are expected; on this machine "
        "one held 10,000, and failed at 20,000 (loadgen calibrate --quick, 2026-03-04): --processes 3, "
        "another machine, or fewer requests"
    )


def test_no_more_processes_are_advised_than_there_are_cores() -> None:
    """Then only another machine or fewer requests help."""
    (said,) = beyond(Demand(1, 1e6), msgspec.structs.replace(calibration(), cpus=4), 4)
    assert "--processes" not in said
    assert "another machine, or fewer requests" in said


def test_a_ceiling_of_requests_counts_as_well() -> None:
    """One-token requests cost the client most by their number."""
    found = calibration(rung(1000, of="requests"))
    assert beyond(Demand(900, 900), found, 1) == []
    (said,) = beyond(Demand(1100, 1100), found, 1)
    assert "may be beyond the client: 1,100 requests/s" in said
    assert "one held 1,000, and nothing higher was measured" in said


@pytest.mark.parametrize("ladder", [*LADDERS, *QUICK], ids=lambda ladder: ladder.of)
def test_every_rung_of_a_ladder_can_be_drawn(ladder: Ladder) -> None:
    """Rates ascend, and the window holds about as many token events a second as the rung is named for."""
    assert list(ladder.rates) == sorted(ladder.rates)
    plan = draw(ladder.scenario(ladder.rates[-1], "http://127.0.0.1:1", "auto"))
    measured = plan.output_tokens[plan.phase == 1]
    assert int(measured.sum()) / ladder.window_s == pytest.approx(ladder.rates[-1], rel=0.2)


class Machine:
    """Holds up to `holds` a second; `troubles`: what else comes of the first tries of a rate."""

    def __init__(self, holds: int, *, full: bool = True, **troubles: list[Limit]) -> None:
        self.holds = holds
        self.share = 0.99 if full else 0.5
        self.troubles = {int(rate.removeprefix("at_")): limits for rate, limits in troubles.items()}
        self.tried: list[int] = []

    async def run(self, ladder: Ladder, rate: int, clock: str) -> Rung:
        self.tried.append(rate)
        if self.troubles.get(rate):
            return rung(rate, limit=self.troubles[rate].pop(0))
        return rung(rate) if rate <= self.holds else rung(rate, limit="client", client_cpu_share=self.share)


async def climbed(machine: Machine, monkeypatch: pytest.MonkeyPatch, *rates: int) -> Calibration:
    monkeypatch.setattr("loadgen.calibrate._tried", machine.run)
    ladder = Ladder("events", rates, 1, 50.0, 0.0, 1.0, 2)
    return concluded([one async for one in climb(ladder)], None)


@pytest.mark.parametrize(
    ("holds", "between"), [(3000, (2000, 3500)), (4000, (3500, 5000)), (7000, (6500, 8000))]
)
async def test_the_gap_between_held_and_failed_is_halved(
    holds: int, between: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, from 2,000 to 8,000; the rungs are kept lowest first."""
    found = await climbed(machine := Machine(holds), monkeypatch, 2000, 8000, 9000)
    assert found.events is not None
    assert (found.events.per_s, found.events.failed_at_per_s) == between
    assert len(machine.tried) == 4
    assert [one.asked_per_s for one in found.rungs] == sorted(machine.tried)


async def test_where_nothing_held_nothing_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no rate to come near."""
    found = await climbed(machine := Machine(100), monkeypatch, 2000, 8000)
    assert (machine.tried, found.events) == ([2000], None)


async def test_what_other_work_may_have_spoiled_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late server twice more; a taken core, or a client that failed with core to spare, once more."""
    machine = Machine(4000, full=False, at_2000=["server", "server"])
    found = await climbed(machine, monkeypatch, 2000, 4000, 4004)
    assert machine.tried == [2000, 2000, 2000, 4000, 4004, 4004, 4002, 4002, 4001, 4001]
    assert found.events is not None
    assert (found.events.per_s, found.events.failed_at_per_s) == (4000, 4001)


async def test_a_climb_ends_where_the_server_gives_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """After three tries; the client may do more, and nothing between is asked of it."""
    machine = Machine(9000, at_4000=["server"] * 3)
    found = await climbed(machine, monkeypatch, 2000, 4000, 8000)
    assert machine.tried == [2000, 4000, 4000, 4000]
    assert found.events is not None
    assert (found.events.per_s, found.events.failed_at_per_s) == (2000, None)


async def test_one_rate_that_others_spoiled_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next may hold; a second one ends the climb."""
    machine = Machine(9000, at_1000=["others"] * 2, at_4000=["others"] * 2)
    found = await climbed(machine, monkeypatch, 1000, 2000, 4000, 8000)
    assert machine.tried == [1000, 1000, 2000, 4000, 4000]
    assert found.events is not None
    assert (found.events.per_s, found.events.failed_at_per_s) == (2000, None)


async def test_other_work_while_halving_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What held and what failed before stands."""
    machine = Machine(7000, at_5000=["others"] * 2)
    found = await climbed(machine, monkeypatch, 2000, 8000)
    assert machine.tried == [2000, 8000, 5000, 5000]
    assert found.events is not None
    assert (found.events.per_s, found.events.failed_at_per_s) == (2000, 8000)


@pytest.mark.slow
async def test_a_real_rung_is_measured_and_leaves_nothing_behind() -> None:
    """Every request is found in the server's log, with each token once, and was read after it was due."""
    cores = os.sched_getaffinity(0) if sys.platform == "linux" else None
    (found,) = [one async for one in climb(Ladder("events", (400,), 8, 20.0, 0.1, 0.5, 0))]
    assert (found.accuracy.unmatched, found.accuracy.miscounted) == (0, 0)
    assert found.accuracy.requests > 5
    assert found.accuracy.arrival_us.p50 is not None
    assert found.accuracy.arrival_us.p50 > 0
    if cores is not None:
        assert os.sched_getaffinity(0) == cores
