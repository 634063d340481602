"""Who is let in at the controllers' door, and who has to make room. A value: the gate does as it says.

Whoever listens on a network is visited by strangers. They may not keep out the nodes of the cluster, so a visitor that has not shown
where it belongs gives way to the next one: first those of the address that has most of them. Nobody gives way who has shown it.
"""

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V", bound=Hashable)

UNKNOWN_BYTES_MAX = 256 << 10
"""What one who has not shown where it belongs may send in one message, whole or not. A node of an older version shows nothing, and
sends small requests mostly."""
KNOCK_S = 5.0
"""From a connection to its first whole message."""
KNOWN_FIRST_MESSAGE_S = 30.0
"""The same for a node of this cluster: its message may be large, and its network slow."""


class DoorLimits(NamedTuple):
    """How many connections there may be at once. Each takes three descriptors: its socket, and both ends of the one inside."""

    in_all: int = 2000
    per_address: int = 1000

    @classmethod
    def within(cls, descriptors: int) -> "DoorLimits":
        """A quarter of the process's descriptors at most."""
        usual = cls()
        in_all = max(16, min(usual.in_all, descriptors // 12))
        return cls(in_all, max(12, min(usual.per_address, in_all // 2)))


class Admission(Generic[V]):
    """The visitors inside, by address, those that are unknown in the order in which they came."""

    def __init__(self, limits: DoorLimits) -> None:
        self._limits = limits
        self._known: dict[str, dict[V, None]] = {}
        self._unknown: dict[str, dict[V, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, visitor: V, address: str) -> V | None:
        """Who has to go for ``visitor``, which is in then: None, another, or itself when nobody gives way."""
        goes: V | None = None
        if len(self._known.get(address, ())) + len(self._unknown.get(address, ())) >= self._limits.per_address:
            goes = self._oldest(address, visitor)
        elif self._count >= self._limits.in_all:
            most = max(self._unknown, key=lambda each: len(self._unknown[each]), default=address)
            goes = self._oldest(most, visitor)
        if goes is not visitor:
            self._unknown.setdefault(address, {})[visitor] = None
            self._count += 1
        return goes

    def _oldest(self, address: str, otherwise: V) -> V:
        """The stranger of an address that came first; it leaves with this."""
        oldest = next(iter(self._unknown.get(address, ())), otherwise)
        if oldest is not otherwise:
            self.leave(oldest, address)
        return oldest

    def know(self, visitor: V, address: str) -> None:
        """A visitor has shown that it belongs here."""
        if _take(self._unknown, visitor, address):
            self._known.setdefault(address, {})[visitor] = None

    def forget(self, visitor: V, address: str) -> None:
        """What it had shown counts no more: its conversation is over."""
        if _take(self._known, visitor, address):
            self._unknown.setdefault(address, {})[visitor] = None

    def leave(self, visitor: V, address: str) -> None:
        """A visitor is gone. Twice does nothing."""
        if _take(self._unknown, visitor, address) or _take(self._known, visitor, address):
            self._count -= 1


def _take(places: dict[str, dict[V, None]], visitor: V, address: str) -> bool:
    at = places.get(address)
    if at is None or visitor not in at:
        return False
    del at[visitor]
    if not at:
        del places[address]
    return True
