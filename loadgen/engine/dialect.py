"""OpenAI's words: what a request's body asks for, and the words of a refusal. No sockets."""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

import msgspec

from loadgen.engine.text import MAX_OUTPUT_TOKENS
from loadgen.engine.tokens import MAX_TOKEN_ID, count_tokens

MAX_CHOICES = 128
"""The largest `n`."""

DONE = b"data: [DONE]\n\n"
_ERROR_TYPES = {
    401: "authentication_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}


class Refusal(Exception):  # noqa: N818  an answer, not a fault
    """An answer that is an error: a status and OpenAI's error object."""

    def __init__(
        self, status: int, message: str, code: str | int | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param

    def body(self) -> bytes:
        kind = _ERROR_TYPES.get(self.status, "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})

    def event(self) -> bytes:
        """The same in a stream whose status has left already, as its `code`; and the stream's end."""
        return b"data: %b\n\n%b" % (Refusal(self.status, self.message, self.status).body(), DONE)


Prompt = bytes | list[int]
"""A text in UTF-8, or the ids of its tokens."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a request wants. `model` None: whichever there is; `seed` None: any."""

    is_chat: bool
    model: str | None
    prompt: Prompt
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    stop: tuple[str, ...]
    n: int
    priority: int
    deadline_s: float | None
    seed: int | None
    stream: bool
    include_usage: bool
    continuous_usage: bool

    @property
    def prompt_tokens(self) -> int:
        return count_tokens(len(self.prompt)) if isinstance(self.prompt, bytes) else len(self.prompt)


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False
    continuous_usage_stats: bool = False


_Tokens = Annotated[int, msgspec.Meta(ge=1, le=MAX_OUTPUT_TOKENS)]
_Id = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKEN_ID)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Body(msgspec.Struct, kw_only=True):
    """The keys that matter here. All others are accepted and change nothing: `user`, `logprobs`, those of
    sampling.
    """

    model: str | None = None
    max_tokens: _Tokens | None = None
    min_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_OUTPUT_TOKENS)] | None = None
    ignore_eos: bool | None = None
    stop: _Text | Annotated[list[_Text], msgspec.Meta(max_length=16)] | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)] | None = None
    priority: _Number | None = None
    deadline_ms: Annotated[float, msgspec.Meta(ge=0)] | None = None
    seed: _Number | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


_B = TypeVar("_B", bound=msgspec.Struct)


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None

    def utf8(self) -> bytes:
        parts = [_Part(self.content)] if isinstance(self.content, str) else self.content or []
        return b"".join([part.text.encode() for part in parts])


_Messages = Annotated[list[_Message], msgspec.Meta(min_length=1)]


class _ChatBody(_Body, kw_only=True):
    messages: _Messages
    max_completion_tokens: _Tokens | None = None


class _CompletionBody(_Body, kw_only=True):
    prompt: _Text | Annotated[list[_Id], msgspec.Meta(min_length=1)]


class _TokenizeBody(msgspec.Struct, kw_only=True):
    model: str | None = None
    prompt: str | None = None
    messages: _Messages | None = None


def read_chat(body: bytes) -> Ask:
    """The prompt is its messages' texts together; the answer 128 tokens at most unless told.

    Raises Refusal (400) for anything else than OpenAI's body.
    """
    asked = _decoded(body, _ChatBody)
    max_tokens = _first(asked.max_completion_tokens, asked.max_tokens, 128)
    return _ask(asked, _utf8(asked.messages), max_tokens, is_chat=True)


def read_completion(body: bytes) -> Ask:
    """The prompt is one text or the ids of its tokens; the answer 16 tokens at most unless told.

    Raises Refusal (400) for anything else than OpenAI's body.
    """
    asked = _decoded(body, _CompletionBody)
    prompt = asked.prompt.encode() if isinstance(asked.prompt, str) else asked.prompt
    return _ask(asked, prompt, _first(asked.max_tokens, 16), is_chat=False)


def read_tokenize(body: bytes) -> tuple[str | None, bytes]:
    """The model that was named, and a prompt, given as `prompt` or as `messages`.

    Raises Refusal (400) for another body.
    """
    asked = _decoded(body, _TokenizeBody)
    if (asked.prompt is None) == (asked.messages is None):
        raise Refusal(400, "give either a prompt or messages", param="prompt")
    text = _utf8(asked.messages or []) if asked.prompt is None else asked.prompt.encode()
    return asked.model, text


def _utf8(messages: list[_Message]) -> bytes:
    return b"".join([message.utf8() for message in messages])


def _decoded(body: bytes, shape: type[_B]) -> _B:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:  # the latter: nested too deeply
        where = re.search(r"\$\.(\w+)|field `(\w+)`", str(error))
        message = str(error)
        if where and where[0] == "$.prompt" and "`str`" in message:
            message += ": a prompt is one text, or one list of token ids"
        raise Refusal(400, message, param=where and (where[1] or where[2])) from None


def _ask(asked: _Body, prompt: Prompt, max_tokens: int, *, is_chat: bool) -> Ask:
    min_tokens = asked.min_tokens or 0
    if min_tokens > max_tokens:
        raise Refusal(400, f"min_tokens {min_tokens} is above max_tokens {max_tokens}", param="min_tokens")
    if asked.stream_options is not None and not asked.stream:
        raise Refusal(400, "stream_options is allowed only when stream is true", param="stream_options")
    options = asked.stream_options or _StreamOptions()
    return Ask(
        is_chat=is_chat,
        model=asked.model,
        prompt=prompt,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        ignore_eos=bool(asked.ignore_eos),
        stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ()),
        n=asked.n or 1,
        priority=asked.priority or 0,
        deadline_s=None if asked.deadline_ms is None else asked.deadline_ms / 1000,
        seed=asked.seed,
        stream=bool(asked.stream),
        include_usage=options.include_usage,
        continuous_usage=options.include_usage and options.continuous_usage_stats,
    )


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
