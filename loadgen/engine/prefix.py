"""What a prefix cache knows a prompt by: a hash for each of its whole blocks."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from loadgen.engine.tokens import as_bytes


def block_hashes(prompt: bytes | Sequence[int], block_tokens: int) -> tuple[int, ...]:
    """A 64-bit hash for each whole block of `block_tokens` tokens, of everything up to its end: equal hashes
    mean equal prompts so far. The same in every process. A text and its token ids have the same.
    """
    data = as_bytes(prompt)
    width = 4 * block_tokens
    so_far = blake2b(digest_size=8)
    hashes = []
    for end in range(width, len(data) + 1, width):
        so_far.update(data[end - width : end])
        hashes.append(int.from_bytes(so_far.digest(), "little"))
    return tuple(hashes)
