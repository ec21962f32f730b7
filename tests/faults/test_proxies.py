"""A run through proxies that fail."""

from __future__ import annotations

import pytest

from tests.faults.fault import Fault, seen
from tests.faults.proxies import BUFFERED_S, FAULTS

NAMED = {fault.name: fault for fault in FAULTS}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_proxy_that_fails_costs_no_record_and_the_run_ends_by_itself(fault: Fault) -> None:
    """Each row has one record with the right outcome."""
    assert (await seen(fault)).amiss(fault) == []


@pytest.mark.slow
async def test_a_proxy_that_buffers_is_in_every_ttft_and_leaves_no_gaps() -> None:
    """What it holds back comes late and together, and is recorded as it came."""
    ran = await seen(NAMED["proxy: buffers"])
    assert all((record.first_token_s or 0.0) - record.due_s >= BUFFERED_S for record in ran.records)
    assert all(sum(record.gaps_us) < 100_000 for record in ran.records)
