"""The servers that share a load: which of them each request goes to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from hashlib import blake2b
from itertools import chain
from typing import Self

import numpy as np

from loadgen.client.address import address
from loadgen.client.control import Counters, Stop
from loadgen.client.lookup import look_up, may_spread, usable
from loadgen.client.pool import FOREVER_S, Pool, Reading, clock_of
from loadgen.client.wire import ReceiveClock, Watch
from loadgen.health import Health
from loadgen.plan import NONE, Plan, Row
from loadgen.scenario import Client
from loadgen.target import Target


class Servers:
    """Each base URL of a target; of a name with several addresses, each address that takes a connection.

    All turns of a session go to the same one, whose cache may know what was said before. `round_robin` goes
    by the place of a row, or of its session, in the whole plan, so that each of the `processes` that share it
    asks all servers by turns; `random` by `seed` and that place. `least_in_flight` counts what this process
    has on the way. One that is down keeps its share.
    """

    def __init__(
        self,
        target: Target,
        health: Health,
        *,
        manner: Client,
        counters: Counters,
        on_bug: Callable[[BaseException], None],
        seed: int = 0,
        processes: int = 1,
        connect_s: float = FOREVER_S,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._target = target
        self._addresses = [(one, address(one)) for one in target.each()]
        self._health = health
        self._counters = counters
        self._on_bug = on_bug
        self._seed = seed
        self._processes = processes
        self._warm = manner.warm
        self._connect_s = connect_s
        self._now_ns = now_ns
        health.clock = clock_of(target, manner.clock)
        self._reading: Reading | None = None
        self._pools: list[list[Pool]] = []  # of each base URL, one or one for each address
        self._of_session: dict[int, Pool] = {}  # where what is in flight decides

    async def __aenter__(self) -> Self:
        """Look the names up, once for the whole run."""
        if self._health.clock == "kernel":
            self._reading = Reading(ReceiveClock(), Watch())
        each = (self._pools_of(place) for place in range(len(self._addresses)))
        self._pools = await asyncio.gather(*each)
        self.all = [*chain.from_iterable(self._pools)]
        self._only = self.all[0] if len(self.all) == 1 else None
        return self

    async def _pools_of(self, place: int) -> list[Pool]:
        target, where = self._addresses[place]
        url = target.base_url if self._target.more_urls else None
        if where.unix_socket is not None:
            return [self._pool(place, url)]
        found = await look_up(where)
        ips = found.ips
        if may_spread(where, ips):
            ips = await usable(where, ips, self._health.address_faults)
            if len(ips) > 1:
                turned = [ips[at:] + ips[:at] for at in range(len(ips))]
                return [self._pool(place, url, own, spreads=True) for own in turned]
        return [self._pool(place, url, ips, found.none)]

    def _pool(
        self, place: int, url: str | None, ips: tuple[str, ...] = (), none: str = "", *, spreads: bool = False
    ) -> Pool:
        return Pool(
            self._addresses[place][1],
            self._health,
            place=place,
            url=url,
            ips=ips,
            no_address=none,
            spreads=spreads,
            keep_alive=self._target.connections == "keep-alive",
            counters=self._counters,
            on_bug=self._on_bug,
            reading=self._reading,
            now_ns=self._now_ns,
        )

    async def __aexit__(self, *_: object) -> None:
        """Close every connection and wait until they are gone."""
        for pool in self.all:
            await pool.close()
        if self._reading is not None:
            self._health.reads_unstamped = self._reading.clock.unstamped
            self._reading.clock.close()
            self._reading.watch.close()

    def look(self) -> float | None:
        """Look at the clocks of the kernel's stamps anew. How many seconds what was read since the last look
        had waited for that, at most; None where no kernel tells.
        """
        if self._reading is None:
            return None
        clock = self._reading.clock
        clock.sync()
        longest_s, clock.longest_wait_ns = clock.longest_wait_ns / 1e9, 0
        return longest_s

    # --- which ----------------------------------------------------------------------------------------------

    def pick(self, row: Row) -> Pool:
        """The one that is to answer a row which is about to be sent."""
        if self._only is not None:
            return self._only
        if self._target.balance == "least_in_flight":
            return self._least_busy(row.session)
        return self._in_turn(row.index if row.session == NONE else row.session)

    def _in_turn(self, place: int) -> Pool:
        """By the place of a row, or a session. Base URLs come first: each has its share, however many
        addresses."""
        turn = sum(divmod(place, self._processes))  # a process has every P-th place
        if self._target.balance == "random":
            turn = int.from_bytes(blake2b(b"%d %d" % (self._seed, place), digest_size=8).digest())
        turn, at = divmod(turn, len(self._pools))
        return self._pools[at][turn % len(self._pools[at])]

    def _least_busy(self, session: int) -> Pool:
        """Of several alike, the one that was asked least."""
        pool = self._of_session.get(session) or min(self.all, key=lambda one: (one.in_flight, one.asked))
        if session != NONE:
            self._of_session[session] = pool
        return pool

    # --- warm connections -----------------------------------------------------------------------------------

    async def warm_up(self, stop: Stop, plan: Plan) -> None:
        """Open what is to be warm, or leave it where the user wishes to end before.

        Raises Unreachable where a server does not take as many connections as were asked for.
        """
        opening = asyncio.create_task(self._open_warm(plan))
        stop.wakes(opening.cancel)
        if stop.asked:
            opening.cancel()
        try:
            await asyncio.wait([opening])
        finally:
            stop.sleeps()
            opening.cancel()
        if not opening.cancelled():
            opening.result()

    async def _open_warm(self, plan: Plan) -> None:
        for pool in self.all:
            await pool.open_warm(self._share(pool, plan), self._connect_s)

    def _share(self, pool: Pool, plan: Plan) -> int:
        """Of the warm connections: as many as the plan's first rows will want there."""
        if self._only is not None:
            return self._warm
        if self._target.balance == "least_in_flight":
            return len(range(self.all.index(pool), self._warm, len(self.all)))
        places = np.where(plan.session == NONE, plan.index, plan.session)
        firsts = np.resize(places, self._warm).tolist() if len(places) else []
        return sum(self._in_turn(place) is pool for place in firsts)
