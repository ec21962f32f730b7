"""Requests written before they are due: no prompt is made at the instant it is to be sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from loadgen.client.request import Ask, Form
from loadgen.plan import Phase, Plan

AHEAD_NS = 2_000_000_000
AHEAD_BYTES = 64 * 2**20
ROWS_A_TIME = 4096

Row = tuple[int, int, int, int, int, int, str | None]


class Ahead:
    """The rows of a plan, and then of its tail if wanted, in due order as Asks. Iterating takes them out.

    Call `fill_one` when there is time: it writes ahead what is due within two seconds after the row in hand.
    """

    def __init__(self, plan: Plan, form: Form, prompt: Callable[[int, int], str], *, tail: bool) -> None:
        self._rows = rows(plan, tail=tail)
        self._next = next(self._rows, None)
        self._form = form
        self._prompt = prompt
        self._written: deque[Ask] = deque()
        self._bytes = 0

    def __iter__(self) -> Iterator[Ask]:
        while self._written or self._next:
            if not self._written:
                self._write()
            ask = self._written.popleft()
            self._bytes -= len(ask.request)
            yield ask

    def fill_one(self, due_ns: int) -> bool:
        """Write one more request; False when enough are written. `due_ns`: of the row in hand."""
        if self._next is None or self._next[1] > due_ns + AHEAD_NS or self._bytes > AHEAD_BYTES:
            return False
        self._write()
        return True

    def is_due(self, at_ns: int) -> bool:
        """Whether the next row is written, and due by `at_ns`."""
        return bool(self._written) and self._written[0].due_ns <= at_ns

    def _write(self) -> None:
        assert self._next is not None
        index, due_ns, prompt_tokens, output_tokens, phase, priority, own_id = self._next
        request_id = self._form.request_id(index, own_id)
        request = self._form.write(request_id, self._prompt(index, prompt_tokens), output_tokens, priority)
        self._written.append(
            Ask(index, request_id, Phase(phase), due_ns, prompt_tokens, output_tokens, request)
        )
        self._bytes += len(request)
        self._next = next(self._rows, None)


def rows(plan: Plan, *, tail: bool) -> Iterator[Row]:
    """(index, due_ns, prompt_tokens, output_tokens, phase, priority, own id) of each row, lazily."""
    columns = (plan.index, plan.due_ns, plan.prompt_tokens, plan.output_tokens, plan.phase, plan.priority)
    for start in range(0, len(plan), ROWS_A_TIME):
        part = slice(start, start + ROWS_A_TIME)
        ids = (None,) * len(plan.index[part]) if plan.ids is None else plan.ids[part]
        yield from zip(*(column[part].tolist() for column in columns), ids, strict=True)
    for block in plan.tail() if tail else ():
        yield from rows(block, tail=False)
