"""How far another clock is off, and how wrong that may be: held against clocks that are made up."""

from __future__ import annotations

import asyncio
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from loadgen.client.link import Clock
from loadgen.cluster.clocks import compared, drifted

WAYS_NS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=9)
OFF_NS = st.integers(-(10**16), 10**16)


class Elsewhere:
    """A clock that runs by `rate` ppb faster, and was `ahead_ns` ahead at 0; each question takes a way there
    and another back.
    """

    def __init__(self, ahead_ns: int, rate_ppb: int = 0) -> None:
        self.ahead_ns, self.rate = ahead_ns, Fraction(rate_ppb, 10**9)
        self.now_ns = 0

    def off_ns(self, at_ns: int) -> Fraction:
        return self.ahead_ns + self.rate * at_ns

    def compared(self, ways_ns: list[tuple[int, int]]) -> Clock:
        ways = iter(ways_ns)

        async def ask() -> int:
            there_ns, back_ns = next(ways)
            self.now_ns += there_ns
            read_ns = self.now_ns + round(self.off_ns(self.now_ns))
            self.now_ns += back_ns
            return read_ns

        return asyncio.run(compared(ask, lambda: self.now_ns, len(ways_ns)))


@given(OFF_NS, WAYS_NS)
def test_the_error_told_is_never_less_than_the_error_made(
    ahead_ns: int, ways_ns: list[tuple[int, int]]
) -> None:
    """Whatever the ways take there and back; and it is half of the quickest way, rounded up."""
    found = Elsewhere(ahead_ns).compared(ways_ns)
    assert abs(found.ahead_ns - ahead_ns) <= found.error_ns
    assert found.error_ns == -(-min(map(sum, ways_ns)) // 2)
    assert found.by == "measured"


@given(OFF_NS, st.integers(-(10**6), 10**6), WAYS_NS, WAYS_NS, st.integers(0, 10**13), st.data())
def test_a_clock_that_drifts_is_never_further_off_than_told(
    ahead_ns: int,
    rate_ppb: int,
    before_ns: list[tuple[int, int]],
    after_ns: list[tuple[int, int]],
    lasts_ns: int,
    data: st.DataObject,
) -> None:
    """At any instant of the run, up to 1 ms a second of drift; the run goes by the comparison before it."""
    clock = Elsewhere(ahead_ns, rate_ppb)
    before = clock.compared(before_ns)
    begun_ns = clock.now_ns
    clock.now_ns += lasts_ns
    after = clock.compared(after_ns)
    told = drifted(before, after)
    at_ns = data.draw(st.integers(begun_ns, begun_ns + lasts_ns))
    while_asked = Fraction(abs(rate_ppb) * (begun_ns + clock.now_ns - begun_ns - lasts_ns), 10**9) + 1
    assert told.ahead_ns == before.ahead_ns
    assert abs(clock.off_ns(at_ns) - told.ahead_ns) <= told.error_ns + while_asked


def test_a_clock_that_stands_still_costs_no_more_than_the_worse_of_two_looks() -> None:
    """No drift was seen: 5 before and 9 after is 9."""
    assert drifted(Clock(100, 5, "measured"), Clock(100, 9, "measured")) == Clock(100, 9, "measured")
    assert drifted(Clock(100, 5, "measured"), Clock(93, 1, "measured")) == Clock(100, 8, "measured")
