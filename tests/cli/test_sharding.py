"""--shard and --start-at: what may be asked, and what is one line of refusal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loadgen.cli import firing
from loadgen.cli.app import app
from loadgen.cli.sharding import appointed, refuse_unshardable, shard_of, start_of
from loadgen.client.job import Share
from loadgen.drive import simulate
from loadgen.order import Order
from loadgen.scenario import ScenarioError, build
from loadgen.workload import draw

NOW = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)
AT = datetime(2026, 12, 1, 10, tzinfo=UTC)
TARGET = {"target": {"base_url": "http://192.0.2.1"}}
LOAD: dict[str, Any] = {"load": {"arrivals": {"kind": "poisson", "rate": "5/s"}, "num_requests": 9}}


def test_shards_are_counted_from_one() -> None:
    """Of eight, there are 1/8 to 8/8."""
    assert [shard_of(text) for text in ("1/8", "8/8", "1/1", None)] == [
        Share(0, 8), Share(7, 8), Share(0, 1), None,
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["0/8", "9/8", "8", "2/0", "-1/8", "1/8/2", "", "one/two", "1 / 8", "2/8\n"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    """Whatever else it may mean."""
    with pytest.raises(ScenarioError, match="is not K/N"):
        shard_of(text)


@pytest.mark.parametrize(
    "text",
    ["2026-12-01T10:00:00Z", "2026-12-01 11:00:00+01:00", "2026-12-01T10:00Z", "1796119200", "1796119200.0"],
)
def test_one_instant_may_be_written_in_several_ways(text: str) -> None:
    """With any zone, or as the seconds that `date +%s` prints."""
    assert start_of(text, NOW) == AT


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2026-12-01T10:00:00", "has no zone"),
        ("2026-12-01T09:00:00Z", "has passed"),
        ("2026-12-01T09:30:00Z", "has passed"),
        ("2026-12-03T10:00:00Z", "more than a day away"),
        ("99999999999", "more than a day away|no instant"),
        ("tomorrow", "no instant"),
        ("10:00Z", "no instant"),
        ("", "no instant"),
    ],
)
def test_an_instant_that_cannot_be_meant_is_refused(text: str, why: str) -> None:
    """One without a zone would be another one on another host."""
    with pytest.raises(ScenarioError, match=why):
        start_of(text, NOW)


@pytest.mark.parametrize(
    ("changes", "shard", "start_at", "alone", "why"),
    [
        (TARGET, "1/2", None, True, "say when all of them start, by --start-at"),
        ({}, "1/2", "now", True, "needs a target that all hosts reach"),
        (TARGET, "1/2", "now", False, "no --virtual, no --ray"),
        (TARGET | {"repeats": 3}, None, "now", True, "cannot stand beside vary or repeats"),
    ],
)
def test_what_hosts_cannot_share_is_refused(
    changes: dict[str, Any], shard: str | None, start_at: str | None, *, alone: bool, why: str
) -> None:
    """Before anything is drawn or sent."""
    with pytest.raises(ScenarioError, match=why):
        refuse_unshardable(build(LOAD | changes), shard, start_at, alone=alone)


def order_of(seed: int = 0, salt: str | None = None) -> Order:
    asked = build(LOAD | TARGET | {"seed": seed})
    return Order(asked, draw(asked), Path("runs/x"), "x", salt=salt)


def test_all_shards_of_a_run_say_the_same_and_keep_it_apart() -> None:
    """One salt for all; run ids and folders that differ in the shard alone, and from those of another start,
    plan or salt.
    """
    shards = [appointed(order_of(), Share(k, 2), AT, None) for k in range(2)]
    first, second = shards
    assert first.salt == second.salt != None  # noqa: E711
    run_id = (first.salt or "").replace("-shared-", "-run-")  # a host may call the scenario by another name
    assert (first.run_id, second.run_id) == (f"{run_id}-1of2", f"{run_id}-2of2")
    assert first.folder == Path("runs") / first.run_id
    others = [
        appointed(order_of(), Share(0, 2), AT.replace(hour=11), None),
        appointed(order_of(seed=1), Share(0, 2), AT, None),
        appointed(order_of(salt="mine"), Share(0, 2), AT, None),
    ]
    assert others[2].salt == "mine"
    assert len({order.run_id for order in (*shards, *others)}) == 5


def test_what_one_process_counts_is_refused_at_once() -> None:
    """Not only after the server was looked at, and the start waited for."""
    asked = build(TARGET | {"load": LOAD["load"] | {"max_in_flight": 5}})
    with pytest.raises(ScenarioError, match=r"^--shard: max_in_flight is counted in one process"):
        appointed(replace(order_of(), scenario=asked), Share(0, 2), AT, None)


def test_a_start_alone_is_a_whole_run() -> None:
    """Later, and nothing else."""
    order = appointed(order_of(), None, AT, None)
    assert (order.run_id, order.shard, order.start_at, len(order.part)) == ("x", None, AT, 9)


def test_all_that_is_told_of_a_shard_is_in_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no --out was given, the one that is named by the start and the shard; nothing is sent here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(firing, "carried_out", lambda order, *_, **__: simulate(order))
    later = f"{datetime.now(UTC).timestamp() + 3600:.0f}"
    words = ("--request-rate", "8", "--num-prompts", "4", "--shard", "1/2", "--start-at", later, "--quiet")
    CliRunner().invoke(app, ["run", "--base-url", "http://192.0.2.1", *words])
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-1of2")
    assert {"run.json", "records.jsonl", "summary.json"} <= {path.name for path in folder.iterdir()}
