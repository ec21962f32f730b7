"""OpenAI's words: what a request's body asks for, and the bytes of the answer. No sockets."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

MAX_OUTPUT_TOKENS = 131_072

_DONE = b"data: [DONE]\n\n"
_ERROR_TYPES = {401: "authentication_error", 429: "rate_limit_error", 503: "server_error"}


class Refusal(Exception):  # noqa: N818  an answer, not a fault
    """An answer that is an error: a status and OpenAI's error object."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param

    def body(self) -> bytes:
        kind = _ERROR_TYPES.get(self.status, "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a request wants. `model` None: whichever there is."""

    is_chat: bool
    model: str | None
    prompt_tokens: int
    output_tokens: int
    stream: bool
    include_usage: bool
    continuous_usage: bool


def count_tokens(utf8_bytes: int) -> int:
    """Without a tokenizer, four bytes of UTF-8 are a token, rounded up, and at least one."""
    return max(1, -(-utf8_bytes // 4))


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class _Body(msgspec.Struct, kw_only=True):
    """The keys that matter here. All others are accepted and change nothing: `priority`, `ignore_eos`,
    `user`, those of sampling.
    """

    model: str | None = None
    max_tokens: int | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    n: int | None = None


_B = TypeVar("_B", bound=_Body)


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None

    def utf8_bytes(self) -> int:
        parts = [_Part(self.content)] if isinstance(self.content, str) else self.content or []
        return sum(len(part.text.encode()) for part in parts)


class _ChatBody(_Body, kw_only=True):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    max_completion_tokens: int | None = None


class _CompletionBody(_Body, kw_only=True):
    prompt: Annotated[str, msgspec.Meta(min_length=1)] | Annotated[list[int], msgspec.Meta(min_length=1)]


def read_chat(body: bytes) -> Ask:
    """The prompt is as long as its messages' texts together; the answer 128 tokens unless told.

    Raises Refusal (400) for anything else than OpenAI's body.
    """
    asked = _decoded(body, _ChatBody)
    prompt_tokens = count_tokens(sum(message.utf8_bytes() for message in asked.messages))
    output_tokens = _first(asked.max_completion_tokens, asked.max_tokens, 128)
    return _ask(asked, prompt_tokens, output_tokens, is_chat=True)


def read_completion(body: bytes) -> Ask:
    """A prompt of token ids is as long as their number; the answer 16 tokens unless told.

    Raises Refusal (400) for anything else than OpenAI's body.
    """
    asked = _decoded(body, _CompletionBody)
    prompt = asked.prompt
    prompt_tokens = count_tokens(len(prompt.encode())) if isinstance(prompt, str) else len(prompt)
    return _ask(asked, prompt_tokens, _first(asked.max_tokens, 16), is_chat=False)


def _decoded(body: bytes, shape: type[_B]) -> _B:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:  # the latter: nested too deeply
        raise Refusal(400, str(error)) from None


def _ask(asked: _Body, prompt_tokens: int, output_tokens: int, *, is_chat: bool) -> Ask:
    if not 1 <= output_tokens <= MAX_OUTPUT_TOKENS:
        raise Refusal(
            400, f"max_tokens must be from 1 to {MAX_OUTPUT_TOKENS}, got {output_tokens}", param="max_tokens"
        )
    if asked.n not in (None, 1):
        raise Refusal(400, f"this engine gives one choice, got n = {asked.n}", param="n")
    if asked.stream_options is not None and not asked.stream:
        raise Refusal(400, "stream_options is allowed only when stream is true", param="stream_options")
    options = asked.stream_options or _StreamOptions()
    return Ask(
        is_chat=is_chat,
        model=asked.model,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        stream=bool(asked.stream),
        include_usage=options.include_usage,
        continuous_usage=options.include_usage and options.continuous_usage_stats,
    )


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


class Answer:
    """The bytes of one answer. Its text is ` t0 t1 t2 ...`: a reader can tell loss, repeats and order."""

    def __init__(self, ask: Ask, model: str, answer_id: str, created: int) -> None:
        self._ask = ask
        self._header = {
            "id": f"{'chatcmpl' if ask.is_chat else 'cmpl'}-{answer_id}",
            "object": "chat.completion" if ask.is_chat else "text_completion",
            "created": created,
            "model": model,
        }
        if ask.is_chat and ask.stream:
            self._header["object"] = "chat.completion.chunk"
        opening = msgspec.json.encode(self._header)[:-1]
        self._head = b"data: " + opening + b',"choices":[{"index":0,'
        self._text = b'"delta":{"content":"' if ask.is_chat else b'"text":"'
        self._text_end = b'"}' if ask.is_chat else b'"'
        self._usage_only = b"data: " + opening + b',"choices":[]'

    def events(self, number: int) -> list[bytes]:
        """The server-sent events of the answer's `number`-th token, from 1: with the first token comes the
        role, with the last the finish reason, the usage where asked, and the end of the stream.
        """
        is_last = number == self._ask.output_tokens
        events = [self._event(self._text + b" t%d" % (number - 1) + self._text_end, number, is_last)]
        if number == 1 and self._ask.is_chat:
            events.insert(0, self._event(b'"delta":{"role":"assistant","content":""}', 0, is_last=False))
        if is_last:
            if self._ask.include_usage:
                events.append(self._usage_only + self._usage_member(number) + b"}\n\n")
            events.append(_DONE)
        return events

    def whole(self) -> bytes:
        """The answer in one piece."""
        n = self._ask.output_tokens
        text = "".join(f" t{i}" for i in range(n))
        said = {"message": {"role": "assistant", "content": text}} if self._ask.is_chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": "length"}
        return msgspec.json.encode({**self._header, "choices": [choice], "usage": self._usage(n)})

    def _event(self, said: bytes, emitted_tokens: int, is_last: bool) -> bytes:
        reason = b'"length"' if is_last else b"null"
        usage = self._usage_member(emitted_tokens) if self._ask.continuous_usage else b""
        return b'%b%b,"logprobs":null,"finish_reason":%b}]%b}\n\n' % (self._head, said, reason, usage)

    def _usage_member(self, output_tokens: int) -> bytes:
        return b',"usage":' + msgspec.json.encode(self._usage(output_tokens))

    def _usage(self, output_tokens: int) -> dict[str, int]:
        prompt_tokens = self._ask.prompt_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": prompt_tokens + output_tokens,
        }
