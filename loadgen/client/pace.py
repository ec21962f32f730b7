"""The plan's rows fall due at their instants, whatever the answers do; each is followed to its end."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from loadgen.agenda import Agenda
from loadgen.client.ahead import Ahead
from loadgen.client.control import Counters, Stop
from loadgen.client.request import Ask
from loadgen.client.send import TICK_S, Call, Sender
from loadgen.plan import Phase
from loadgen.records import Outcome, RequestRecord
from loadgen.scenario import Scenario
from loadgen.timer import Timer

IDLE_NS = 500_000  # with this long to the next due instant there is time to write another request
ROWS_AT_ONCE = 32  # of a burst: opening so many connections takes about a millisecond


class Pace:
    """Starts each request at its due instant, delivers its record when it ends, and tells the agenda.

    When every row of the plan itself has ended, the tail in flight is cut: aborted. A fault of our own
    (`crash`, or a record that cannot be delivered) ends the run as `Stop.now` does, and is raised when all is
    down.
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
        timer: Timer,
    ) -> None:
        self._agenda = agenda
        self._asks = asks
        self._sender = sender
        self._max_in_flight = scenario.load.max_in_flight
        self._max_concurrency = scenario.load.max_concurrency
        self._origin_ns = sender.origin_ns
        self._drain_ns = round(scenario.drain_s * 1e9)
        self._on_record = on_record
        self._counters = counters
        self._stop = stop
        self._timer = timer
        self._now_ns = sender.now_ns
        self._planned = 0  # rows of the plan itself that fell due and have not ended
        self._in_flight: dict[Call, asyncio.Task[None]] = {}
        # For a slot of max_concurrency, in order; each with what ends its user's patience.
        self._waiting: OrderedDict[Call, asyncio.TimerHandle | None] = OrderedDict()
        self._trouble: BaseException | None = None
        self._lag_from_ns = 0

    async def run(self) -> None:
        """Send every row, wait for all but the tail's to end, and leave nothing in flight."""
        self._stop.wakes(self._timer)
        try:
            count = 0
            while await self._falls_due():
                self._due(self._asks.take())
                count += 1
                if count % ROWS_AT_ONCE == 0 or not self._asks.is_due(self._now_ns() - self._origin_ns):
                    await asyncio.sleep(0)  # what is due goes out, and answers are read, before more is done
            await self._land()
        finally:
            self._stop.sleeps()
            await self._cut_all()
        if self._trouble is not None:
            raise self._trouble

    def crash(self, trouble: BaseException) -> None:
        self._trouble = self._trouble or trouble
        self._timer.ring()

    # --- rows falling due -----------------------------------------------------------------------------------

    async def _falls_due(self) -> bool:
        """Wait for the next row's instant; False when no more rows are to fall due."""
        while not (self._stop.asked or self._trouble or self._agenda.is_done):
            head, now_ns = self._agenda.head, self._now_ns()
            due_ns = None if head is None else self._origin_ns + head.due_ns
            if due_ns is not None and now_ns >= due_ns:
                return True
            if (due_ns is None or due_ns - now_ns > IDLE_NS) and self._asks.fill_one():
                await asyncio.sleep(0)
            else:
                await self._timer.until(due_ns)
        return False

    def _due(self, ask: Ask) -> None:
        self._counters.due += 1
        self._note_lag(self._now_ns() - self._origin_ns - ask.row.due_ns)
        call = Call(self._sender, ask)
        self._planned += ask.row.phase != Phase.TAIL
        if self._max_in_flight is not None and len(self._in_flight) >= self._max_in_flight:
            why = f"{self._max_in_flight} requests were in flight (max_in_flight)"
            self._never_starts(call, Outcome.UNSENT, why)
        elif self._max_concurrency is not None and len(self._in_flight) >= self._max_concurrency:
            self._waits(call)
        else:
            self._start(call)

    def _never_starts(self, call: Call, outcome: Outcome, why: str) -> None:
        call.cut(outcome, why)
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
            timer = asyncio.get_running_loop().call_later(left_s, self._hangs_up, call)
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
        self._in_flight[call] = asyncio.get_running_loop().create_task(self._follow(call))

    async def _follow(self, call: Call) -> None:
        outcome = Outcome.ABORTED
        try:
            record = await self._record_of(call)
            outcome = record.outcome
            self._deliver(record)
        except Exception as bug:
            self.crash(bug)
        finally:
            del self._in_flight[call]
            self._counters.ended(call.ask.row.phase, outcome)
            self._row_ended(call)
            self._slot_is_free()

    async def _record_of(self, call: Call) -> RequestRecord:
        try:
            return await call.run()
        except Exception as bug:
            self.crash(bug)
            call.cut(Outcome.ABORTED, f"a bug in loadgen: {bug!r}")
            return call.record()

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
        if not self._planned or self._agenda.head is not head:
            self._timer.ring()

    def _deliver(self, record: RequestRecord) -> None:
        try:
            self._on_record(record)
        except Exception as trouble:
            self.crash(trouble)

    # --- the end --------------------------------------------------------------------------------------------

    async def _land(self) -> None:
        """Wait until every row but the tail's has ended, or for as long as the user lets us."""
        give_up_ns: int | None = None
        while self._planned and not (self._stop.cutting or self._trouble):
            if self._stop.asked:
                self._send_no_more()
                give_up_ns = give_up_ns or self._now_ns() + self._drain_ns
                if not self._planned or self._now_ns() >= give_up_ns:
                    return
            await self._timer.until(give_up_ns)

    def _send_no_more(self) -> None:
        self._abort_waiting()
        for call in self._in_flight:
            call.no_more()

    def _abort_waiting(self) -> None:
        while self._waiting:
            call = self._no_longer_waits()
            self._never_starts(call, Outcome.ABORTED, "the run ended before a slot was free")

    async def _cut_all(self) -> None:
        self._abort_waiting()
        for call in self._in_flight:
            call.cut(Outcome.ABORTED, "the run ended")
        if self._in_flight:
            await asyncio.wait(self._in_flight.values())
