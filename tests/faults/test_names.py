"""A run whose server has a name, and whose name server fails."""

from __future__ import annotations

import pytest

from tests.faults.fault import Fault, seen
from tests.faults.names import CAN, FAULTS

pytestmark = pytest.mark.skipif(not CAN, reason="namespaces are root's")
NAMED = {fault.name: fault for fault in FAULTS}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_name_costs_no_record_and_the_run_ends_by_itself(fault: Fault) -> None:
    """Whatever the name server says, or does not: each row has one record, and time counts from its due."""
    assert (await seen(fault)).amiss(fault) == []


@pytest.mark.slow
async def test_a_name_server_that_is_silent_is_told_before_any_load() -> None:
    """In one line that names the host, and not as a server that hangs."""
    ran = await seen(NAMED["silent name server, looked at first"])
    (line,) = ran.said.splitlines()
    assert "the host name gpu.test was not looked up in time" in line


@pytest.mark.slow
async def test_a_look_up_is_over_before_anything_is_due() -> None:
    """A name server that takes 0.7 s makes no request late, nor its connection slow."""
    ran = await seen(NAMED["slow name server"])
    assert all(record.connect_s is None or record.connect_s < 0.5 for record in ran.records)
    assert all((record.started_s or 1.0) - record.due_s < 0.5 for record in ran.records)
