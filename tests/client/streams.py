"""What servers write, and short ways to say it."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes import event

DONE = event("[DONE]")


def delta(finish: str | None = None, **parts: Any) -> bytes:
    """A chat chunk with one choice: `delta(content="a")`."""
    return event({"object": "chat.completion.chunk", "choices": [{"delta": parts, "finish_reason": finish}]})


def say(text: str, finish: str | None = None, usage: int | None = None) -> bytes:
    """A chat chunk that bears text; with `usage`, the completion tokens so far as well."""
    chunk: dict[str, Any] = {"choices": [{"delta": {"content": text}, "finish_reason": finish}]}
    return event(
        chunk | ({} if usage is None else {"usage": {"prompt_tokens": 7, "completion_tokens": usage}})
    )


def text(words: str, finish: str | None = None) -> bytes:
    """A completions chunk."""
    return event({"object": "text_completion", "choices": [{"text": words, "finish_reason": finish}]})


def bill(completion: int, prompt: int = 7, **details: Any) -> bytes:
    """The usage chunk, which has no choices."""
    return event(
        {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion} | details}
    )


def fault(code: Any, message: str = "too busy") -> bytes:
    return event({"error": {"message": message, "type": "server_error", "code": code}})


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def plain(status: int, body: bytes | dict[str, Any] = b"", **headers: str) -> bytes:
    """A whole answer of known length."""
    body = json.dumps(body).encode() if isinstance(body, dict) else body
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Words\r\ncontent-length: {len(body)}\r\n{lines}\r\n".encode() + body


def head(*lines: str, version: str = "1.1", status: str = "200 OK") -> bytes:
    """A status line and headers; of an event stream, unless a line says otherwise."""
    if not any(line.lower().startswith("content-type") for line in lines):
        lines = ("content-type: text/event-stream", *lines)
    return f"HTTP/{version} {status}\r\n{''.join(line + chr(13) + chr(10) for line in lines)}\r\n".encode()
