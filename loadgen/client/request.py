"""A row of the plan -> the bytes of its request, written before it is due."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from loadgen import __version__
from loadgen.client.address import endpoint_url, proxy
from loadgen.client.dialects import Wish, dialect
from loadgen.client.secrets import Secrets
from loadgen.client.unreachable import one_line
from loadgen.fields import JsonObject
from loadgen.load import Load
from loadgen.plan import NONE, Plan, Prompt, Row
from loadgen.scenario import ScenarioError
from loadgen.target import Target
from loadgen.terms import AS_ASKED, Terms

OURS = {"connection", "expect", "upgrade", "x-request-id"}  # and the framing, which Target refuses itself


@dataclass(slots=True, frozen=True)
class Ask:
    """One row that will fall due, with its request as it goes over the wire behind its server's head.

    `said`: its whole prompt, kept only where another turn follows.
    """

    row: Row
    form: Form
    id: str
    request: bytes
    said: Prompt | None = None


def body(
    target: Target,
    terms: Terms,
    wish: Wish,
    *,
    own: JsonObject | None = None,
    extra: JsonObject | None = None,
) -> dict[str, Any]:
    """What the target is asked, in its dialect and on its terms.

    `extra` wins over the target's `extra_body`, that over ours, and ours over what is the row's `own`; a null
    removes a key. An object of ours, such as a dialect's sampling parameters, keeps what these do not name.
    """
    asked = _kept(dialect(target.dialect).body(wish))
    ours, more = terms.applied(asked), target.extra_body | (extra or {})
    parts = {
        key: _kept(value | more[key])
        for key, value in ours.items()
        if isinstance(value, dict) and isinstance(more.get(key), dict)
    }
    return _kept((own or {}) | ours | more | parts)


def _kept(said: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if value is not None}


class Form:
    """Writes the requests of one class: everything that does not change from row to row is made once.

    `name`: of the class, None where there is but one kind of request. `model`, `retry` and `patience_s` are
    as it says; `shown_model` is as a record may have it. `heads`: how a request to each of the target's
    servers begins. `bodies`: what else the rows' bodies hold, by their `source`. Raises ScenarioError for a
    key or a run id that would break out of its line, for headers of ours, and for a path that names a model
    where there is none.
    """

    def __init__(
        self,
        target: Target,
        load: Load,
        name: str,
        *,
        model: str | None,
        api_key: str | None,
        run_id: str,
        terms: Terms = AS_ASKED,
        bodies: Sequence[JsonObject | None] | None = None,
    ) -> None:
        manners = load.mixture[name]
        self.name = name or None
        self.model = manners.model or model
        self.shown_model = self.model and one_line(self.model, Secrets.of(target, api_key))
        self.retry = manners.retry
        self.patience_s = manners.patience_s
        self._bodies = bodies
        self.dialect = dialect(target.dialect)
        self._target = target
        self._terms = terms
        self._extra = manners.extra_body
        self._deadline_ms = None if manners.deadline_s is None else round(manners.deadline_s * 1000)
        self._ignore_eos = load.ignore_eos
        self.heads = [_head(one, self.model, api_key) for one in target.each()]
        self._run_id = run_id

    def request_id(self, row: Row) -> str:
        return f"{self._run_id}-{row.index if row.id is None else row.id}"

    def write(self, row: Row, prompt: Prompt) -> bytes:
        """The request of `row`, behind its head. `prompt`: all of it, as the endpoint takes it."""
        own = self._bodies[row.source] if self._bodies and row.source != NONE else None
        wish = Wish(
            model=self.model,
            prompt=prompt,
            output_tokens=row.output_tokens,
            ignore_eos=self._ignore_eos,
            priority=row.priority,
            deadline_ms=self._deadline_ms,
        )
        encoded = msgspec.json.encode(body(self._target, self._terms, wish, own=own, extra=self._extra))
        line = _header("X-Request-ID", self.request_id(row))
        return b"%bContent-Length: %d\r\n\r\n%b" % (line, len(encoded), encoded)


def forms(
    plan: Plan,
    target: Target,
    load: Load,
    *,
    model: str | None,
    api_key: str | None,
    run_id: str,
    terms: Terms = AS_ASKED,
) -> list[Form]:
    """One for each of the plan's classes, or for the one kind of request there is.

    Raises ScenarioError as Form does, and for a class that `load` does not have.
    """
    known = load.mixture
    if missing := [name for name in plan.classes if name not in known]:
        raise ScenarioError(f"load.classes: {missing[0]!r} is missing, the plan has requests of that class")
    return [
        Form(
            *(target, load, name),
            model=model,
            api_key=api_key,
            run_id=run_id,
            terms=terms,
            bodies=plan.prompts.bodies,
        )
        for name in plan.classes or known
    ]


def _head(target: Target, model: str | None, api_key: str | None) -> bytes:
    """The request line and every header but X-Request-ID and Content-Length. The user's own headers win."""
    if "{model}" in target.endpoint and not model:
        raise ScenarioError(f"target.model is missing, and {target.endpoint} names it")
    url = urlsplit(endpoint_url(target.base_url, target.endpoint, model))
    headers = {
        "Host": url.netloc,
        "User-Agent": f"loadgen/{__version__}",
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Connection": "keep-alive" if target.connections == "keep-alive" else "close",
    }
    through, origin = proxy(target), ""
    if through is not None and url.scheme == "http":  # to TLS it opens a tunnel, and sees no request
        origin = f"http://{url.netloc}"
        if through.authorization is not None:
            headers["Proxy-Authorization"] = through.authorization
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    own = {name.lower() for name in target.headers}
    if clash := sorted(own & OURS):
        raise ScenarioError(f"target.headers: {clash[0]} is set by the client")
    headers = {name: value for name, value in headers.items() if name.lower() not in own} | target.headers
    lines = b"".join(_header(name, value) for name, value in headers.items())
    path = quote(url.path, safe="/%:@!$&'()*+,;=~")
    return f"POST {origin}{path} HTTP/1.1\r\n".encode("ascii") + lines


def _header(name: str, value: str) -> bytes:
    if not re.fullmatch(r"[\t\x20-\x7e\x80-\xff]*", value):
        what = "the API key" if name == "Authorization" else f"the value of {name}"
        raise ScenarioError(f"{what} holds a line break or another character no header can carry")
    return f"{name}: {value}\r\n".encode("latin-1")
