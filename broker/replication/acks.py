"""When a Produce is acknowledged: acks=1 when this broker's copy counts, acks=all when the in-sync replicas have it."""

from typing import TYPE_CHECKING

from ottla.broker.replication.decisions.leader import PartitionLeader
from ottla.broker.replication.purgatory import ParkedRequest
from ottla.log.results import AppendInfo
from ottla.runtime.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition

ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1


def is_done(partition: "Partition", acks: int, info: AppendInfo) -> bool:
    """Whether the client may be told of success right after the append."""
    return not partition.must_sync if acks == ACKS_LEADER else has_committed(partition, info.last_offset)


def has_committed(partition: "Partition", last_offset: int) -> bool:
    """Whether acks=all may be told at once, and nothing but success."""
    leader = partition.leader
    return leader is not None and leader.high_watermark > last_offset and leader.had_enough_in_sync()


def await_acks(partition: "Partition", acks: int, info: AppendInfo, parked: ParkedRequest) -> None:
    """Settles ``parked`` when ``acks`` are there."""
    if acks == ACKS_LEADER:
        _await_stable(partition, info.last_offset, parked)
    else:
        _await_committed(partition, info.last_offset, parked)


def _await_stable(partition: "Partition", last_offset: int, parked: ParkedRequest) -> None:
    """Settles once this broker's own copy is on stable storage: acks=1 on topics that sync first."""
    place = parked.add()
    leader = partition.leader
    if leader is None:
        parked.settle(place, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif leader.stable_end_offset > last_offset:
        parked.settle(place, ErrorCode.NONE)
    else:
        partition.durable_waiters.wait_for(last_offset + 1, parked, place)


def _await_committed(partition: "Partition", last_offset: int, parked: ParkedRequest) -> None:
    """Settles once the in-sync replicas have everything up to ``last_offset``."""
    place = parked.add()
    leader = partition.leader
    if leader is None:
        parked.settle(place, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif leader.high_watermark > last_offset:
        parked.settle(place, outcome(leader))
    else:
        partition.produce_waiters.wait_for(last_offset + 1, parked, place)


def outcome(leader: PartitionLeader) -> ErrorCode:
    """What acks=all is told once the records are committed."""
    return ErrorCode.NONE if leader.had_enough_in_sync() else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
