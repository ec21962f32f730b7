"""The plan's rows fall due at their instants, whatever the answers do; each is followed to its end."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from loadgen.agenda import Agenda
from loadgen.client.ahead import Ahead
from loadgen.client.control import Counters, Peers, Stop
from loadgen.client.request import Ask
from loadgen.client.send import TICK_S, Call, Sender
from loadgen.plan import Phase
from loadgen.records import Outcome, RequestRecord
from loadgen.scenario import Scenario
from loadgen.timer import Alarm, Rings

IDLE_NS = 50_000  # with this and twice what it takes to the next due instant, another request is written
ROWS_AT_ONCE = 32  # of a burst: opening so many connections takes about a millisecond


class Pace:
    """Starts each request at its due instant, delivers its record when it ends, and tells the agenda.

    When every row of the plan itself has ended, here and with the peers, the tail in flight is cut: aborted.
    A fault of our own (`crash`, or a record that cannot be delivered) ends the run as `Stop.now` does, and is
    raised when all is down.
    """

    def __init__(
        self,
        agenda: Agenda,
        asks: Ahead,
        sender: Sender,
        scenario: Scenario,
        *,
        on_record: Callable[[RequestRecord], None],
        counters: Counters,
        stop: Stop,
        peers: Peers,
        alarm: Callable[[Rings], Alarm],
    ) -> None:
        self._agenda = agenda
        self._asks = asks
        self._sender = sender
        self._max_in_flight = scenario.load.max_in_flight
        self._max_concurrency = scenario.load.max_concurrency
        self._origin_ns = sender.origin_ns
        self._drain_s = scenario.drain_s
        self._on_record = on_record
        self._counters = counters
        self._stop = stop
        self._peers = peers
        self._alarm = alarm(self._send)
        self._loop = sender.loop
        self._now_ns = sender.now_ns
        self._planned = 0  # rows of the plan itself that fell due and have not ended
        self._in_flight: set[Call] = set()
        # For a slot of max_concurrency, in order; each with what ends its user's patience.
        self._waiting: OrderedDict[Call, asyncio.TimerHandle | None] = OrderedDict()
        self._is_sending = False  # rows that fall due are sent
        self._is_writing = False  # requests are written ahead, in the time that is left
        self._writing_ns = 0  # what the last one took
        self._others: asyncio.Task[None] | None = None  # waits for the peers to land
        self._news = asyncio.Event()  # the last one in flight has ended, or an end is wished for
        self._trouble: BaseException | None = None
        self._lag_from_ns = 0

    async def run(self, landed: Callable[[], None]) -> None:
        """Send every row, wait for all but the tail's to end, and leave nothing in flight.

        `landed` is called when the last row of the plan itself has ended, unless the run is given up before.
        """
        self._stop.wakes(self._news.set)
        self._is_sending = True
        try:
            self._send()
            await self._land(landed)
        finally:
            self._stop.sleeps()
            self._is_sending = False
            self._alarm.close()
            await self._cut_all()
        if self._trouble is not None:
            raise self._trouble

    def crash(self, trouble: BaseException) -> None:
        self._trouble = self._trouble or trouble
        self._is_sending = False
        self._news.set()

    # --- rows falling due -----------------------------------------------------------------------------------

    def _send(self) -> None:
        """Start what is due, some rows at a time, and be called again when the next one is."""
        for _ in range(ROWS_AT_ONCE):
            if self._sends_no_more:
                return
            head, now_ns = self._agenda.head, self._now_ns()
            if head is None or self._origin_ns + head.due_ns > now_ns:
                self._alarm.set(None if head is None else self._origin_ns + head.due_ns)
                self._write()
                return
            self._due(self._asks.take())
        self._loop.call_soon(self._send)  # answers are read before more is sent

    @property
    def _sends_no_more(self) -> bool:
        if not self._is_sending or self._stop.asked:
            return True
        return self._agenda.is_done and (self._others is None or self._others.done())

    def _write(self) -> None:
        """Write requests ahead while there is time."""
        if not self._is_writing:
            self._is_writing = True
            self._loop.call_soon(self._write_one)

    def _write_one(self) -> None:
        head, began_ns = self._agenda.head, self._now_ns()
        left_ns = IDLE_NS if head is None else self._origin_ns + head.due_ns - began_ns
        wants = IDLE_NS + 2 * self._writing_ns
        self._is_writing = self._is_sending and (head is None or left_ns > wants) and self._asks.fill_one()
        self._writing_ns = self._now_ns() - began_ns
        if self._is_writing:
            self._loop.call_soon(self._write_one)

    def _due(self, ask: Ask) -> None:
        self._counters.due += 1
        self._note_lag(self._now_ns() - self._origin_ns - ask.row.due_ns)
        call = Call(self._sender, ask, self._ended)
        self._planned += ask.row.phase != Phase.TAIL
        if self._max_in_flight is not None and len(self._in_flight) >= self._max_in_flight:
            why = f"{self._max_in_flight} requests were in flight (max_in_flight)"
            self._never_starts(call, Outcome.UNSENT, why)
        elif self._max_concurrency is not None and len(self._in_flight) >= self._max_concurrency:
            self._waits(call)
        else:
            self._start(call)

    def _never_starts(self, call: Call, outcome: Outcome, why: str) -> None:
        call.never(outcome, why)
        if outcome is Outcome.ABORTED:
            self._counters.aborted += call.ask.row.phase != Phase.TAIL
        else:
            self._counters.unsent += 1
        self._deliver(call.record())
        self._row_ended(call)

    def _note_lag(self, lag_ns: int) -> None:
        now_ns = self._now_ns()
        if lag_ns / 1e9 > self._counters.lag_s or now_ns - self._lag_from_ns > 1_000_000_000:
            self._counters.lag_s = lag_ns / 1e9
            self._lag_from_ns = now_ns

    # --- rows that wait for a slot --------------------------------------------------------------------------

    def _waits(self, call: Call) -> None:
        timer = None
        if call.hangs_up_ns is not None:
            left_s = (call.hangs_up_ns - self._now_ns()) / 1e9 + TICK_S
            timer = self._loop.call_later(left_s, self._hangs_up, call)
        self._waiting[call] = timer

    def _hangs_up(self, call: Call) -> None:
        del self._waiting[call]
        self._never_starts(call, Outcome.ABANDONED, "the user hung up before a slot was free (patience)")

    def _no_longer_waits(self) -> Call:
        """The one that has waited longest."""
        call, timer = self._waiting.popitem(last=False)
        if timer is not None:
            timer.cancel()
        return call

    def _slot_is_free(self) -> None:
        if self._waiting and not self._stop.asked:
            call = self._no_longer_waits()
            call.slot_ns = self._now_ns()
            self._start(call)

    # --- requests in flight ---------------------------------------------------------------------------------

    def _start(self, call: Call) -> None:
        self._counters.started(call.ask.row.phase)
        self._in_flight.add(call)
        call.start()

    def _ended(self, call: Call) -> None:
        outcome = call.answer.outcome or Outcome.ABORTED
        self._in_flight.discard(call)
        self._counters.ended(call.ask.row.phase, outcome)
        self._deliver(call.record())
        self._row_ended(call)
        self._slot_is_free()

    def _row_ended(self, call: Call) -> None:
        """Its record is delivered: what waited for that may go on."""
        row, answer, head = call.ask.row, call.answer, self._agenda.head
        if well := answer.outcome is Outcome.OK:
            self._asks.heard(call.ask, answer.text)
        ended_us = answer.us(self._now_ns()) if answer.ended_us is None else answer.ended_us
        self._agenda.ended(row, ended_us * 1000, well=well)
        if answer.outcome is not Outcome.ABORTED:  # what we cut ourselves drops no turn
            self._counters.dropped = self._agenda.dropped
        self._planned -= row.phase != Phase.TAIL
        if self._agenda.head is not head:
            self._loop.call_soon(self._send)
        if not self._planned or not self._in_flight:
            self._news.set()

    def _deliver(self, record: RequestRecord) -> None:
        try:
            self._on_record(record)
        except Exception as trouble:
            self.crash(trouble)

    # --- the end --------------------------------------------------------------------------------------------

    async def _land(self, landed: Callable[[], None]) -> None:
        """Wait until every row but the tail's has ended, or for as long as the user lets us."""
        await self._until(lambda: self._agenda.is_done)
        if self._agenda.is_done:
            landed()
            self._others = self._loop.create_task(self._peers.landed())
            self._others.add_done_callback(lambda _: self._news.set())
            self._loop.call_soon(self._send)  # the tail, unless nobody else is on the way
            await self._until(self._others.done)
            self._others.cancel()
        if self._stop.asked:
            await self._drain()

    async def _until(self, met: Callable[[], bool]) -> None:
        while not (met() or self._stop.asked or self._trouble):
            self._news.clear()
            await self._news.wait()

    async def _drain(self) -> None:
        """Let what is in flight come to its end, in the time that the user gives."""
        self._abort_waiting()
        for call in tuple(self._in_flight):
            call.no_more()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                while self._planned and not (self._stop.cutting or self._trouble):
                    self._news.clear()
                    await self._news.wait()

    def _abort_waiting(self) -> None:
        while self._waiting:
            call = self._no_longer_waits()
            self._never_starts(call, Outcome.ABORTED, "the run ended before a slot was free")

    async def _cut_all(self) -> None:
        self._abort_waiting()
        for call in tuple(self._in_flight):
            call.cut(Outcome.ABORTED, "the run ended")
        while self._in_flight:
            self._news.clear()
            await self._news.wait()
