"""Small requests shaped as the load's, on terms that are learned from what the server refuses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from loadgen.backends import ENDPOINTS, DialectName, dialect_at
from loadgen.client.answer import misfit
from loadgen.client.dialects import Dialect, Wish, dialect
from loadgen.client.inquiry import BODY_LIMIT, Inquiry, Response
from loadgen.client.request import body
from loadgen.client.stream import Stream
from loadgen.client.unreachable import Unreachable, own_words
from loadgen.client.word_tokens import UncountedError
from loadgen.plan import Prompt
from loadgen.target import Target
from loadgen.terms import AS_ASKED, Terms

PROBE_TOKENS = 8
LEAST_TOKENS = 16  # where a server takes no shorter answer, as OpenAI's /v1/responses
TRIES = 8
PAGE_S = 3.0
BUSY_S = 1.0  # a server that has just started is often busy for no longer
BUSY = (429, 503)
ABSENT = (404, 405, 501)
UNTOLD = (401, 403, 407, *BUSY)  # said before it is looked who takes the path
PATIENCE_S = 60.0  # a few tokens that take longer are no use to a person who waits for the run to start
NO_JSON = b"{"  # who takes the path refuses it before any work
# Where another API is looked for, the first that is there is taken.
_IN_ORDER: tuple[DialectName, ...] = ("completions", "responses", "tgi", "sglang", "ollama", "llama.cpp")
_OPENAI = ("chat", "completions")  # where a length has two names
_REFUSING = re.compile(
    r"unsupported|unexpected|unknown|unrecogni[sz]ed|extra|deprecated|instead|not (be )?(supported|permitted"
    r"|allowed|recogni[sz]ed)|no such"
)
_OF_VALUE = re.compile(
    r"at (most|least)|must be|too (large|long|many|big|small)|exceed|(less|greater|larger|smaller|more) than"
    r"|between|maximum|minimum|reduce"
)
_TOO_SHORT = re.compile(r"at least|minimum|>=|(greater|larger|more) than|too (short|small)")
# What a server that refuses ignore_eos takes in its place, by how it refuses.
_OTHERWISE = {"unexpected fields in the request": {"generation_config": json.dumps({"eos_token_id": -1})}}


@dataclass(frozen=True)
class Asking:
    """How one class of the load asks. `name`: the class's, "" where there is but one kind of request."""

    name: str = ""
    model: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    deadline_ms: int | None = None


@dataclass(frozen=True)
class Seen:
    """An answer, what the load's own reader sees in it, and how many tokens were asked for."""

    response: Response
    stream: Stream
    asked_tokens: int = PROBE_TOKENS

    @property
    def is_busy(self) -> bool:
        error = self.stream.error
        return self.response.status in BUSY or (error is not None and error[0] in BUSY)

    @property
    def is_refused(self) -> bool:
        """For what was asked, and not for want of room."""
        error = self.stream.error
        return not self.is_busy and (self.response.status in (400, 422, 501) or error is not None)

    @property
    def is_well(self) -> bool:
        return self.response.status == 200 and self.stream.error is None and self.stream.events > 0

    @property
    def words(self) -> str:
        """The server's own, where it refuses; with the name of the key, which some tell beside."""
        if self.stream.error is not None:
            return self.stream.error[1]
        return own_words(self.response.body)


class Probe:
    """Asks `target`, which may become another endpoint of it, on `terms`, which may change.

    `refused`: for each key that is left out, or renamed, how the server refused it.
    """

    def __init__(self, inquiry: Inquiry, limit_s: float, *, ignore_eos: bool) -> None:
        self.inquiry = inquiry
        self.limit_s = limit_s
        self._ignore_eos = ignore_eos
        self._learns = True
        self.target: Target = inquiry.target
        self.terms: Terms = AS_ASKED
        self.refused: dict[str, str] = {}
        self._least_tokens = 1
        self.endpoints: dict[DialectName, bool | None] | None = None

    def at(self, inquiry: Inquiry) -> Probe:
        """One that asks a further server for the same, and learns nothing there."""
        other = Probe(inquiry, self.limit_s, ignore_eos=self._ignore_eos)
        other.target = inquiry.target.model_copy(update={"endpoint": self.target.endpoint})
        other.terms, other.refused, other._learns = self.terms, self.refused, False
        other._least_tokens = self._least_tokens
        return other

    @property
    def seen_at(self) -> tuple[DialectName, ...]:
        """The API that answers, where it is asked at a path of its own."""
        name = self.target.dialect
        return (name,) if dialect_at(self.target.endpoint) == name else ()

    async def ask(self, asking: Asking, prompt: Prompt, output_tokens: int) -> Seen:
        """Raises Unreachable."""
        output_tokens = max(output_tokens, self._least_tokens)
        asked = self._body(asking, prompt, output_tokens)
        endpoint = self.target.endpoint.replace("{model}", asking.model or "")
        response = await self.inquiry.ask("POST", endpoint, self.limit_s, asked)
        return Seen(response, self._stream(response), output_tokens)

    async def settle(self, asking: Asking, prompt: Prompt, output_tokens: int) -> Seen:
        """Ask until it is taken, or there is nothing left to learn. Raises Unreachable."""
        seen = await self._unless_busy(asking, prompt, output_tokens)
        for _ in range(TRIES * self._learns):
            asked = self._body(asking, prompt, output_tokens)
            if not (self._learned(seen, asked, asking) or self._lengthened(seen) or await self._moved(seen)):
                break
            seen = await self._unless_busy(asking, prompt, output_tokens)
        return seen

    async def _unless_busy(self, asking: Asking, prompt: Prompt, output_tokens: int) -> Seen:
        """A busy server is asked once more."""
        seen = await self.ask(asking, prompt, output_tokens)
        if not seen.is_busy:
            return seen
        await asyncio.sleep(BUSY_S)
        return await self.ask(asking, prompt, output_tokens)

    async def count(self, asking: Asking, prompt: str) -> int:
        """Its tokens as the server counts them. Raises UncountedError."""
        try:
            seen = await self.ask(asking, prompt, 1)
        except Unreachable as trouble:
            raise UncountedError(str(trouble)) from None
        if seen.response.status != 200 or seen.stream.error is not None:
            words = seen.stream.error[1] if seen.stream.error else self.inquiry.words(seen.response)
            raise UncountedError(f"the server answered {seen.response.status}: {words}")
        if seen.stream.usage is None or seen.stream.usage.prompt_tokens is None:
            raise UncountedError("the server does not say how many tokens a prompt has")
        return seen.stream.usage.prompt_tokens

    async def look_for_endpoints(
        self, known: Sequence[DialectName] = (), among: Sequence[DialectName] = tuple(ENDPOINTS)
    ) -> dict[DialectName, bool | None]:
        """Which APIs there are, asked once, without any work for the server; None where it does not tell."""
        if self.endpoints is None:
            names = [name for name in among if name not in known and name != "triton"]
            there = await asyncio.gather(*map(self._is_there, names))
            found = dict(zip(names, there, strict=True)) | dict.fromkeys(known, True)
            self.endpoints = {name: found[name] for name in ENDPOINTS if name in found}
        return self.endpoints

    async def _is_there(self, name: DialectName) -> bool | None:
        try:
            response = await self.inquiry.ask("POST", ENDPOINTS[name], PAGE_S, NO_JSON)
        except Unreachable:
            return None
        if response.status in UNTOLD:
            return None
        is_page = "html" in response.headers.get("content-type", "")
        return response.status not in ABSENT and response.status >= 400 and not is_page

    def _body(self, asking: Asking, prompt: Prompt, output_tokens: int) -> dict[str, Any]:
        wish = Wish(
            asking.model, prompt, output_tokens, self._ignore_eos, asking.priority, asking.deadline_ms
        )
        return body(self.target, self.terms, wish, extra=asking.extra)

    def misfit(self, response: Response) -> str | None:
        """Why a 200 is not the stream that was asked for."""
        kind, encoding = (response.headers.get(f"content-{name}", "") for name in ("type", "encoding"))
        return misfit(kind, encoding, is_lines=dialect(self.target.dialect).is_lines)

    def trouble(self, seen: Seen) -> str | None:
        """Why the load would get no tokens where a 200 came."""
        response, stream = seen.response, seen.stream
        if stream.error is not None:
            return f"an error where tokens were due: {stream.error[1]}"
        if response.end == "late" and not stream.events:
            limit = f"{self.limit_s:g} s: --timeout-first-token, and {PATIENCE_S:g} s at most here"
            return f"the answer began, but no token came in time ({limit})"
        if response.end == "long" and not stream.events:
            return (
                f"over {BODY_LIMIT // 1000} kB came, and no token among them: {self.inquiry.words(response)}"
            )
        if stream.first_event_us is None and response.body:
            content_type = response.headers.get("content-type", "an untyped body")
            got = self.misfit(response) or f"no event in {content_type}"
            words = self.inquiry.words(response)
            return f"{got}: {words}; is the base URL the API's, and no proxy in between?"
        if response.end == "lost":
            return "the connection was lost in the midst of the answer; the server's log may say why"
        return None

    def _stream(self, response: Response) -> Stream:
        """Nothing where the load would not read it as a stream."""
        stream = Stream(dialect(self.target.dialect), keeps_text=True)
        if response.status == 200 and self.misfit(response) is None:
            start = 0
            for at_us, size in response.reads:
                stream.feed(response.body[start : start + size], at_us)
                start += size
            stream.end(response.reads[-1][0] if response.reads else 0)
        return stream

    def _learned(self, seen: Seen, asked: dict[str, Any], asking: Asking) -> bool:
        """Whether the refusal names keys of ours that we can do without, or name otherwise."""
        if not seen.is_refused:
            return False
        words = f"{seen.words} {_param(seen.response.body)}".lower()
        own = set(_keys(self.target.extra_body | asking.extra))
        spoken = dialect(self.target.dialect)
        keys = [key for key in _named(words, asked, spoken) if key not in own]
        for key in keys:
            self.refused[key] = f"{key} is refused ({seen.response.status})"
        self.terms = _without(self.terms, keys, has_two_names=spoken.name in _OPENAI)
        if "ignore_eos" in keys:
            forced = next((keys for said, keys in _OTHERWISE.items() if said in words), {})
            self.terms = replace(self.terms, forced=forced)
        return bool(keys)

    def _lengthened(self, seen: Seen) -> bool:
        """Whether so short an answer is refused, and a longer one was not asked for yet."""
        words = seen.words.lower()
        names = ("max_tokens", "max_completion_tokens", dialect(self.target.dialect).length_key)
        is_short = _TOO_SHORT.search(words) and any(name in words for name in names)
        if not (seen.is_refused and is_short) or self._least_tokens == LEAST_TOKENS:
            return False
        self._least_tokens = LEAST_TOKENS
        return True

    async def _moved(self, seen: Seen) -> bool:
        """Whether another API is there, where the user named none and this one is not."""
        is_ours = (
            self.inquiry.target.backend is None and "endpoint" not in self.inquiry.target.model_fields_set
        )
        if not is_ours or self.endpoints is not None or not _is_elsewhere(seen):
            return False
        found = await self.look_for_endpoints()
        there = next((name for name in _IN_ORDER if found.get(name)), None)
        if there is None:
            return False
        self.refused["endpoint"] = f"{self.target.endpoint} is not there ({seen.response.status})"
        self.target = self.target.model_copy(update={"endpoint": ENDPOINTS[there]})
        return True


def _is_elsewhere(seen: Seen) -> bool:
    status, words = seen.response.status, seen.words.lower()
    names_model = "model" in words and "chat" not in words
    return (status in ABSENT and not names_model) or (status in (400, 422, 500) and "chat template" in words)


def _named(words: str, asked: dict[str, Any], spoken: Dialect) -> Iterator[str]:
    """The keys of `asked` that `words` refuse, but for what the dialect needs, and a length whose value
    is refused.
    """
    words = words.replace("include_usage", "stream_options")
    lengths = {"max_tokens", "max_completion_tokens", spoken.length_key}
    refuses = _REFUSING.search(words) and not _OF_VALUE.search(words)
    for key in _keys(asked):
        is_named = re.search(rf"(?<!\w){re.escape(key)}(?!\w)", words)
        if is_named and key not in spoken.needs and (key not in lengths or refuses):
            yield key


def _keys(asked: dict[str, Any]) -> Iterator[str]:
    for key, value in asked.items():
        yield key
        if isinstance(value, dict):
            yield from value


def _without(terms: Terms, keys: Sequence[str], *, has_two_names: bool) -> Terms:
    """`max_tokens` gets its other name first, where it has one; that refused too, it is left out."""
    left_out = set(keys)
    if has_two_names and "max_tokens" in left_out and terms.length == "max_tokens":
        terms = replace(terms, length="max_completion_tokens")
        left_out -= {"max_tokens", "max_completion_tokens"}
    elif "max_completion_tokens" in left_out:
        left_out.add("max_tokens")
    return replace(terms, without=terms.without | left_out)


def _param(data: bytes) -> str:
    """The key at fault, where an error tells it beside its message."""
    try:
        error = msgspec.json.decode(data)["error"]
        return str(error.get("param") or "")
    except (msgspec.DecodeError, TypeError, KeyError, AttributeError, RecursionError):
        return ""
