"""What a server may echo, and no record, file or screen may show."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from loadgen.client.address import proxy
from loadgen.faults import ScenarioError
from loadgen.fields import JsonObject, is_secret, query_secrets
from loadgen.scenario import Scenario, Variant
from loadgen.target import Target

NO_KEY = "none"  # where a variable's name is asked for
SHORTEST = 4  # to mask "a" or "on" wherever it stands would garble every text
SHORTEST_WORD = 8  # within a longer value
BACKSLASHES = 4  # JSON within JSON, twice

_met: set[str] = set()


def key_in(environment: Mapping[str, str], name: str | None) -> str | None:
    """The API key in the variable of that name. Raises ScenarioError when it is not set."""
    if name in (None, NO_KEY):
        return None
    if not environment.get(name):
        raise ScenarioError(f"the variable {name} is not set (api_key_env): export it, or name another")
    _met.add(environment[name])
    return environment[name]


class Secrets:
    """Texts to be masked: in either case, with JSON's escapes, encoded for URLs or HTML, or in any mix; and
    in base64, as a part of whatever was encoded.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        known = sorted({text for text in texts if len(text) >= SHORTEST}, key=len, reverse=True)
        _met.update(known)
        coded = [core for text in known if len(text) >= SHORTEST_WORD for core in _in_base64(text)]
        patterns = ["".join(map(_spellings, text)) for text in (*known, *coded)]
        self._pattern = re.compile("|".join(patterns) or "(?!)", re.IGNORECASE)
        self._reach = (BACKSLASHES + 8) * max(map(len, known), default=0)  # no spelling is longer

    @classmethod
    def of(cls, target: Target, api_key: str | None, *bodies: JsonObject) -> Secrets:
        """The key; the proxy's password; every header's value, what follows its first word, and each of its
        longer words; and in the endpoint's query, `extra_body` and other `bodies` every text under a name
        that sounds like a secret's."""
        through = proxy(target)
        values = [*target.headers.values(), (through and through.authorization) or ""]
        password = urlsplit(target.proxy or "").password or ""
        rests = (value.partition(" ")[2] for value in values)
        words = (word for value in values for word in re.split(r"[\s,;=]+", value))
        long_words = (word for word in words if len(word) >= SHORTEST_WORD)
        named = (text for body in (target.extra_body, *bodies) for text in _texts(body, secret=False))
        asked = query_secrets(target.endpoint)
        texts = (api_key or "", unquote(password), *asked, *values, *rests, *long_words, *named)
        return cls(text.strip() for text in texts)

    def masked(self, text: str) -> str:
        return self._pattern.sub("***", text)

    def kept(self, text: str, limit: int) -> str:
        """`text` as a record may keep it: masked, then cut to `limit` characters, in valid Unicode."""
        near = re.sub("[\ud800-\udfff]", "\ufffd", text[: limit + self._reach])
        # A mask as long as what it hides leaves the cut where it was: a secret that begins before it is whole
        # in `near`, and one that `near` cuts in two begins behind it. The filler occurs nowhere in `near`.
        filled = self._pattern.sub(lambda found: "***".ljust(len(found[0]), "\ud800"), near)
        return filled[:limit].replace("\ud800", "")


NO_SECRETS = Secrets(())
_OF_TLS = "SSLKEYLOGFILE"  # the path of a file, which the user has named for TLS


def meet(scenario: Scenario, environment: Mapping[str, str]) -> None:
    """Know what is secret in it, should there be a crash."""
    sides: list[Scenario | Variant] = [scenario, *scenario.variants.values()]
    for side in sides:
        if side.target is not None:
            bodies = [one.extra_body for one in (side.load or scenario.load).mixture.values()]
            Secrets.of(side.target, environment.get(side.target.api_key_env or ""), *bodies)


def without_secrets(traceback: str) -> str:
    """What a crash says, with nothing in it of any secret that this process has met."""
    return Secrets(_met).masked(traceback)


def environment_of_a_child(api_key: str | None = None) -> dict[str, str]:
    """Ours, less what no process that we start needs: it is told the key, and the proxy, by its pipe."""
    return {name: value for name, value in os.environ.items() if not _is_private(name, value, api_key)}


def _is_private(name: str, value: str, api_key: str | None) -> bool:
    tells_proxy = name.lower().endswith("_proxy") and "@" in value
    named = name != _OF_TLS and (is_secret(name) or name.startswith("OPENAI_"))
    return named or tells_proxy or value == api_key


def _in_base64(text: str) -> Iterator[str]:
    """What stands for it whatever is encoded before and after it, in each of the alphabets."""
    for before in range(3):
        whole = bytes(before) + text.encode()
        for letters in (b"+/", b"-_"):
            coded = base64.b64encode(whole, letters).decode()
            yield coded[-(-8 * before // 6) : 8 * len(whole) // 6]


def _spellings(char: str) -> str:
    """A pattern for every way to write `char`; U+FFFD is what a byte of Latin-1 is read as."""
    escapes = rf"\\{{0,{BACKSLASHES}}}"
    ways = [escapes + re.escape(char), rf"\\{escapes}u{ord(char):04x}", f"%{ord(char):02x}"]
    ways.append(f"&#(?:0{{0,4}}{ord(char)}|x0{{0,4}}{ord(char):x});?")
    if (entity := escape(char)) != char:
        ways.append(re.escape(entity))
    if not char.isascii():
        ways += [quote(char), "\ufffd"]
    return f"(?:{'|'.join(ways)})"


def _texts(value: Any, *, secret: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, secret=secret or is_secret(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, secret=secret)
    elif secret and isinstance(value, str):
        yield value
