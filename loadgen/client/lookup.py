"""The addresses that a name has, and those of them that a load is spread over."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from loadgen.client.address import Address, joined
from loadgen.units import show_duration

PATIENCE_S = 3.0  # an address that takes no connection in this time is left out


@dataclass(frozen=True, slots=True)
class Found:
    """What a name leads to. `none`: why to nothing."""

    ips: tuple[str, ...] = ()
    none: str = ""


async def look_up(address: Address) -> Found:
    host, port = address.dialled
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: an empty or too long part of the name
        return Found(none=f"{host}: {getattr(error, 'strerror', None) or error}")
    ips = tuple(dict.fromkeys(str(address[0]) for *_, address in found))
    return Found(ips, "" if ips else f"{host} has no address")


def may_spread(address: Address, ips: Iterable[str]) -> bool:
    """Whether a load could be spread over them.

    One address of each family is one server, as a rule: localhost has two. A proxy does its own spreading.
    """
    families = [_family(ip) for ip in ips]
    return address.proxy is None and len(families) > len(set(families))


async def usable(address: Address, ips: tuple[str, ...], faults: dict[str, str]) -> tuple[str, ...]:
    """Those of one family, that which more of them take a connection in; of two alike, the first's.

    The others of that family become `faults`, with the reason. Of none, all are left: each request will tell.
    """
    _, port = address.dialled
    why = dict(zip(ips, await asyncio.gather(*(_refusal(ip, port) for ip in ips)), strict=True))
    taking = [ip for ip in ips if why[ip] is None]
    if not taking:
        return ips
    families = [_family(ip) for ip in taking]
    chosen = max(dict.fromkeys(families), key=families.count)
    for ip, reason in why.items():
        if reason is not None and _family(ip) == chosen:
            faults[joined(ip, port)] = f"left out from the start: {reason}"
    return tuple(ip for ip in taking if _family(ip) == chosen)


def _family(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


async def _refusal(ip: str, port: int) -> str | None:
    """Why no connection is to be had there; None where one is."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            way, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, ip, port)
    except TimeoutError:
        return f"no connection within {show_duration(PATIENCE_S)}"
    except OSError as error:
        return error.strerror or str(error)
    way.abort()
    return None
