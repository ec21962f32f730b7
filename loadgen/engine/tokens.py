"""Tokens without a tokenizer: four bytes of UTF-8 each, the last one what is left."""

from __future__ import annotations

import struct
from collections.abc import Sequence

MAX_TOKEN_ID = 2**32 - 1
TOKEN_BYTES = 4


def count_tokens(utf8_bytes: int) -> int:
    """Tokens of a text: its bytes by four, rounded up, and at least one."""
    return max(1, -(-utf8_bytes // 4))


def token_ids(text: bytes) -> list[int]:
    """The ids of a text's tokens: each its four bytes as a number, little-endian, the last filled up with
    zeros.
    """
    return list(struct.unpack(f"<{count_tokens(len(text))}I", as_bytes(text)))


def as_bytes(prompt: bytes | Sequence[int]) -> bytes:
    """Four bytes for each token of a prompt, given as a text or as ids from 0 to MAX_TOKEN_ID."""
    if isinstance(prompt, bytes):
        return prompt.ljust(4 * count_tokens(len(prompt)), b"\0")
    return struct.pack(f"<{len(prompt)}I", *prompt)
