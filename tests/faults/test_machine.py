"""A run on a machine that fails it: each row has its record, and the run says that the client is to blame."""

from __future__ import annotations

import pytest

from tests.faults.fault import Fault, seen
from tests.faults.machine import CAN, FAULTS

pytestmark = pytest.mark.skipif(not CAN, reason="limits and clocks are Linux's")
NAMED = {fault.name: fault for fault in FAULTS}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_machine_that_fails_its_client_makes_the_run_invalid(fault: Fault) -> None:
    """By the finding that names what it was, and with exit code 4, or 70 where the run broke."""
    assert (await seen(fault)).amiss(fault) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMED if "clock" in name or name == "suspended"])
async def test_no_token_is_put_off_by_a_clock_that_is_set(name: str) -> None:
    """Tokens come 100 ms apart, as the server writes them, though the clock moves by a minute or an hour."""
    ran = await seen(NAMED[name])
    for record in ran.records:
        assert record.sent_s is not None
        assert record.first_token_s is not None
        assert record.sent_s <= record.first_token_s < record.sent_s + 2
        assert 0.5 < sum(record.gaps_us) / 1e6 < 3  # seven gaps


@pytest.mark.slow
async def test_no_memory_left_is_one_line_that_says_where_the_records_are() -> None:
    """It is no bug that anybody should report."""
    ran = await seen(NAMED["memory"])
    last = ran.said.splitlines()[-1]
    assert last.startswith("loadgen: there is no memory left; what was recorded is kept: loadgen report")
    assert "Traceback" not in ran.said
