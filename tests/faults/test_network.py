"""A run over a network that fails for real, packet by packet."""

from __future__ import annotations

import time

import pytest

from loadgen.records import RequestRecord
from tests.fakes import stream_reply
from tests.faults.fault import Fault, seen
from tests.faults.network import CAN, FAULTS, PATIENT, WIDE_BYTES, Line, across

pytestmark = pytest.mark.skipif(not CAN, reason="namespaces and devices are root's")
NAMED = {fault.name: fault for fault in FAULTS}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_network_fault_costs_no_record_and_ends_by_itself(fault: Fault) -> None:
    """Each row has one record with the right outcome, and a slow network is a slow server: no late client."""
    assert (await seen(fault)).amiss(fault) == []


async def test_a_delay_is_in_every_ttft() -> None:
    """A token comes a round trip after its request was sent: 100 +- 20 ms each way."""
    ran = await seen(NAMED["delay"])
    assert ran.amiss(NAMED["delay"]) == []
    trips_s = [span(record, "sent_s", "first_token_s") for record in ran.records]
    assert all(0.16 <= trip_s <= 0.24 + 0.05 for trip_s in trips_s)
    assert all(span(record, "due_s", "first_token_s") >= 0.16 for record in ran.records)


@pytest.mark.slow
async def test_a_bandwidth_is_in_every_answer() -> None:
    """So many bits take so long, whoever else uses the line."""
    ran = await seen(NAMED["bandwidth"])
    took_s = max(record.last_token_s or 0.0 for record in ran.records)
    assert took_s >= len(ran.records) * WIDE_BYTES * 8 / 256_000


async def test_a_token_that_overtook_another_has_the_instant_when_it_could_be_read() -> None:
    """The packet with the first token is lost for 150 ms; the next one's is there meanwhile, and of no use.

    The kernel stamps that one when it came; nobody can have read it then, nor did the client read late.
    """
    lost_ns: dict[int, int] = {}  # by the port it was meant for

    def eats(packet: bytes) -> bool:
        if b"first" not in packet:
            return False
        port = int.from_bytes(packet[22:24])
        return time.perf_counter_ns() - lost_ns.setdefault(port, time.perf_counter_ns()) < 150_000_000

    scene = across(Line(eats=eats), reply=stream_reply(["first", "second"], gap_s=0.02))
    fault = Fault("overtaken", "", scene, ("ok",), "answer", 0, keys=PATIENT)
    ran = await seen(fault)
    assert ran.amiss(fault) == []
    assert "read_wait" not in ran.invalid
    assert len(lost_ns) == 4
    assert all(span(record, "sent_s", "first_token_s") > 0.15 for record in ran.records)


def span(record: RequestRecord, since: str, until: str) -> float:
    return float(getattr(record, until) - getattr(record, since))
