"""When each row of a plan falls due, where some wait for the answers of others. It is told the time."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import chain

from msgspec.structs import replace

from loadgen.plan import NONE, Phase, Plan, Row


class Agenda:
    """A plan's rows, and then its tail's if wanted, each with the instant at which it does fall due.

    A row of its own falls due at `due_ns`. One that waits for another (`after`), when that has ended and its
    `think_ns` is over, but not before `due_ns`. In a closed loop (`users`) whoever is free takes the next.

    `head` is the next row whose instant is known (its `due_ns` and `phase` are then as they turn out), None
    where all others wait; `take` hands it out, and `ended` must be told of every row that was taken. A turn
    that did not end well ends its session: its later turns never fall due, nor do those that would after a
    window without a tail. They are counted in `dropped`.

    A session is whole in the plan, or in a block of its tail. Raises ValueError where two rows wait for one.
    """

    head: Row | None

    def __init__(self, plan: Plan, *, tail: bool) -> None:
        self.dropped = 0
        self._window = plan.window
        self._closed = plan.users is not None
        self._users = plan.users or 0
        # Only when such a row falls due is it known whether that is in the window.
        self._moves = plan.window.by == "duration" and (self._closed or plan.has_chains)
        self._tail = tail
        blocks = chain((plan,), plan.tail() if tail or plan.goes_on else ())
        self._ahead: deque[Row] = deque()  # read, and waiting for nothing but their turn, or a user
        self._ready: list[tuple[int, int, Row]] = []  # with an instant of their own, out of the plan's order
        self._fresh: dict[int, Row] = {}  # of both, those that nothing was prepared for yet, by index
        self._awaited: set[int] = set()  # rows that have not ended, and another waits for
        self._waiting: dict[int, Row] = {}  # by the row whose end they wait for
        self._ends_ns: dict[int, int | None] = {}  # of rows that will be asked for; None: not well
        # Rows of the plan itself, unless they turned out to be of the tail, that have not ended, and wait for
        # nobody any more. One that was not read yet is behind such a row, which is not taken yet.
        self._left = 0 if self._closed else int((plan.after == NONE).sum())
        self._rows = chain.from_iterable(map(self._rows_of, blocks))
        self._unread = next(self._rows, None)
        for _ in range(self._users):
            self._serve_user(0)
        self._settle()

    @property
    def is_done(self) -> bool:
        """Whether every row of the plan itself has ended, or never will fall due."""
        return not self._left

    def take(self) -> Row:
        """The head, which is handed out."""
        row = self.head
        assert row is not None
        self._fresh.pop(row.index, None)
        if self._ready and self._ready[0][2] is row:
            heapq.heappop(self._ready)
        else:
            self._ahead.popleft()
        self._settle()
        return row

    def goes_on(self, row: Row) -> bool:
        """Whether another row waits for this one, which has not ended yet."""
        return row.index in self._awaited

    def read_ahead(self, until_ns: int) -> Row | None:
        """A row that was not given here before, so that something can be prepared for it.

        One that the plan has by `until_ns`, or that waited for another which has ended; of a closed loop, one
        of as many as there are users, though it is not known yet when it falls due.
        """
        while not self._fresh and self._unread and self._is_near(self._unread, until_ns):
            self._ahead.append(self._read())
        return self._fresh.pop(next(iter(self._fresh))) if self._fresh else None

    def ended(self, row: Row, at_ns: int, *, well: bool) -> None:
        """A row that was taken has ended; with its answer if `well`."""
        self._left -= row.phase != Phase.TAIL
        if self._closed:
            self._serve_user(at_ns)
        else:
            self._end(row, at_ns if well else None)
        self._settle()

    # --- inside ---------------------------------------------------------------------------------------------

    def _rows_of(self, block: Plan) -> Iterator[Row]:
        if block.has_chains:
            awaited = block.after[block.after != NONE].tolist()
            self._awaited.update(awaited)
            if len(set(awaited)) < len(awaited):
                raise ValueError("two rows of a plan wait for the same one")
        yield from block.rows()

    def _is_near(self, row: Row, until_ns: int) -> bool:
        return len(self._ahead) < self._users if self._closed else row.due_ns <= until_ns

    def _read(self) -> Row:
        row = self._unread
        assert row is not None
        self._unread = next(self._rows, None)
        if row.after == NONE:
            self._fresh[row.index] = row
        return row

    def _settle(self) -> None:
        """Find the head, letting go of the rows before it that wait for others."""
        while not self._closed:
            if not self._ahead and self._unread is not None:
                self._ahead.append(self._read())
            if not self._ahead or self._ahead[0].after == NONE:
                break
            self._release(self._ahead.popleft())
        ready = self._ready[0][2] if self._ready else None
        first = self._ahead[0] if self._ahead and not self._closed else None
        if ready is not None and (first is None or (ready.due_ns, ready.index) < (first.due_ns, first.index)):
            first = ready
        self.head = first

    def _end(self, row: Row, at_ns: int | None) -> None:
        """The row has ended then, or never will well: what does the one do that waits for it?"""
        while row.index in self._awaited:
            self._awaited.remove(row.index)
            follower = self._waiting.pop(row.index, None)
            if follower is None:  # it has not been read yet
                self._ends_ns[row.index] = at_ns
            elif at_ns is not None:
                self._promise(follower, max(follower.due_ns, at_ns + follower.think_ns))
            else:
                self._drop()
                row = follower

    def _release(self, row: Row) -> None:
        """A row that waits for another gets its instant, if that has ended; or none at all."""
        if row.after not in self._ends_ns:
            self._waiting[row.after] = row
        elif (end_ns := self._ends_ns.pop(row.after)) is not None:
            self._promise(row, max(row.due_ns, end_ns + row.think_ns))
        else:
            self._drop()
            self._end(row, None)

    def _serve_user(self, free_ns: int) -> None:
        """A user is free, and thinks about the next row."""
        if self._ahead or self._unread is not None:
            row = self._ahead.popleft() if self._ahead else self._read()
            self._promise(replace(row, phase=Phase.MEASURED) if self._moves else row, free_ns + row.think_ns)

    def _promise(self, row: Row, due_ns: int) -> None:
        """The row will fall due then: in the tail, if that is past the window."""
        phase = self._phase(due_ns) if self._moves else row.phase
        if phase == Phase.TAIL and not self._tail:
            self._drop()
            self._end(row, None)
            return
        self._left += phase != Phase.TAIL
        row = replace(row, due_ns=due_ns, phase=phase)
        heapq.heappush(self._ready, (due_ns, row.index, row))
        if row.after != NONE:
            self._fresh[row.index] = row

    def _phase(self, due_ns: int) -> Phase:
        if due_ns < self._window.start_ns:
            return Phase.WARMUP
        return Phase.MEASURED if due_ns < self._window.end_ns else Phase.TAIL

    def _drop(self) -> None:
        """The row never falls due. A closed loop's next one was never promised to anybody."""
        self.dropped += not self._closed
