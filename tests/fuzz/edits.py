"""Small damage to good content: what a full disk, a bad cable, an editor or an enemy makes of it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable

ODD = (
    b"", b"0", b"-1", b"-0.0", b"1e309", b"1e308", b"-1e308", b"1e-320", b"NaN", b"Infinity", b".nan",
    b"null", b"true", b"false", b'""', b'"a"', b"[]", b"{}", b"[1]", b'{"a":1}', b"9" * 19, b"9" * 20,
    b"9" * 30, b"9" * 5000, b"4294967296", b"2147483648", b"255", b"1.5", b"\x00", b"\xff", b'"\\ud800"',
    b'"\xff"', b"[" * 3000, b'{"a":' * 3000, b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n", b"\n\n", b"\x1b[31m",
    b"\xe2\x80\xa8", b'"' + b"x" * 5000 + b'"', b",", b":", b";", b"#", b'"', b"'", b"../x", b"1/0",
    b"10000d", b'"{\\"x\\":' + b"[" * 1500 + b'"', rb'"\u001b[31mred\u202e\n::error::"',
)  # fmt: skip
_WORD = re.compile(rb'"[^"\n]*"|[\w.+-]+')
Edit = tuple[str, int, int, bytes]


def _flip(content: bytes, at: int, by: int, _: bytes) -> bytes:
    return content[:at] + bytes([content[at] ^ (1 << by % 8)]) + content[at + 1 :] if content else content


def _cut(content: bytes, at: int, _: int, __: bytes) -> bytes:
    return content[:at]


def _lose(content: bytes, at: int, by: int, _: bytes) -> bytes:
    return content[:at] + content[at + 1 + by % 64 :]


def _insert(content: bytes, at: int, _: int, word: bytes) -> bytes:
    return content[:at] + word + content[at:]


def _replace(content: bytes, at: int, by: int, word: bytes) -> bytes:
    """The first word from `at` on: of JSON, YAML, CSV and metrics alike that is a key or a value."""
    found = _WORD.search(content, at) or _WORD.search(content)
    return content[: found.start()] + word + content[found.end() :] if found else word


def _double(content: bytes, at: int, by: int, _: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join([*lines, *lines[by % len(lines) :][:3]]) if lines else content


def _swap(content: bytes, at: int, by: int, _: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        one, other = content.count(b"\n", 0, at) % len(lines), by % len(lines)
        lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


KINDS: dict[str, Callable[[bytes, int, int, bytes], bytes]] = {
    kind.__name__[1:]: kind for kind in (_replace, _insert, _flip, _cut, _lose, _double, _swap)
}


def damaged(content: bytes, edits: Iterable[Edit]) -> bytes:
    """Each edit is its kind, a place, a number, and a word that it may put there."""
    for kind, at, by, word in edits:
        content = KINDS[kind](content, at % (len(content) or 1), by, word)
    return content


def by_chance(chance: random.Random, words: tuple[bytes, ...] = ()) -> list[Edit]:
    """A few edits, most of them of whole words."""
    kinds = [*KINDS, "replace", "replace", "replace"]
    return [
        (chance.choice(kinds), chance.randrange(2**20), chance.randrange(2**16), chance.choice(ODD + words))
        for _ in range(chance.choice((1, 1, 1, 2, 4)))
    ]
