"""Which replicas are in sync: the three states of a partition's ISR, and what moves it between them.

The controller owns the ISR; the leader proposes. Between proposal and answer two readings differ (Kafka's Partition.scala):
the *committed* ISR counts for min.insync.replicas at produce time, the *maximal* ISR counts for the high watermark, so that
it never passes a replica the controller may still hold to be in sync.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

from ottla.broker.replication.decisions.replica import BrokerStanding, ReplicaState
from ottla.runtime.errors import ErrorCode


class Committed(msgspec.Struct, frozen=True):
    """Nothing is proposed; leader and controller agree."""

    committed: tuple[int, ...]

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.committed

    @property
    def proposed(self) -> tuple[int, ...] | None:
        return None


class PendingExpand(msgspec.Struct, frozen=True):
    """``added`` was proposed: it already holds the high watermark back, it does not yet count as in sync."""

    committed: tuple[int, ...]
    added: int

    @property
    def maximal(self) -> tuple[int, ...]:
        return (*self.committed, self.added)

    @property
    def proposed(self) -> tuple[int, ...] | None:
        return (*self.committed, self.added)


class PendingShrink(msgspec.Struct, frozen=True):
    """``removed`` was proposed: until the controller agrees each of them could be elected, so each still counts."""

    committed: tuple[int, ...]
    removed: tuple[int, ...]

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.committed

    @property
    def proposed(self) -> tuple[int, ...] | None:
        return tuple(member for member in self.committed if member not in self.removed)


IsrState = Committed | PendingExpand | PendingShrink


class Proposal(msgspec.Struct, frozen=True):
    """What an AlterPartition asks for: the new ISR as (broker id, broker epoch) pairs, under the epochs it was made in.

    The leader recovery state is not in it: after an unclean election the new leader counts itself recovered at once, and
    every proposal says RECOVERED.
    """

    state: PendingExpand | PendingShrink
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


class Answer(msgspec.Struct, frozen=True):
    """The controller's answer to a proposal; the fields after ``error`` count only when it is 0."""

    error: int
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    min_in_sync: int = 0
    """min.insync.replicas as the controller goes by it; 0: it did not say."""


class Outcome(Enum):
    """What the leader does when the controller has answered an AlterPartition."""

    ADOPT = "take the ISR and partition epoch of the answer"
    REVERT = "the replica may not join: back to the committed ISR"
    AWAIT_METADATA = "the proposal is outdated: stay pending until the metadata log tells more"
    RETRY = "send the proposal again"


_OUTCOMES = {
    ErrorCode.NONE: Outcome.ADOPT,
    ErrorCode.INELIGIBLE_REPLICA: Outcome.REVERT,
    ErrorCode.OPERATION_NOT_ATTEMPTED: Outcome.REVERT,
    ErrorCode.FENCED_LEADER_EPOCH: Outcome.AWAIT_METADATA,
    ErrorCode.INVALID_UPDATE_VERSION: Outcome.AWAIT_METADATA,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Outcome.AWAIT_METADATA,
    ErrorCode.UNKNOWN_TOPIC_ID: Outcome.AWAIT_METADATA,
    ErrorCode.INVALID_REQUEST: Outcome.AWAIT_METADATA,
    ErrorCode.NEW_LEADER_ELECTED: Outcome.AWAIT_METADATA,
}


def outcome_of(error: int) -> Outcome:
    """The table of kraft.md 3.3 for an AlterPartition answer; any other error is worth a retry."""
    return _OUTCOMES.get(ErrorCode(error), Outcome.RETRY)


def may_join(
    replica: ReplicaState, standing: BrokerStanding | None, high_watermark: int, leader_epoch_start_offset: int
) -> bool:
    """Whether a follower outside the ISR has what a member must have, and may be a member.

    It must hold everything consumers can see and everything up to where this leader's epoch began: with less it could be
    elected and lose acknowledged records. A fetch sent by an earlier life of its broker (another broker epoch) proves nothing.
    """
    if replica.log_end_offset < high_watermark or replica.log_end_offset < leader_epoch_start_offset:
        return False
    return is_eligible(replica, standing)


def is_eligible(replica: ReplicaState, standing: BrokerStanding | None) -> bool:
    """Whether the controller would take the replica's broker into an ISR: alive, staying, and the one that fetched."""
    if standing is None or standing.fenced or standing.shutting_down:
        return False
    return replica.broker_epoch in (-1, standing.epoch)


def out_of_sync(
    isr: tuple[int, ...],
    leader_id: int,
    replicas: Mapping[int, ReplicaState],
    leader_end_offset: int,
    now_ms: int,
    lag_time_max_ms: int,
) -> tuple[int, ...]:
    """ISR members that have been behind for longer than ``replica.lag.time.max.ms``. There is no criterion by count."""
    return tuple(
        member
        for member in isr
        if member != leader_id and not replicas[member].is_caught_up(leader_end_offset, now_ms, lag_time_max_ms)
    )
