"""Where keys and values lie: each sequence's blocks, in the order of its positions."""

from __future__ import annotations

from collections.abc import Iterable


class Pages:
    """`blocks` blocks of `block_tokens` positions, handed out as sequences grow.

    How many there may be is the scheduler's to decide: it never computes more than it has room for.
    """

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._free = list(range(blocks - 1, -1, -1))
        self._held: dict[int, list[int]] = {}  # by sequence

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    def keep(self, sequences: Iterable[int]) -> None:
        """Free what all others hold."""
        for gone in self._held.keys() - set(sequences):
            self.free(gone)

    def free(self, sequence: int) -> None:
        """All that it holds, if it does."""
        self._free += self._held.pop(sequence, [])

    def blocks(self, sequence: int, positions: int) -> list[int]:
        """Those of its first `positions` positions, which it holds from now on."""
        held, wanted = self._held.setdefault(sequence, []), -(-positions // self.block_tokens)
        while len(held) < wanted:
            held.append(self._free.pop())
        return held[:wanted]
