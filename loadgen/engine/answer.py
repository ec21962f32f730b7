"""The bytes of an answer in OpenAI's words: server-sent events as tokens come, or one object."""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.engine.choice import Choice
from loadgen.engine.dialect import DONE, Ask


class Answer:
    """One answer, of one or several choices. `tells_cached`: the usage has the prompt's cached tokens."""

    def __init__(
        self,
        ask: Ask,
        choices: list[Choice],
        *,
        model: str,
        answer_id: str,
        created: int,
        tokens_per_event: int = 1,
        tells_cached: bool = False,
    ) -> None:
        self.tokens_per_event = tokens_per_event
        self._ask = ask
        self._choices = choices
        self._tells_cached = tells_cached
        self._unended = len(choices)
        self._header = {
            "id": f"{'chatcmpl' if ask.is_chat else 'cmpl'}-{answer_id}",
            "object": "chat.completion" if ask.is_chat else "text_completion",
            "created": created,
            "model": model,
        }
        if ask.is_chat and ask.stream:
            self._header["object"] = "chat.completion.chunk"
        # What is the same in every event is encoded once.
        self._opening = b'data: %b,"choices":[' % msgspec.json.encode(self._header)[:-1]
        self._text = (b'"delta":{"content":"', b'"}') if ask.is_chat else (b'"text":"', b'"')
        self._heads = [b'%b{"index":%d,%b' % (self._opening, i, self._text[0]) for i in range(len(choices))]
        self._tail = self._closing(b"null") + b"}\n\n"

    def events(self, choice: Choice, tokens: int) -> list[bytes]:
        """What is new now that `choice` has so many tokens: with its first its role, with its last the finish
        reason, and with the last of all choices the usage where asked, and the end of the stream.
        """
        told, choice.told_tokens = choice.told_tokens, tokens
        starts = range(told, tokens, self.tokens_per_event)
        events = [self._event(choice, start, min(start + self.tokens_per_event, tokens)) for start in starts]
        if told == 0 and self._ask.is_chat:
            events.insert(0, self._role(choice))
        if tokens == choice.sequence.output_tokens:
            self._unended -= 1
            if self._unended == 0:
                events += self._end()
        return events

    def _event(self, choice: Choice, start: int, end: int) -> bytes:
        head, text = self._heads[choice.index], choice.text(start, end)
        is_last = end == choice.sequence.output_tokens
        if not is_last and not self._ask.continuous_usage:
            return b"%b%b%b" % (head, text, self._tail)
        reason = b'"%b"' % choice.finish_reason.encode() if is_last else b"null"
        return b"%b%b%b%b}\n\n" % (head, text, self._closing(reason), self._running_usage(end))

    def _closing(self, reason: bytes) -> bytes:
        return b'%b,"logprobs":null,"finish_reason":%b}]' % (self._text[1], reason)

    def _role(self, choice: Choice) -> bytes:
        said = b'{"index":%d,"delta":{"role":"assistant","content":"' % choice.index
        return b"%b%b%b%b}\n\n" % (self._opening, said, self._closing(b"null"), self._running_usage(0))

    def _running_usage(self, tokens: int) -> bytes:
        return self._usage_member(tokens) if self._ask.continuous_usage else b""

    def _end(self) -> list[bytes]:
        if not self._ask.include_usage:
            return [DONE]
        return [b"%b]%b}\n\n" % (self._opening, self._usage_member(self._all_tokens())), DONE]

    def whole(self) -> bytes:
        """The answer in one piece."""
        usage = self._usage(self._all_tokens())
        return msgspec.json.encode(
            {**self._header, "choices": [self._said(choice) for choice in self._choices], "usage": usage}
        )

    def _said(self, choice: Choice) -> dict[str, Any]:
        text = msgspec.json.decode(b'"%b"' % choice.text(0, choice.sequence.output_tokens))
        said = {"message": {"role": "assistant", "content": text}} if self._ask.is_chat else {"text": text}
        return {"index": choice.index, **said, "logprobs": None, "finish_reason": choice.finish_reason}

    def _all_tokens(self) -> int:
        return sum(choice.sequence.output_tokens for choice in self._choices)

    def _usage_member(self, output_tokens: int) -> bytes:
        return b',"usage":' + msgspec.json.encode(self._usage(output_tokens))

    def _usage(self, output_tokens: int) -> dict[str, Any]:
        prompt_tokens = self._ask.prompt_tokens
        usage: dict[str, Any] = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": prompt_tokens + output_tokens,
        }
        if self._tells_cached:
            cached_tokens = self._choices[0].sequence.cached_tokens
            usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
        return usage
