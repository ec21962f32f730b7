"""Rows while they are read: columns that grow, and counts of the rows that were dropped."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from typing import Any

from loadgen.plan import Text
from loadgen.prompts import MAX_PROMPT_TOKENS
from loadgen.trace_source import TraceSource
from loadgen.workload.traces.lines import RowError, mistake
from loadgen.workload.traces.prompts import estimated_tokens

_SHOWN = 3  # of the rows dropped as unreadable
_ID = re.compile(r"[\x21-\x7e]{1,128}")


class Columns:
    """What a reader fills, row by row. `needs_output`: a row without one is dropped.

    `texts`, `ids` and `bodies` are by place, since most files have none. `chat` and `parent` name who
    belongs to whose conversation. `block_ends` is as long as the rows where the format has blocks.
    """

    def __init__(self, asked: TraceSource, seed: int, *, needs_output: bool) -> None:
        self.asked, self.seed = asked, seed
        self.needs_output = needs_output
        self.due_ns, self.prompt, self.output, self.line = array("q"), array("i"), array("i"), array("q")
        self.texts: dict[int, Text] = {}
        self.ids: dict[int, str] = {}
        self.bodies: dict[int, dict[str, Any]] = {}
        self.chat, self.parent = array("q"), array("q")
        self.block_ids, self.block_ends = array("q"), array("q")
        self.dropped: Counter[str] = Counter()
        self.warnings: list[str] = []
        self.odd: Counter[str] = Counter()
        self.unsorted = self.estimated = False
        self._latest_ns: int | None = None

    def __len__(self) -> int:
        return len(self.line)

    def row(self, line: int, due_ns: int | None, prompt: int | None, output: int | None) -> bool:
        """One row; whether it is kept. What else belongs to it is added by the other methods.

        Raises RowError where its prompt is too long to be sent.
        """
        if due_ns is not None:
            self.unsorted |= self._latest_ns is not None and due_ns < self._latest_ns
            self._latest_ns = due_ns
        if not prompt:
            self.dropped["missing_input" if prompt is None else "zero_input"] += 1
            return False
        if output == 0 or (output is None and self.needs_output):
            self.dropped["missing_output" if output is None else "zero_output"] += 1
            return False
        if prompt > MAX_PROMPT_TOKENS:
            raise RowError(f"a prompt has at most {MAX_PROMPT_TOKENS:,} tokens, not {prompt:,}")
        if due_ns is not None:
            self.due_ns.append(due_ns)
        self.prompt.append(prompt)
        self.output.append(output or 0)
        self.line.append(line)
        return True

    def blocks(self, ids: list[int]) -> None:
        """The blocks of the row that was kept last."""
        self.block_ids.extend(ids)
        self.block_ends.append(len(self.block_ids))

    def belongs(self, chat: int, parent: int = -1) -> None:
        """The conversation of the row that was kept last."""
        self.chat.append(chat)
        self.parent.append(parent)

    def says(self, text: Text | None, row_id: Any = None, body: dict[str, Any] | None = None) -> None:
        """What the row that was kept last has written out."""
        place = len(self) - 1
        if text is not None:
            self.texts[place] = text
        if body:
            self.bodies[place] = body
        if row_id is not None and row_id != "":
            self._identify(place, str(row_id))

    def estimate(self, text: Text) -> int:
        """Tokens of a text that nobody counted."""
        self.estimated = True
        return estimated_tokens(text)

    def _identify(self, place: int, row_id: str) -> None:
        """An id of digits alone would be taken for another row's number."""
        if _ID.fullmatch(row_id) is None or row_id.isdecimal():
            self.odd["ids left out: not 1 to 128 printable characters, or digits alone"] += 1
        else:
            self.ids[place] = row_id

    def bad(self, line: int, problem: RowError, file: str | None = None) -> None:
        """A row that cannot be read. Raises ScenarioError unless such rows are to be dropped."""
        if self.asked.bad_rows == "error":
            rule = f"{problem} (bad_rows: drop leaves such rows out)"
            raise mistake(file or self.asked.file, rule, line) from None
        self.dropped["unreadable"] += 1
        if self.dropped["unreadable"] <= _SHOWN:
            self.warnings.append(f"line {line} dropped: {problem}")
