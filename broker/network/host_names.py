"""``max.connections.per.ip.overrides`` may name hosts, and who comes is known by an address: names are looked up, once, as in Kafka."""

import asyncio
import socket
from ipaddress import ip_address

import msgspec

from ottla.broker.network.limits import ServerLimits


def names_in(limits: ServerLimits) -> list[str]:
    """The hosts that were not looked up."""
    return [each for each in limits.connections_per_ip_overrides if not _is_address(each)]


async def with_addresses(limits: ServerLimits) -> tuple[ServerLimits, list[str]]:
    """The limits with all addresses of each host in its name's place (Kafka takes the first), and the names that nobody knows, which stay.

    What is behind counts where two entries mean one address.
    """
    names = names_in(limits)
    if not names:
        return limits, []
    known = dict(zip(names, await asyncio.gather(*map(_addresses, names)), strict=True))
    overrides = {
        address: count
        for each, count in limits.connections_per_ip_overrides.items()
        for address in known.get(each) or [each]
    }
    found = msgspec.structs.replace(limits, connections_per_ip_overrides=overrides)
    return found, [name for name in names if not known[name]]


async def _addresses(name: str) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(place[0]) for *_, place in found]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
