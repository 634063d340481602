"""The end of a transaction in one of its partitions: a control batch, written by whoever leads the partition."""

from collections.abc import Callable

import msgspec

from ottla.broker.replication.appending import append_own
from ottla.broker.replication.partition import Partition
from ottla.log.records import EndMarker, end_marker_batch


class Marker(msgspec.Struct, frozen=True):
    """What a transaction's coordinator decided. ``transaction_version``: from 2 on the producer's epoch is above that of what it
    ends (KIP-890)."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0

    def batch(self, wall_ms: int) -> bytearray:
        return end_marker_batch(
            EndMarker(self.is_commit, self.coordinator_epoch),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            timestamp=wall_ms,
        )


def write_marker(
    partition: Partition, marker: Marker, wall_ms: int, now_ms: int, on_done: Callable[[int], None]
) -> None:
    """``on_done`` is told once, as `append_own` says. Raises KafkaError if the marker is not written."""
    epoch = partition.leader.epoch if partition.leader is not None else partition.leader_epoch
    append_own(partition, marker.batch(wall_ms), epoch, wall_ms, now_ms, on_done, marker.transaction_version)
