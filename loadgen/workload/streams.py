"""Random numbers by seed, purpose and position: no purpose disturbs another's stream."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

WORDS_PER_COUNT = 4  # Philox makes four 64-bit words from each value of its counter


def key(*parts: object) -> int:
    """128 bits from SHA-256 over `parts`, each written as text on a line of its own."""
    text = "".join(f"{len(part)}:{part}\n" for part in map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")


def uniforms(seed: int, purpose: str, start: int, n: int) -> NDArray[np.float64]:
    """Numbers `start` to `start + n` of the purpose's stream, float64 in the open interval (0, 1).

    Number i depends on seed, purpose and i alone: not on how many are drawn, nor on any other purpose.
    Only raw Philox words are used, which NumPy keeps stable; its distributions may change between versions.
    """
    skipped = start % WORDS_PER_COUNT
    words = np.random.Philox(key=key(seed, purpose), counter=start // WORDS_PER_COUNT).random_raw(skipped + n)
    # 52 bits and a half: the largest is 1 - 2^-53. With 53 bits the half would round it up to 1.
    return ((words[skipped:] >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def random_bytes(key: int, row: int, n: int) -> NDArray[np.uint8]:
    """`n` bytes for `row`; the first ones are the same for every `n`."""
    words = np.random.Philox(key=key, counter=row << 64).random_raw(-(-n // 8))
    return words.astype("<u8").view(np.uint8)[:n]
