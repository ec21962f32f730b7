"""SGLang's own API, `/generate`. Unless its server says otherwise, a higher priority goes first."""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.client.dialects.chunk import Choice, Chunk, PromptDetails, Tokens, Usage, read
from loadgen.client.dialects.dialect import Dialect, Wish


class Finish(msgspec.Struct, gc=False):
    type: str
    message: str | None = None
    status_code: int | None = None  # of an answer that was refused or failed, instead of a status


class Meta(msgspec.Struct, gc=False):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    reasoning_tokens: Tokens | None = None
    finish_reason: Finish | str | None = None  # a string in old servers

    def usage(self) -> Usage:
        cached = None if self.cached_tokens is None else PromptDetails(self.cached_tokens)
        return Usage(
            self.prompt_tokens, self.completion_tokens, cached, reasoning_tokens=self.reasoning_tokens
        )


class SglangEvent(msgspec.Struct, gc=False):
    """`text` is missing where the server leaves texts to its clients."""

    meta_info: Meta
    text: str | None = None
    output_ids: list[int] | None = None


_decode = msgspec.json.Decoder(SglangEvent).decode


class SglangReader:
    """Tells what each event adds: its text is all that was said so far or, where it is so set, a piece.

    A piece shows when it does not begin with the text before; or is the same, though tokens were added, and
    comes with no more than these. With all ids so far it is whole, as where half a character is held back.
    Old servers send no ids: there a text that has grown is taken to go on growing.
    """

    __slots__ = ("_has_grown", "_is_whole", "_said", "_tokens")

    def __init__(self) -> None:
        self._said = ""
        self._tokens = 0
        self._is_whole = True
        self._has_grown = False

    def __call__(self, data: bytes) -> Chunk | None:
        try:
            event = _decode(data)
        except (msgspec.DecodeError, RecursionError):
            return read(data)
        meta, finish = event.meta_info, event.meta_info.finish_reason
        if isinstance(finish, Finish):
            if finish.status_code is not None:
                return Chunk(error={"message": finish.message}, code=finish.status_code)
            finish = finish.type
        text = event.output_ids if event.text is None else self._added(event, event.text)
        return Chunk([Choice(text=text, finish_reason=finish)], meta.usage())

    def _added(self, event: SglangEvent, text: str) -> str:
        before, tokens = self._said, event.meta_info.completion_tokens or 0
        if not text.startswith(before) or (text and text == before and self._repeats(event, tokens)):
            self._is_whole = False
        self._has_grown |= before not in ("", text)
        self._said, self._tokens = text, tokens
        return text[len(before) :] if self._is_whole else text

    def _repeats(self, event: SglangEvent, tokens: int) -> bool:
        """Whether a text that equals the one before is the next piece."""
        if tokens <= self._tokens:
            return False
        return not self._has_grown if event.output_ids is None else len(event.output_ids) < tokens


def _body(wish: Wish) -> dict[str, Any]:
    return {
        "text" if isinstance(wish.prompt, str) else "input_ids": wish.prompt,
        "sampling_params": {"max_new_tokens": wish.output_tokens, "ignore_eos": wish.ignore_eos},
        "stream": True,
        "priority": wish.priority or None,
    }


SGLANG = Dialect(
    "sglang",
    _body,
    SglangReader,
    needs=frozenset({"text", "input_ids", "sampling_params", "stream"}),
    length_key="max_new_tokens",
)
