"""The ways between the nodes of a cluster and to its clients: one proxy each."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

QUORUM, REPLICATION, CLIENTS = "quorum", "replication", "clients"
KINDS = (QUORUM, REPLICATION, CLIENTS)


class Link(NamedTuple):
    """Connections that ``source`` opens to ``target``; ``source`` 0 stands for all clients.

    ``quorum`` leads to a controller's listener: votes, metadata, heartbeats, what brokers ask the controller. ``replication``
    leads to a broker's: fetches of followers, markers of transactions, a controller's knocks.
    """

    kind: str
    source: int
    target: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.source}-{self.target}" if self.source else f"{self.kind}-{self.target}"


class Ends(NamedTuple):
    """A link with its ports: where the proxy listens, and the target's own."""

    link: Link
    listen: int
    upstream: int


def links_of(brokers: Sequence[int], controllers: Sequence[int]) -> list[Link]:
    """Every ordered pair of nodes of which one connects to the other, and clients to each broker."""
    nodes = sorted({*brokers, *controllers})
    return [
        *(Link(CLIENTS, 0, broker) for broker in brokers),
        *(Link(QUORUM, source, target) for source in nodes for target in controllers if source != target),
        *(Link(REPLICATION, source, target) for source in nodes for target in brokers if source != target),
    ]


def between(links: Iterable[Link], one: Iterable[int], other: Iterable[int]) -> list[Link]:
    """Those that nodes of one side open to nodes of the other, whichever opens."""
    left, right = set(one), set(other)
    return [
        each
        for each in links
        if (each.source in left and each.target in right) or (each.source in right and each.target in left)
    ]
