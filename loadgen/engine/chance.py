"""Seeded chance: a number that its key decides."""

from __future__ import annotations

from hashlib import blake2b


def uniform(seed: int, purpose: str, key: int) -> float:
    """Uniform in [0, 1), the same in every process; another purpose or key gives an independent one."""
    digest = blake2b(f"{seed}/{purpose}/{key}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
