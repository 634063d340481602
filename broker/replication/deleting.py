"""DeleteRecords (KIP-107) on the leader: the log begins later, and is said to once every live replica's does."""

from typing import TYPE_CHECKING

from ottla.broker.replication.purgatory import ParkedRequest
from ottla.runtime.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition

ALL_COMMITTED = -1


def delete_records(partition: "Partition", offset: int) -> int:
    """All below ``offset`` (-1: all that is committed) is gone for readers; returns where the log has to begin now.

    Raises KafkaError: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION (compacted, never deleted), OFFSET_OUT_OF_RANGE.
    """
    log = partition.log
    if partition.leader is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is led by {partition.leader_id}")
    if log.config.compacted and "delete" not in log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{partition} is compacted: cleanup.policy does not have delete")
    if offset == ALL_COMMITTED:
        offset = log.high_watermark
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no offset {offset}")
    if offset > log.log_start_offset:
        log.advance_log_start(offset)
        partition.watches.touch_all()  # followers hear of it with the next answer
    return offset


def await_deleted(partition: "Partition", offset: int, parked: ParkedRequest) -> None:
    """Settles ``parked`` once no live replica has anything below ``offset``: whoever leads next, it does not come back."""
    place = parked.add()
    if partition.leader is None:
        parked.settle(place, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif low_watermark(partition) >= offset:
        parked.settle(place, ErrorCode.NONE)
    else:
        waiting = [each for each in partition.delete_waiters if not each[1].done]
        partition.delete_waiters = [*waiting, (offset, parked, place)]


def settle_deleted(partition: "Partition") -> None:
    """A follower's log begins later than it did: some may have what they wait for."""
    low, waiters = low_watermark(partition), partition.delete_waiters
    partition.delete_waiters = [each for each in waiters if each[0] > low]
    for offset, parked, place in waiters:
        if offset <= low:
            parked.settle(place, ErrorCode.NONE)


def low_watermark(partition: "Partition") -> int:
    """Where the log begins on every live replica; -1 where that is not known, and when this broker does not lead."""
    leader = partition.leader
    return leader.low_watermark(partition.log.log_start_offset) if leader is not None else -1
