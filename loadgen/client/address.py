"""Where requests go: whom to dial, through what, and by which TLS."""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from loadgen.faults import ScenarioError
from loadgen.fields import NO_PROXY
from loadgen.target import Target

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A plain HTTP proxy. `authorization`: the value of its Proxy-Authorization header."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """How to reach a target. `host` and `port` are base_url's own, and `host` is whom TLS must meet.

    At most one of `unix_socket`, its path, and `proxy` is there to be dialled in their stead.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    unix_socket: str | None = None
    proxy: Proxy | None = None

    @property
    def dialled(self) -> tuple[str, int]:
        """The host and port of the TCP connection."""
        return (self.host, self.port) if self.proxy is None else (self.proxy.host, self.proxy.port)

    @property
    def way(self) -> str:
        """The detour, if there is one, in words that follow a URL."""
        if self.proxy is not None:
            return f" by the proxy {joined(*self.dialled)}"
        return "" if self.unix_socket is None else f" at the socket {self.unix_socket}"

    @property
    def authority(self) -> str:
        """Host and port as a proxy is told them."""
        return joined(self.host, self.port)

    @property
    def is_tunnelled(self) -> bool:
        """Whether the proxy is asked for a way through, rather than handed each request."""
        return self.proxy is not None and self.tls is not None


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address(target: Target) -> Address:
    """Raises ScenarioError when a certificate or key cannot be used."""
    url = urlsplit(target.base_url)
    return Address(
        url.hostname or "",
        url.port or PORTS[url.scheme],
        tls_context(target),
        target.unix_socket,
        proxy(target),
    )


def proxy(target: Target) -> Proxy | None:
    if target.proxy in (None, NO_PROXY):
        return None
    url = urlsplit(target.proxy)
    authorization = None
    if url.username is not None:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(url.hostname or "", url.port or PORTS["http"], authorization)


def endpoint_url(base_url: str, endpoint: str, model: str | None = None) -> str:
    """`base_url` and `endpoint` joined; a /v1 at the end of the base is the endpoint's own. `model`: stands
    where the endpoint has {model}.

    >>> endpoint_url("http://host:8000/v1", "/v1/models")
    'http://host:8000/v1/models'
    """
    at = endpoint.replace("{model}", quote(model or "", safe=""))
    return base_url.rstrip("/").removesuffix("/v1") + at


def tls_context(target: Target) -> ssl.SSLContext | None:
    """How to check the server: by `ca_file`, by the system's, or not at all if `insecure`. None for http.

    And how to be known to it: by `cert_file`.
    """
    if not target.base_url.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
    except OSError as error:
        raise ScenarioError(f"target.ca_file {target.ca_file!r}: {error.strerror or error}") from error
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if target.cert_file is not None:
        _show_ourselves(context, target.cert_file, target.key_file)
    return context


def _show_ourselves(context: ssl.SSLContext, cert_file: str, key_file: str | None) -> None:
    def password() -> str:  # without it OpenSSL asks at the terminal
        raise ScenarioError(
            f"target.key_file {key_file or cert_file!r}: a password locks the key: "
            "give an unlocked one, as openssl pkey -in KEY -out UNLOCKED makes"
        )

    for name, path in (("cert_file", cert_file), ("key_file", key_file or cert_file)):
        try:
            Path(path).open("rb").close()  # OpenSSL does not say which of the two it missed
        except OSError as error:
            raise ScenarioError(f"target.{name} {path!r}: {error.strerror or error}") from None
    try:
        context.load_cert_chain(cert_file, key_file, password)
    except ssl.SSLError:
        raise ScenarioError(
            f"target.cert_file {cert_file!r}: no PEM certificate there that goes with a PEM key in "
            + (repr(key_file) if key_file else "the same file; give key_file where it is elsewhere")
        ) from None


def is_this_machine(host: str) -> bool:
    """Whether it is loopback."""
    ip = ip_of(host)
    return host == "localhost" or host.endswith(".localhost") or (ip is not None and ip.is_loopback)


def ip_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
