"""What a coordinator's decisions ask of the runtime around them."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from ottla.runtime.errors import ErrorCode

Done = Callable[[ErrorCode], None]
Undo = Callable[[], None]


class Record(NamedTuple):
    """A record of an internal topic. Without a value it says that what its key names is gone."""

    key: bytes
    value: bytes | None
    meaning: tuple[Any, Any | None] | None = None
    """Key and value as messages, where they are known because the record was just made of them."""


class ProducerBatch(NamedTuple):
    """Whose a transaction's batch is. Coordinators count no sequences."""

    producer_id: int
    producer_epoch: int
    base_sequence: int = 0


class Asker(Protocol):
    """Who asked, and gets one answer."""

    @property
    def version(self) -> int:
        """Of the request's API."""
        ...

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...

    def answer(self, response: msgspec.Struct) -> None: ...


class Effects(Protocol):
    """One shard's hands. Everything that is asked for happens in the order in which it was asked."""

    @property
    def clock_ms(self) -> int:
        """A clock that never goes back, for timeouts."""
        ...

    @property
    def time_ms(self) -> int:
        """The time of day, for what is written."""
        ...

    def new_id(self) -> str:
        """A UUID that nobody has had."""
        ...

    def write(self, records: Sequence[Record], done: Done) -> None:
        """Replays records, and appends them. ``done`` is called once: with NONE when they are committed; with an error, perhaps
        before this returns, when they were not appended (then they are undone), or when it cannot be known whether they will be
        committed (then they stay in the state: this shard is about to be dropped, or goes on with replicas that are slow).

        Without records: when everything is committed that is in the state now.
        """
        ...

    def note(self, fact: str) -> None:
        """For the node's log. Of many at once some are left out."""
        ...

    def remind(self, name: Hashable, in_ms: int, call: Callable[[], None]) -> None:
        """Calls back later. A reminder of the same name is replaced."""
        ...

    def soon(self, call: Callable[[], None]) -> None:
        """Calls back in a later turn of the loop: for work of which a piece is done in each, lest everybody waits for the whole."""
        ...

    def forget(self, name: Hashable) -> None:
        """There may be none of that name."""
        ...


class TransactionalEffects(Effects, Protocol):
    """Also of a shard whose records may be part of transactions."""

    def write_transactional(self, records: Sequence[Record], batch: ProducerBatch, guard: int, done: Done) -> None:
        """`write`, as part of the producer's transaction: in a batch of its own, and only if the proof that its coordinator knows of it
        stands. What is refused is nobody else's failure."""
        ...
