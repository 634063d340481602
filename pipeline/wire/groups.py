"""A group's committed offsets, read and written from outside the group."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.errors import CoordinatorError, PartitionError
from ottla.pipeline.wire.metadata import TopicPartition
from ottla.pipeline.wire.offsets import by_topic, refuse
from ottla.runtime.errors import ErrorCode

FETCH_VERSION = COMMIT_VERSION = 7
"""The last version of OffsetFetch that asks about one group, and one of OffsetCommit that every cluster has."""


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None, *, stable: bool = True
) -> dict[TopicPartition, Committed]:
    """What a group committed of these partitions, or of all; those that it did not are missing.

    ``stable``: wait for the end of transactions that commit offsets of it. Raises CoordinatorError, PartitionError.
    """
    topics = None if partitions is None else _asked(partitions)
    body = {"group_id": group, "topics": topics, "require_stable": stable}
    for _ in cluster.attempts():
        answer = cluster.ask_coordinator("group", group, "OffsetFetch", body, FETCH_VERSION)
        if answer.error_code:
            raise CoordinatorError("group", group, answer.error_code)
        parts = {(topic.name, part.partition_index): part for topic in answer.topics for part in topic.partitions}
        codes = {which: ErrorCode(part.error_code) for which, part in parts.items()}
        if ErrorCode.UNSTABLE_OFFSET_COMMIT not in codes.values():
            break
    refuse(codes)
    return {
        which: Committed(part.committed_offset, part.committed_leader_epoch, part.metadata or "")
        for which, part in parts.items()
        if part.committed_offset >= 0
    }


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
    """Commits as no member of the group, which only a group without members takes. Raises CoordinatorError, PartitionError."""
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": p, "committed_offset": offsets[topic, p], "committed_metadata": metadata}
                for p in indexes
            ],
        }
        for topic, indexes in by_topic(sorted(offsets)).items()
    ]
    body = {"group_id": group, "topics": topics}
    answer = cluster.ask_coordinator("group", group, "OffsetCommit", body, COMMIT_VERSION)
    for topic in answer.topics:
        for part in topic.partitions:
            code = ErrorCode(part.error_code)
            if code in _OF_THE_GROUP:
                raise CoordinatorError("group", group, code, "the group has members of its own: take another group")
            if code:
                raise PartitionError(topic.name, part.partition_index, code, offsets[topic.name, part.partition_index])


_OF_THE_GROUP = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)


def _asked(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [{"name": topic, "partition_indexes": indexes} for topic, indexes in by_topic(partitions).items()]
