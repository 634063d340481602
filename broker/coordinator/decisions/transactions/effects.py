"""What the decisions about transactions ask of the node around them, beside `Effects`."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.broker.coordinator.decisions.effects import Effects, Record
from ottla.broker.coordinator.decisions.transactions.transaction import Partitions
from ottla.runtime.errors import ErrorCode


class Marker(NamedTuple):
    """What partitions are told of how a transaction ended."""

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class TransactionEffects(Effects, Protocol):
    """One shard's hands."""

    def has_room_for(self, records: Sequence[Record]) -> bool:
        """Whether they can be written together."""
        ...


class Sending(Protocol):
    @property
    def left(self) -> Mapping[tuple[str, int], int]:
        """Partitions that have not written it, and the broker through which each is told; -1: nobody leads it, or it answered with an
        error and is told again."""
        ...

    def cancel(self) -> None:
        """Nobody is called back any more."""
        ...


class Markers(Protocol):
    """The way to the leaders of all partitions."""

    def send(self, marker: Marker, partitions: Partitions, done: Callable[[], None]) -> Sending:
        """Tells all partitions, as often as that needs; ``done`` comes when each has written it, or is no more. Never before this
        returns."""
        ...


class Node(Protocol):
    """The node that coordinates."""

    @property
    def markers(self) -> Markers: ...

    @property
    def transaction_version(self) -> int:
        """The cluster's level of transaction.version."""
        ...

    def has(self, topic: str, index: int) -> bool:
        """Whether there is such a partition."""
        ...

    def allocate(self, on_done: Callable[[int, ErrorCode], None]) -> None:
        """Calls back, perhaps at once, with a producer id that nobody has had and NONE, or with why there is none."""
        ...
