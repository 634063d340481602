"""What a fetcher needs of the broker that leads. `ottla.broker.links.leader` is the real one: here nobody knows of sockets and bytes."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.broker.fetch_tuples import FetchedPartition, FetchPartition


class FetchRequest(NamedTuple):
    """One request of a follower's session. Sizes in bytes, times in ms."""

    session_id: int
    session_epoch: int
    partitions: Sequence[tuple[bytes, Sequence[FetchPartition]]]
    forgotten: Sequence[tuple[bytes, Sequence[int]]]
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


OnFetched = Callable[[int, int, Sequence[tuple[bytes, Sequence[FetchedPartition]]]], Iterator[int]]
"""Given an error code, the session's id and (topic id, answers). What it returns takes them in piece by piece, and says how many bytes each
had; when it ends, the records are gone."""

OnFound = Callable[[tuple[int, int] | None], None]
"""Told where the log begins and ends, None if the leader does not say."""


class Leader(Protocol):
    """The other broker. Whoever opened it was told ``on_up`` each time that it may be asked, ``on_lost`` each time that it may not any more:
    then nothing comes any more of what was asked before."""

    @property
    def is_up(self) -> bool: ...

    def has_ended(self) -> bool:
        """Whether it was up and closed the connection, also when the loop has not come to hear of it yet."""
        ...

    def connect(self) -> None:
        """From now on it is connected whenever it can be."""
        ...

    def move(self, address: tuple[str, int] | None) -> bool:
        """Where it is to be reached, None if nobody knows. False if that is no news; else it is not up, and nothing comes any more."""
        ...

    def worked(self) -> None:
        """An answer was of use: the next failure is a first one again."""
        ...

    def break_off(self, reason: str) -> None:
        """It answers what it should not: it is to be reached anew, after a pause."""
        ...

    def close(self) -> None: ...

    def fetch(self, asked: FetchRequest, on_fetched: OnFetched) -> None:
        """While it is up; two at a time."""
        ...

    def find_offsets(self, topic: str, index: int, leader_epoch: int, on_found: OnFound) -> None:
        """For a follower that is out of its range; while it is up. Many may be asked for at once."""
        ...


OnLost = Callable[[bool], None]
"""Told whether it was the leader that closed the connection, as a process that ends does."""

OpenLeader = Callable[[int, Callable[[], None], OnLost], Leader]
"""Given the leader's id, what is told when it is up, and what when it is lost."""
