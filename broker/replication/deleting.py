"""DeleteRecords (KIP-107) on the leader: the log begins later, and is said to once every live replica's does."""

from ottla.broker.replication.partition import Partition
from ottla.broker.replication.purgatory import ParkedRequest
from ottla.runtime.errors import ErrorCode, KafkaError

ALL_COMMITTED = -1


def delete_records(partition: Partition, offset: int) -> int:
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


def await_deleted(partition: Partition, offset: int, parked: ParkedRequest) -> None:
    """Settles ``parked`` once no live replica has anything below ``offset``: whoever leads next, it does not come back."""
    place = parked.add()
    if partition.leader is None:
        parked.settle(place, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif partition.low_watermark() >= offset:
        parked.settle(place, ErrorCode.NONE)
    else:
        waiting = [each for each in partition.delete_waiters if not each[1].done]
        partition.delete_waiters = [*waiting, (offset, parked, place)]
