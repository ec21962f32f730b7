"""A row of the plan -> the bytes of its request, written before it is due."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from loadgen import __version__
from loadgen.client.address import endpoint_url
from loadgen.load import Load
from loadgen.plan import Phase
from loadgen.scenario import ScenarioError, Target

OURS = {"connection", "expect", "upgrade", "x-request-id"}  # and the framing, which Target refuses itself


@dataclass(slots=True, frozen=True)
class Ask:
    """One row that will fall due, with its request as it goes over the wire."""

    index: int
    id: str
    phase: Phase
    due_ns: int
    prompt_tokens: int
    output_tokens: int
    request: bytes


def body(
    target: Target, model: str | None, prompt: str, output_tokens: int, *, ignore_eos: bool, priority: int = 0
) -> dict[str, Any]:
    """What the target's endpoint is asked. `extra_body` wins over ours; a null in it removes a key."""
    is_chat = target.endpoint == "/v1/chat/completions"
    ours = {
        "messages": [{"role": "user", "content": prompt}] if is_chat else None,
        "prompt": None if is_chat else prompt,
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": ignore_eos or None,
        "max_tokens": output_tokens,
        "priority": priority or None,
    }
    return {key: value for key, value in (ours | target.extra_body).items() if value is not None}


class Form:
    """Writes requests of one shape: everything that does not change from row to row is made once.

    Raises ScenarioError for a key or a run id that would break out of its line, and for headers of ours.
    """

    def __init__(
        self, target: Target, load: Load, *, model: str | None, api_key: str | None, run_id: str
    ) -> None:
        self._target = target
        self._model = model
        self._ignore_eos = load.ignore_eos
        self._head = _head(target, api_key)
        self._run_id = run_id

    def request_id(self, index: int, own_id: str | None) -> str:
        return f"{self._run_id}-{index if own_id is None else own_id}"

    def write(self, request_id: str, prompt: str, output_tokens: int, priority: int) -> bytes:
        encoded = msgspec.json.encode(
            body(
                *(self._target, self._model, prompt, output_tokens),
                ignore_eos=self._ignore_eos,
                priority=priority,
            )
        )
        line = _header("X-Request-ID", request_id)
        return b"%b%bContent-Length: %d\r\n\r\n%b" % (self._head, line, len(encoded), encoded)


def _head(target: Target, api_key: str | None) -> bytes:
    """The request line and every header but X-Request-ID and Content-Length. The user's own headers win."""
    url = urlsplit(endpoint_url(target.base_url, target.endpoint))
    headers = {
        "Host": url.netloc,
        "User-Agent": f"loadgen/{__version__}",
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Connection": "keep-alive" if target.connections == "keep-alive" else "close",
    }
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    own = {name.lower() for name in target.headers}
    if clash := sorted(own & OURS):
        raise ScenarioError(f"target.headers: {clash[0]} is set by the client")
    headers = {name: value for name, value in headers.items() if name.lower() not in own} | target.headers
    lines = b"".join(_header(name, value) for name, value in headers.items())
    path = quote(url.path, safe="/%:@!$&'()*+,;=~")
    return f"POST {path} HTTP/1.1\r\n".encode("ascii") + lines


def _header(name: str, value: str) -> bytes:
    if not re.fullmatch(r"[\t\x20-\x7e\x80-\xff]*", value):
        what = "the API key" if name == "Authorization" else f"the value of {name}"
        raise ScenarioError(f"{what} holds a line break or another character no header can carry")
    return f"{name}: {value}\r\n".encode("latin-1")
