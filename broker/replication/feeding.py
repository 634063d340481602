"""A follower's fetch, as the leader takes it in: what it says of the follower, and what the follower was given."""

from typing import TYPE_CHECKING

from ottla.broker.replication.decisions.replica import FollowerContact
from ottla.broker.replication.deleting import settle_deleted
from ottla.broker.replication.joining import consider_expand
from ottla.runtime.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition


def follower_fetched(
    partition: "Partition",
    broker_id: int,
    broker_epoch: int,
    offset: int,
    contact: FollowerContact | None,
    now_ms: int,
    log_start_offset: int = -1,
) -> None:
    """A follower asked for records from ``offset`` on: it has all before, down to ``log_start_offset``.

    Raises KafkaError if it may not ask.
    """
    leader = partition.leader
    if leader is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is led by {partition.leader_id}")
    if leader.knows_newer_life_of(broker_id, broker_epoch):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} has registered anew since")
    replica = leader.fetched(broker_id, broker_epoch, offset, contact, now_ms)
    if replica is None:
        # Perhaps assigned a moment ago, and we do not know yet: this error makes it ask again.
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {broker_id} is no replica of {partition}")
    if offset > leader.high_watermark and leader.advance(now_ms):
        partition.committed(leader)
    if log_start_offset != replica.log_start_offset:
        replica.log_start_offset = log_start_offset
        if partition.delete_waiters:
            settle_deleted(partition)
    consider_expand(partition, broker_id)


def doubted_bytes(partition: "Partition", broker_id: int, offset: int) -> int:
    """How much a follower asks for again of what it was given: it may have refused it (`ReplicaState.asks_again`)."""
    replica = partition.leader.replicas.get(broker_id) if partition.leader is not None else None
    return replica.asks_again(offset) if replica is not None else 0


def served(partition: "Partition", broker_id: int, offset: int, size_bytes: int) -> None:
    """A follower is given records from ``offset`` on."""
    replica = partition.leader.replicas.get(broker_id) if partition.leader is not None else None
    if replica is not None:
        replica.served(offset, size_bytes)
