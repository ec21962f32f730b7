"""Why a target cannot be measured, in one line that a user can act on."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from loadgen.client.address import Address
from loadgen.client.secrets import Secrets
from loadgen.client.stranger import is_plain_http, is_tls, stranger
from loadgen.client.tunnel import RefusedError

LOOK_UP_S = 0.5  # for a name that has had all of the time for a connection


class Unreachable(Exception):  # noqa: N818  a finding about the target, not an error of ours
    """The target cannot be reached, or refuses us: one line with what was tried, what it said, and a hint."""


def one_line(text: str, secrets: Secrets, limit: int = 300) -> str:
    """`text` fit to show: every secret masked, printable, on one line, cut after `limit` characters."""
    masked = secrets.masked(text)
    line = " ".join("".join(c if c.isprintable() else " " for c in masked).split())
    return line if len(line) <= limit else line[:limit] + "..."


# --- what a server's body says ------------------------------------------------------------------------------


def own_words(body: bytes) -> str:
    """The message in a body: OpenAI's `error`, FastAPI's `detail`, an HTML page's title, or all of it."""
    text = body.decode("utf-8", "replace")
    if re.match(r"\s*<(!doctype|html|head|body)\b", text, re.IGNORECASE):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        return f"an HTML page titled {' '.join(title[1].split())!r}" if title else "an HTML page"
    try:
        return _message_of(msgspec.json.decode(body)) or text
    except (ValueError, RecursionError):  # ValueError: no JSON, or a number too long to be written
        return text


def _message_of(said: Any) -> str | None:
    """The text in an error value of any of the shapes servers use, or None."""
    if isinstance(said, str):
        return said
    if isinstance(said, list):
        return "; ".join(filter(None, map(_message_of, said))) or None
    if not isinstance(said, dict):
        return None
    if isinstance(said.get("loc"), list) and "msg" in said:
        return f"{'.'.join(map(str, said['loc']))}: {said['msg']}"
    inner = (_message_of(said.get(key)) for key in ("error", "message", "detail", "msg"))
    return next(filter(None, inner), None)


# --- a status that is a refusal -----------------------------------------------------------------------------

_OF_BODY = (
    ("max_completion_tokens", '{"max_tokens": null, "max_completion_tokens": 128} sends that'),
    ("stream_options", '{"stream_options": null} leaves it out; tokens are then counted by events'),
    ("ignore_eos", '{"ignore_eos": null} leaves it out, so does --no-ignore-eos'),
    ("max_tokens", '{"max_tokens": null} leaves it out'),
)
_NO_TEMPLATE = "a model without a chat template needs --endpoint /v1/completions (endpoint)"
PROXY_HINT = "--proxy http://USER:PASSWORD@HOST:PORT (proxy) tells it who asks, --proxy none goes without it"
_SLOW_PROXY = "is the proxy one, and can it reach the server?"
_ANY_BODY = "--extra-body (extra_body) changes what is sent, and a null there removes a key"
_NO_KEY = "no key was sent: export OPENAI_API_KEY=... or name the variable with --api-key-env (api_key_env)"


def refusal(
    status: int,
    words: str,
    *,
    location: str | None,
    key: str | None,
    way_out: str = "",
    tried: Collection[str] = (),
) -> str:
    """A status other than 200 in words, with what to do about it. `words` are the server's own; `key`: what
    was sent as one; `tried`: what of the body was changed already.
    """
    said = f"({status}): {words}" if words.strip() else f"({status}, without a word)"
    if 300 <= status < 400:
        return f"it redirects ({status}) to {location}, which is not followed; give the final base URL"
    if status == 407:
        return f"the proxy refused us {said}; {PROXY_HINT}"
    if status in (401, 403):
        if key is None:
            return f"the server refused us {said}; {_NO_KEY}"
        return f"{key} was refused {said}; is it a key of this server's?"
    if status in (404, 405, 501):
        todo = way_out or "check the base URL, endpoint and model"
        return f"the server knows no such path or model {said}; {todo}"
    if status >= 500:
        return f"the server failed {said}; its log may say why"
    return f"the server refused the request {said}; {way_out or _hint(words.lower(), tried)}"


def _hint(words: str, tried: Collection[str]) -> str:
    if "chat template" in words:
        return _NO_TEMPLATE
    found = (json for key, json in _OF_BODY if key in words and key not in tried)
    json = next(found, None)
    return f"--extra-body (extra_body) {json}" if json else _ANY_BODY


# --- a connection that fails --------------------------------------------------------------------------------


async def connection_trouble(error: Exception, address: Address) -> str:
    """Why there was no HTTP answer: `error` and its causes, told apart by what a user can do about them."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, TimeoutError) and (why := await _unnamed(address) or await _plain(address)):
            return why
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLCertVerificationError):
            return await _no_tls(cause, address)
        if told := _told(cause, address):
            return told
    return await _no_http(causes, address)


def _told(cause: BaseException, address: Address) -> str | None:
    """What one cause alone tells."""
    import httpx

    host, port = address.dialled
    match cause:
        case RefusedError() | httpx.ProxyError():
            return f"no way through the proxy ({cause}); {PROXY_HINT}"
        case FileNotFoundError() | ConnectionRefusedError() if address.unix_socket:
            return f"nothing listens there ({cause.strerror}); is the server up?"
        case socket.gaierror():
            return f"the host name {host} does not resolve ({cause.strerror})"
        case ConnectionRefusedError():
            return f"connection refused: nothing listens on port {port} of {host}; is the server up?"
        case ssl.SSLCertVerificationError():
            distrust = f"its certificate is not trusted ({cause.verify_message})"
            return (
                f"{distrust}; name the authority with --ca-file (ca_file), or trust it: --insecure (insecure)"
            )
        case TimeoutError():
            why = "a wrong host, a firewall, or does it hang?"
            return f"no connection in time; {_SLOW_PROXY if address.is_tunnelled else why}"
    return None


async def _no_tls(error: ssl.SSLError, address: Address) -> str:
    if plain := await _plain(address):
        return plain
    why = await who(address) or "if the server speaks plain HTTP, write http:// in the base URL"
    return f"no TLS ({error.reason}); {why}"


async def silence(address: Address) -> str:
    """Of a server that takes what is asked, and says nothing."""
    return await _unnamed(address) or await _plain(address) or await who(address) or "does it hang?"


async def _plain(address: Address) -> str | None:
    """Of one that was asked with TLS and answers without."""
    if address.tls and not address.way and await is_plain_http(*address.dialled):
        return "the server speaks plain HTTP and was asked with TLS; write http:// in the base URL"
    return None


async def _unnamed(address: Address) -> str | None:
    """Of one whose name is still being looked up."""
    host, port = address.dialled
    if address.unix_socket is None:
        try:
            async with asyncio.timeout(LOOK_UP_S):
                await asyncio.get_running_loop().getaddrinfo(host, port)
        except TimeoutError:
            return f"the host name {host} was not looked up in time; does the name server answer?"
        except OSError as error:
            return f"the host name {host} does not resolve ({error.strerror})"
    return None


async def _no_http(causes: list[BaseException], address: Address) -> str:
    """Of a connection that stood, and brought no answer in HTTP/1.1."""
    if not address.tls and not address.way and await is_tls(*address.dialled):
        return "the server speaks TLS and was asked in plain HTTP; write https:// in the base URL"
    if not address.tls and (what := await who(address)):
        return what
    if any("illegal" in str(cause) for cause in causes):
        return "what answers is not HTTP/1.1; is it another service's port?"
    told = next((str(cause) for cause in reversed(causes) if str(cause)), type(causes[0]).__name__)
    wants = (
        "a server that wants a certificate of ours (--cert-file, cert_file), or one"
        if address.tls
        else "a server"
    )
    return f"the connection failed before any answer ({told}); {wants} that crashes?"


async def who(address: Address) -> str | None:
    """Who listens there, if it is a stranger to HTTP/1.1 that can be told."""
    return None if address.way else await stranger(*address.dialled)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error`, what it came from, and so on; httpx and anyio wrap what the system said several times."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _causes(one)
    elif cause := error.__cause__ or error.__context__:
        yield from _causes(cause)
