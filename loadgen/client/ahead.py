"""Requests written before they are due: no prompt is made at the instant it is to be sent, if it can help."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loadgen.agenda import Agenda
from loadgen.client.conversation import Conversations
from loadgen.client.request import Ask, Form
from loadgen.plan import Prompt, Row

AHEAD_NS = 2_000_000_000
AHEAD_BYTES = 64 * 2**20

Written = tuple[bytes, Prompt | None]  # the request, and what it says where another turn follows


class Ahead:
    """Takes the rows of an agenda out, as Asks. `forms`: by class. `prompt`: a row's own part of its prompt.

    Call `fill_one` when there is time: it writes ahead what is known to be due, or is planned within two
    seconds after the head. A turn is written when the answer before it has come.
    """

    def __init__(
        self,
        agenda: Agenda,
        forms: Sequence[Form],
        prompt: Callable[[Row], Prompt],
        conversations: Conversations,
    ) -> None:
        self._agenda = agenda
        self._forms = forms
        self._prompt = prompt
        self._conversations = conversations
        self._written: dict[int, Written] = {}  # by the row's index
        self._bytes = 0

    def take(self) -> Ask:
        """The head of the agenda, which is taken."""
        row = self._agenda.take()
        written = self._written.pop(row.index, None)
        if written is None:
            request, said = self._write(row)
        else:
            request, said = written
            self._bytes -= len(request)
        form = self._forms[row.class_id]
        return Ask(row, form, form.request_id(row), request, said)

    def fill_one(self) -> bool:
        """Write one more request; False when enough are written."""
        if self._bytes > AHEAD_BYTES:
            return False
        head = self._agenda.head
        row = self._agenda.read_ahead((head.due_ns if head else 0) + AHEAD_NS)
        if row is None:
            return False
        request, _ = self._written[row.index] = self._write(row)
        self._bytes += len(request)
        return True

    def heard(self, ask: Ask, answer: str) -> None:
        """The answer has come, in these words; the next turn may be written."""
        if ask.said is not None:
            self._conversations.heard(ask.row, ask.said, answer)

    def _write(self, row: Row) -> Written:
        prompt = self._conversations.prompt(row, self._prompt(row))
        said = prompt if self._agenda.goes_on(row) else None
        return self._forms[row.class_id].write(row, prompt), said
