"""Whether a plan's connections fit, against limits that the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadgen.client import headroom
from loadgen.client.headroom import allow_many_descriptors, check
from loadgen.plan import Plan, Window
from loadgen.scenario import ScenarioError
from tests.client.runs import plan_of, scenario_of, sessions_of, users_of

resource = pytest.importorskip("resource")
FILES, PORTS = 264, 500  # 264 descriptors: 200 connections beside the 64 that are spared


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine of so many descriptors a process, so many ports, and four cores."""
    ports = tmp_path / "ip_local_port_range"
    ports.write_text(f"10000\t{10000 + PORTS - 1}\n")
    monkeypatch.setattr(headroom, "PORT_RANGE", ports)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def burst(rows: int) -> Plan:
    return plan_of([0.0] * rows)


def told(plan: Plan, processes: int | str = 1, **parts: Any) -> list[str]:
    client = {"processes": processes} | parts.pop("client", {})
    return check(plan, scenario_of(client=client, **parts))


def test_a_burst_may_fill_every_descriptor_but_those_spared() -> None:
    """200 fit and nothing is said; of 201 both numbers and the remedies are."""
    assert told(burst(200)) == []
    with pytest.raises(ScenarioError, match=r"201 connections .* 264 files open") as caught:
        told(burst(201))
    for remedy in ("raise the hard limit to 265 (ulimit", "--processes 2,", "max_in_flight"):
        assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


def test_processes_have_descriptors_each_and_ports_together() -> None:
    """Two processes hold 400; three could hold 600, but the machine has 500 ports to one address."""
    assert told(burst(400), 2) == []
    with pytest.raises(ScenarioError, match="each of 2 processes"):
        told(burst(401), 2)
    assert told(burst(500), 3) == []
    with pytest.raises(ScenarioError, match=r"501 .* 500 local ports .*ip_local_port_range"):
        told(burst(501), 3)


def test_where_the_number_of_processes_is_open_only_the_certain_is_refused() -> None:
    """Four cores may come to hold what one process cannot: that is a note."""
    (note,) = told(burst(450), "auto")
    assert note.startswith("450 connections are needed at once, and a process may have 264 files open")


def test_a_unix_socket_needs_no_ports() -> None:
    """Its connections are descriptors alone."""
    assert told(burst(501), 3, target={"unix_socket": "/tmp/s"}) == []


@pytest.mark.parametrize("bound", ["max_in_flight", "max_concurrency"])
def test_a_bound_on_requests_bounds_connections(bound: str) -> None:
    """Fifty at a time fit, however many are due."""
    assert told(burst(5000), load={bound: 50}) == []


def test_connections_opened_before_the_start_count() -> None:
    """No bound on requests keeps them down."""
    with pytest.raises(ScenarioError, match="201 connections"):
        told(burst(1), client={"warm": 201}, load={"max_in_flight": 5})


def test_users_of_a_closed_loop_have_a_connection_each() -> None:
    """Their number is certain, however many rows they share."""
    assert told(users_of(200, 5000)) == []
    with pytest.raises(ScenarioError, match="201 connections"):
        told(users_of(201, 5000))


def test_turns_that_wait_for_answers_are_not_there_at_once() -> None:
    """A hundred sessions of three turns are a hundred connections, though all rows are due at zero."""
    assert told(sessions_of(*[3] * 100)) == []


@pytest.mark.parametrize(("tokens", "noted"), [(40, False), (41, True)])
def test_an_open_loop_is_estimated_and_never_refused(tokens: int, noted: bool) -> None:
    """Little's law at 50 ms a token: 100 requests/s of 40 tokens are 200 at once."""
    due_s = [i / 100 for i in range(1000)]
    window = Window(0, 10_000_000_000, "duration")
    plan = replace(plan_of(due_s, window=window), output_tokens=np.full(1000, tokens, np.int32))
    notes = told(plan)
    assert [note.startswith("about 205 connections") for note in notes] == [True] * noted


def test_the_limit_of_open_files_is_raised_as_far_as_it_may() -> None:
    """A shell's default of some hundred descriptors does not bound the requests in flight."""
    allow_many_descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard or soft == headroom.MANY_DESCRIPTORS


def test_a_system_without_a_port_range_has_no_limit_of_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel does not say, nothing is claimed."""
    monkeypatch.setattr(headroom, "PORT_RANGE", Path("/nowhere/range"))
    assert told(burst(501), 3) == []
