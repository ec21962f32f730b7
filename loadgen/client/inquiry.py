"""The control plane: a few small requests to the target, each failure of which is explained."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from loadgen import __version__
from loadgen.client.address import Address, address, endpoint_url
from loadgen.client.secrets import Secrets
from loadgen.client.tunnel import tunnel
from loadgen.client.unreachable import (
    Unreachable,
    connection_trouble,
    one_line,
    own_words,
    refusal,
    silence,
)
from loadgen.faults import ScenarioError
from loadgen.target import Target

if TYPE_CHECKING:
    import httpx

BODY_LIMIT = 262_144


@dataclass
class Response:
    """A status, and how its body ended: `whole`, `late` or `long` where we left, `lost` with the connection.

    `reads`: for each read the microseconds since it was asked, and the bytes.
    """

    what: str
    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    end: Literal["whole", "late", "long", "lost"] = "whole"
    reads: list[tuple[int, int]] = field(default_factory=list)


class Inquiry:
    """Asks the target a few small things, and says what came of it without secrets or control characters."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        target: Target,
        address: Address,
        api_key: str | None,
        connect_s: float,
    ) -> None:
        self.http = http
        self.target = target
        self._address = address
        self._connect_s = connect_s
        self.secrets = Secrets.of(target, api_key)
        self.asked = 0  # requests, of whoever uses `http`
        http.event_hooks = {"request": [self._count]}
        self._has_key = bool(api_key)
        self._is_http = False  # whether any was answered

    async def ask(
        self, method: str, path: str, limit_s: float, body: dict[str, Any] | bytes | None = None
    ) -> Response:
        """The response, or so much of it as came within `limit_s`. Raises Unreachable when no status came.

        `body`: what becomes JSON; bytes go as they are.
        """
        import httpx

        url = endpoint_url(self.target.base_url, path)
        content = msgspec.json.encode(body) if isinstance(body, dict) else body
        what, got = f"{method} {url}{self._address.way}", None
        began_ns = time.perf_counter_ns()
        try:
            async with asyncio.timeout(limit_s):
                await self._find_way(what)
                async with self.http.stream(method, url, content=content) as response:
                    got = Response(what, response.status_code, response.headers)
                    async for data in response.aiter_bytes():
                        got.body += data
                        got.reads.append(((time.perf_counter_ns() - began_ns) // 1000, len(data)))
                        if b"[DONE]" in got.body:
                            break
                        if len(got.body) > BODY_LIMIT:
                            got.end = "long"
                            break
        except TimeoutError:
            if got is None:
                why = "does it hang?" if self._is_http else await silence(self._address)
                raise self.unreachable(what, f"no answer within {limit_s:g} s; {why}") from None
            got.end = "late"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if got is None:
                raise self.unreachable(what, await connection_trouble(error, self._address)) from error
            got.end = "lost"
        self._is_http = True
        return got

    async def _count(self, _: httpx.Request) -> None:
        self.asked += 1

    async def _find_way(self, what: str) -> None:
        """Through a proxy to a TLS server: httpx would wait for the proxy's answer beyond any limit."""
        if not self._address.is_tunnelled:
            return
        try:
            async with asyncio.timeout(self._connect_s):
                way = await tunnel(self._address.dialled[0], self._address)
        except OSError as error:
            raise self.unreachable(what, await connection_trouble(error, self._address)) from error
        way.abort()

    def words(self, response: Response) -> str:
        return one_line(own_words(response.body), self.secrets)

    def unreachable(self, what: str, why: str) -> Unreachable:
        return Unreachable(one_line(f"{what}: {why}", self.secrets, limit=700))

    def refused(
        self, response: Response, way_out: str = "", what: str = "", tried: Collection[str] = ()
    ) -> Unreachable:
        """`way_out`: what to do about it, where more is known than the status tells. `tried`: keys of which
        no hint is of use.
        """
        why = refusal(
            response.status,
            self.words(response),
            location=response.headers.get("location"),
            key=self._key(),
            way_out=way_out,
            tried=tried,
        )
        return self.unreachable(what or response.what, why)

    def _key(self) -> str | None:
        """What we say who we are with; None where we do not."""
        if self._has_key:
            return f"the key in {self.target.api_key_env}" if self.target.api_key_env else "the key"
        is_own = any(name.lower() == "authorization" for name in self.target.headers)
        return "the Authorization of its headers" if is_own else None

    def masked(self, plain: Any) -> Any:
        """JSON-able `plain` with every text in it fit to be shown and kept."""
        if isinstance(plain, dict):
            return {self.masked(key): self.masked(value) for key, value in plain.items()}
        if isinstance(plain, list | tuple):
            return [self.masked(value) for value in plain]
        return one_line(plain, self.secrets) if isinstance(plain, str) else plain


@asynccontextmanager
async def inquire(target: Target, api_key: str | None, connect_s: float) -> AsyncIterator[Inquiry]:
    import httpx

    where = address(target)
    transport = httpx.AsyncHTTPTransport(
        verify=where.tls or False,  # plain HTTP: spare httpx the loading of certificates
        limits=httpx.Limits(max_keepalive_connections=0),  # no request meets a connection gone stale
        trust_env=False,
        proxy=target.proxy if where.proxy else None,
        uds=where.unix_socket,
    )
    async with httpx.AsyncClient(
        headers=_headers(target, api_key),
        timeout=httpx.Timeout(None, connect=connect_s),
        transport=transport,
        trust_env=False,
    ) as http:
        yield Inquiry(http, target, where, api_key, connect_s)


def _headers(target: Target, api_key: str | None) -> httpx.Headers:
    """Ours, and the user's own in their place where both have one."""
    import httpx

    if api_key and not re.fullmatch(r"[\x21-\x7e]+", api_key):
        raise ScenarioError(
            f"the key in {target.api_key_env} holds what no header may carry, such as a space or a line break"
        )
    headers = {
        "accept": "text/event-stream, application/json",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": f"loadgen/{__version__}",
        "x-request-id": "preflight",
    }
    if api_key:
        headers["authorization"] = f"Bearer {api_key}"
    own = {name.lower(): value.strip() for name, value in target.headers.items()}
    return httpx.Headers(headers | own, encoding="latin-1")
