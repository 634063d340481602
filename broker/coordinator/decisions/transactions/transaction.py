"""What a coordinator knows of one transactional id: its producer, and the state of its transaction."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

import msgspec

NO_ID, NO_EPOCH, NO_TIME = -1, -1, -1

EPOCH_MAX = 32_767
"""No producer is given it: whoever has the last epoch that is given can be fenced yet."""
LAST_EPOCH = EPOCH_MAX - 1

TWO_PHASES_TIMEOUT_MS = 2_147_483_647
"""Of a transaction that only its participants end (KIP-939)."""

EPOCH_BUMPS_FROM = 2
"""The transaction.version from which on every end of a transaction bumps the producer's epoch (KIP-890)."""

Partitions = Mapping[str, frozenset[int]]
"""Indexes by topic."""

NOTHING: Partitions = MappingProxyType({})


class State(IntEnum):
    """As records have it."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    """The last two are moments of Kafka's, which no record has."""

    @property
    def told(self) -> str:
        """Kafka's name of it."""
        return self.name.title().replace("_", "")


PREPARED = frozenset((State.PREPARE_COMMIT, State.PREPARE_ABORT))
"""It is decided how the transaction ends; its partitions are being told."""

AT_REST = frozenset((State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
"""There is no transaction."""

BEFORE: Mapping[State, frozenset[State]] = {
    State.EMPTY: AT_REST,
    State.ONGOING: AT_REST | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset((State.ONGOING,)),
    State.PREPARE_ABORT: AT_REST | {State.ONGOING},
    State.COMPLETE_COMMIT: frozenset((State.PREPARE_COMMIT,)),
    State.COMPLETE_ABORT: frozenset((State.PREPARE_ABORT,)),
}
"""From where each state is reached."""


class Transaction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A value: each transition makes another."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    updated_ms: int
    started_ms: int = NO_TIME
    partitions: Partitions = NOTHING
    previous_producer_id: int = NO_ID
    """Until the first transition after the id was exhausted."""
    next_producer_id: int = NO_ID
    """What the producer goes on with when the transaction that is prepared is complete: this one is exhausted then."""
    last_epoch: int = NO_EPOCH
    """With what the producer asked, if it was bumped at its own wish: a repetition is known by it. No record has it."""
    client_version: int = 0
    """The transaction.version by whose rules it is ended."""

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def is_at_rest(self) -> bool:
        return self.state in AT_REST

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= LAST_EPOCH

    @property
    def producer(self) -> tuple[int, int]:
        """Id and epoch with which the producer goes on."""
        return (self.producer_id, self.epoch) if self.next_producer_id == NO_ID else (self.next_producer_id, 0)
