"""Where partitions begin and end, and where a time or a leader's epoch is in them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.codec import Body
from ottla.pipeline.wire.connection import Connection
from ottla.pipeline.wire.errors import PartitionError
from ottla.pipeline.wire.metadata import TopicPartition
from ottla.runtime.errors import ErrorCode

LATEST, EARLIEST = -1, -2
MAX_TIMESTAMP = -3


class Listed(NamedTuple):
    """``offset`` is -1 where no record is as young as the time that was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The end of the largest epoch that is not above the one asked for; -1 for both where there is none."""

    leader_epoch: int
    end_offset: int


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int | None = None
) -> dict[TopicPartition, Listed]:
    """The offset of a time (ms), of ``LATEST`` or of ``EARLIEST``, for each partition. Raises PartitionError.

    With read_committed the end is where the first transaction begins that is still open.
    """
    found: dict[TopicPartition, Listed] = {}
    level = cluster.settings.isolation_level if isolation is None else isolation

    def make(_connection: Connection, partitions: list[TopicPartition]) -> Body:
        topics = [
            {"name": topic, "partitions": [{"partition_index": p, "timestamp": wanted[topic, p]} for p in indexes]}
            for topic, indexes in by_topic(partitions).items()
        ]
        return {
            "replica_id": -1,
            "isolation_level": level,
            "topics": topics,
            "timeout_ms": cluster.settings.request_timeout_ms,
        }

    def take(answer: Any) -> dict[TopicPartition, int]:
        said = {}
        for topic in answer.topics:
            for part in topic.partitions:
                which = (topic.name, part.partition_index)
                said[which] = part.error_code
                found[which] = Listed(part.offset, part.timestamp, part.leader_epoch)
        return said

    refuse(cluster.ask_leaders("ListOffsets", wanted, make, take))
    return {which: found[which] for which in wanted}


def end_of_epochs(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
    """Where each partition's leader says that an epoch ended (KIP-320). Raises PartitionError."""
    found: dict[TopicPartition, EpochEnd] = {}

    def make(_connection: Connection, partitions: list[TopicPartition]) -> Body:
        topics = [
            {"topic": topic, "partitions": [{"partition": p, "leader_epoch": epochs[topic, p]} for p in indexes]}
            for topic, indexes in by_topic(partitions).items()
        ]
        return {"replica_id": -1, "topics": topics}

    def take(answer: Any) -> dict[TopicPartition, int]:
        said = {}
        for topic in answer.topics:
            for part in topic.partitions:
                said[topic.topic, part.partition] = part.error_code
                found[topic.topic, part.partition] = EpochEnd(part.leader_epoch, part.end_offset)
        return said

    refuse(cluster.ask_leaders("OffsetForLeaderEpoch", epochs, make, take))
    return {which: found[which] for which in epochs}


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def refuse(ended: Mapping[TopicPartition, ErrorCode]) -> None:
    """Raises PartitionError for the first that has an error."""
    for (topic, partition), code in sorted(ended.items()):
        if code:
            raise PartitionError(topic, partition, code)
