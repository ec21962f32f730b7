"""The proxy that the environment names for a target."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from loadgen.client.address import ip_of, is_this_machine
from loadgen.fields import proxy_url
from loadgen.scenario import ScenarioError
from loadgen.target import Target


def proxied(target: Target) -> Target:
    """The target, reached by the proxy that HTTP_PROXY or HTTPS_PROXY names, unless NO_PROXY exempts it.

    What the target says of a proxy itself wins. This machine and Unix sockets are never reached by one.
    Raises ScenarioError for a proxy that cannot be used.
    """
    if target.proxy is not None or target.unix_socket is not None:
        return target
    first, *others = {_named(urlsplit(url)): None for url in target.urls}
    if others:
        raise ScenarioError(
            "HTTP_PROXY, HTTPS_PROXY and NO_PROXY lead to several of the servers by different ways: "
            "give --proxy, a URL or none"
        )
    return target if first is None else target.model_copy(update={"proxy": first})


def _named(url: SplitResult) -> str | None:
    """The environment's proxy for a URL."""
    known = getproxies_environment()
    named = known.get(url.scheme)
    if not named or is_this_machine(url.hostname or "") or _is_exempt(url, known):
        return None
    try:
        return proxy_url(named if "://" in named else f"http://{named}")
    except ValueError as problem:
        raise ScenarioError(
            f"the variable {url.scheme.upper()}_PROXY: {problem}; --proxy none goes without"
        ) from None


def _is_exempt(url: SplitResult, known: dict[str, str]) -> bool:
    """Whether NO_PROXY names the host, one of its domains, or a network around its address."""
    address = ip_of(url.hostname or "")
    networks = (_network(word.strip()) for word in known.get("no", "").split(","))
    around = address is not None and any(address in network for network in networks if network)
    return around or bool(proxy_bypass(url.netloc, known))


def _network(word: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(word, strict=False)
    except ValueError:
        return None
