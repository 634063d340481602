"""Where brokers stand, so that the replicas of a partition do not fall together: in racks, and without these on hosts.

A node is one event loop, so a machine of many cores runs several (docs/sizing.md). Brokers that are reached at one host are one
place then, like a rack: they lose power together.
"""

from collections.abc import Iterable
from typing import NamedTuple

SOMEWHERE = ""
"""Of brokers of which nothing says that any two of them stand together."""


class Standing(NamedTuple):
    """A broker, with the host at which clients reach it."""

    id: int
    rack: str | None
    host: str


def places(brokers: Iterable[Standing]) -> dict[int, str]:
    """The place of each broker, by id. A rack counts before a host; hosts count where two brokers without a rack share one.

    All on one host, or each on its own, are as Kafka has them: one rack without a name.
    """
    told = list(brokers)
    hosts = [each.host.lower() for each in told if not each.rack]
    shared = 1 < len(set(hosts)) < len(hosts)
    return {each.id: each.rack or (f"//{each.host.lower()}" if shared else SOMEWHERE) for each in told}


def shared_hosts(brokers: Iterable[Standing], replicas: Iterable[int]) -> list[str]:
    """The hosts that hold more than one of the replicas, though they are not in different racks; sorted."""
    known = {each.id: each for each in brokers}
    hosts = [(known[each].rack, known[each].host.lower()) for each in replicas if each in known]
    return sorted({host for rack, host in hosts if hosts.count((rack, host)) > 1})
