"""Which rows are turns of one conversation."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from loadgen.plan import Blocks

FEWEST_BLOCKS = 2  # that a conversation must share: one may be the system prompt


class _Conversations:
    """Sessions as they grow: each row continues a row that none has continued, or begins one."""

    def __init__(self) -> None:
        self.session: list[int] = []
        self.turn: list[int] = []
        self._begun = 0

    def add(self, before: int | None) -> None:
        if before is None:
            self.session.append(self._begun)
            self.turn.append(1)
            self._begun += 1
        else:
            self.session.append(self.session[before])
            self.turn.append(self.turn[before] + 1)

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        return np.array(self.session, np.int64), np.array(self.turn, np.int32)


def by_chat(chat: Iterable[int], parent: Iterable[int]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Session and turn of each row: it continues the row whose chat is its parent.

    The second answer to one parent begins a session of its own, as does a row whose parent is not there
    or comes later.
    """
    found, open_chats = _Conversations(), dict[int, int]()
    for row, (mine, before) in enumerate(zip(chat, parent, strict=True)):
        found.add(open_chats.pop(before, None))
        open_chats[mine] = row
    return found.columns()


def by_number(number: Iterable[int]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Session and turn of each row: rows of one number are a conversation."""
    found, latest = _Conversations(), dict[int, int]()
    for row, mine in enumerate(number):
        found.add(latest.get(mine))
        latest[mine] = row
    return found.columns()


def by_blocks(
    blocks: Blocks, prompt_tokens: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Session and turn of each row, where nothing but the blocks tells.

    A row continues the latest earlier row whose full blocks, two or more, are all at the beginning of its
    own, which has more; each row is continued once.
    """
    found, trie, ends_at = _Conversations(), dict[tuple[int, int], int](), dict[int, list[int]]()
    for row, full in enumerate((prompt_tokens // blocks.tokens).tolist()):
        node, path = 0, []
        for block in blocks.of(row)[:full]:
            node = trie.setdefault((node, block), len(trie) + 1)
            path.append(node)
        earlier = [ends_at[at] for at in path[FEWEST_BLOCKS - 1 : -1] if ends_at.get(at)]
        found.add(max(earlier, key=itemgetter(-1)).pop() if earlier else None)
        ends_at.setdefault(node, []).append(row)
    return found.columns()
