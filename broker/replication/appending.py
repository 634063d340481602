"""The leader's append: one batch into the log, and who is told of it then.

Everything runs on the event loop, so an append is one step that nothing interrupts. Who waits for it to be committed: `acks.py`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.replication.acks import ACKS_ALL, outcome
from ottla.broker.replication.intake import Intake, OnPrepared
from ottla.log.batch import BatchHeader, read_header
from ottla.log.errors import StorageError
from ottla.log.results import AppendInfo
from ottla.log.validation import LIGHT_BYTES_MAX, is_heavy
from ottla.runtime.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition

Write = Callable[[memoryview, int, int], AppendInfo]
"""How the log takes a batch, in a leader epoch at a time of day."""

OnCommitted = Callable[[int], None]
"""Told how an append ended, an error code: see `append_own`."""


def append(
    partition: "Partition", records: memoryview, acks: int, wall_ms: int, now_ms: int, write: Write | None = None
) -> AppendInfo:
    """Writes one batch as the leader. ``records`` is stamped in place and not kept. Raises KafkaError.

    A DecompressionError that `is_size` says that it has to go through the intake, an UnverifiedError that the coordinator
    of its transaction is to be asked first. ``write``: as the log takes it, where it is no client's that just came.
    """
    leader = partition.leader
    if leader is None:
        raise partition.not_leading()
    if acks == ACKS_ALL and not leader.has_enough_in_sync():
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{partition} has {len(leader.committed_isr)} replicas in sync, {leader.required_in_sync} are required",
        )
    log = partition.log
    try:
        if write is not None:
            info = write(records, leader.epoch, wall_ms)
        else:
            info = log.append_as_leader(records, leader.epoch, wall_ms, inflated_bytes_max=LIGHT_BYTES_MAX)
    except StorageError:
        partition.services.on_no_room(partition)
        raise
    if not info.duplicate:
        stable = not log.must_sync
        if leader.appended(info.last_offset + 1, now_ms, stable=stable):
            partition.committed(leader)
        else:
            partition.services.behind[partition] = None
        watches = partition.watches
        if watches.end:
            watches.touch(watches.end)
        if not stable:
            partition.count_when_stable()
    return info


# A batch that takes long is looked at on a thread first.


def must_prepare(partition: "Partition", records: memoryview) -> bool:
    """Whether the batch has to go through `prepare`: a thread is to look at it, or it must not overtake one."""
    intake = partition.intake
    return (intake is not None and intake.is_busy) or is_heavy(records, partition.log.config)


def prepare(partition: "Partition", records: memoryview, wall_ms: int, on_ready: OnPrepared) -> None:
    """Has a thread prepare a copy of the batch, and calls ``on_ready`` when it is its turn to be written."""
    if partition.intake is None:
        partition.intake = Intake(partition.services.preparers)
    partition.intake.submit(records, partition.log.config, wall_ms, on_ready)


def append_prepared(
    partition: "Partition", batch: bytearray, header: BatchHeader, acks: int, wall_ms: int, now_ms: int
) -> AppendInfo:
    """`append` for a batch that went through the intake, and is not checked again."""

    def write(view: memoryview, epoch: int, wall_ms: int) -> AppendInfo:
        return partition.log.append_prepared(view, header, epoch, wall_ms)

    return append(partition, memoryview(batch), acks, wall_ms, now_ms, write)


# A batch that this broker made itself.


class OwnAppend:
    """One batch on its way to the in-sync replicas."""

    __slots__ = ("_on_done", "done", "info")

    def __init__(self, info: AppendInfo, on_done: OnCommitted) -> None:
        self.info = info
        self.done = False
        self._on_done = on_done

    def settle(self, place: int, error: int) -> None:
        if not self.done:
            self.done = True
            self._on_done(error)


def append_own(
    partition: "Partition",
    batch: bytearray,
    leader_epoch: int,
    wall_ms: int,
    now_ms: int,
    on_done: OnCommitted,
    transaction_version: int = 0,
) -> OwnAppend:
    """Writes a batch that this broker made itself, with acks=all. Raises KafkaError if nothing was written: as `append` does,
    NOT_LEADER_OR_FOLLOWER too when another epoch than ``leader_epoch`` has begun. ``transaction_version``: of a marker.

    ``on_done`` is called once, perhaps before this returns: NONE when the records are committed,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND when they are and fewer replicas than ``min.insync.replicas`` have them. With
    NOT_LEADER_OR_FOLLOWER or KAFKA_STORAGE_ERROR nobody knows: the next leader may have them.
    """
    leader = partition.leader
    if leader is None or leader.epoch != leader_epoch:
        raise partition.not_leading()

    def write(view: memoryview, epoch: int, wall_ms: int) -> AppendInfo:
        return partition.log.append_own(view, epoch, wall_ms, transaction_version=transaction_version)

    info = append(partition, memoryview(batch), ACKS_ALL, wall_ms, now_ms, write)
    if partition.verification is not None and not info.duplicate:
        header = read_header(batch)
        if header.is_control:
            partition.verification.ended(header.producer_id, header.producer_epoch, transaction_version)
        else:
            partition.verification.appended(header.producer_id)
    waiter = OwnAppend(info, on_done)
    if leader.high_watermark > info.last_offset:
        waiter.settle(0, outcome(leader))
    else:
        partition.produce_waiters.wait_for(info.last_offset + 1, waiter, 0)
    return waiter
