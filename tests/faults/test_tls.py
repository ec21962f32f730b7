"""A run against TLS that fails."""

from __future__ import annotations

import pytest

from tests.faults.fault import Fault, seen
from tests.faults.tls import FAULTS

NAMED = {fault.name: fault for fault in FAULTS}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_tls_that_fails_costs_no_record_and_the_run_ends_by_itself(fault: Fault) -> None:
    """Each row says in words what failed: no bare name of an exception."""
    ran = await seen(fault)
    assert ran.amiss(fault) == []
    assert all(record.error is None or " " in record.error for record in ran.records)


async def test_a_handshake_that_never_ends_is_no_connection() -> None:
    """It is the limit for connections that ends it, and no byte of the request was sent."""
    fault = NAMED["a handshake that never ends"]
    ran = await seen(fault)
    assert ran.amiss(fault) == []
    assert {record.sent_s for record in ran.records} == {None}
