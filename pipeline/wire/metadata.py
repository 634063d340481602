"""What Metadata says, as values."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ottla.pipeline.wire.errors import UnknownTopicError
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """``id`` is zero where the cluster has no topic ids."""

    name: str
    id: bytes
    is_internal: bool
    partitions: dict[int, Partition]


@dataclass(frozen=True, slots=True)
class View:
    """One answer: who the brokers are, the topics that exist, and those of which nobody can say yet."""

    brokers: dict[int, tuple[str, int]]
    topics: dict[str, Topic]
    unsettled: dict[str, ErrorCode]


def metadata_body(topics: Iterable[str] | None) -> dict[str, Any]:
    """Asks for these topics, or for all. It never makes one."""
    asked = None if topics is None else [{"name": topic} for topic in sorted(set(topics))]
    return {"topics": asked, "allow_auto_topic_creation": False}


def view_of(answer: Any) -> View:
    """Raises UnknownTopicError for a name that cannot be a topic's, or that may not be seen."""
    topics: dict[str, Topic] = {}
    unsettled: dict[str, ErrorCode] = {}
    for topic in answer.topics:
        code = ErrorCode(topic.error_code)
        if code == ErrorCode.NONE:
            topics[topic.name] = _topic(topic)
        elif code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            raise UnknownTopicError(topic.name, code)
        elif code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            unsettled[topic.name] = code
    return View({broker.node_id: (broker.host, broker.port) for broker in answer.brokers}, topics, unsettled)


def _topic(topic: Any) -> Topic:
    partitions = {
        found.partition_index: Partition(
            found.partition_index, found.leader_id, found.leader_epoch, tuple(found.replica_nodes)
        )
        for found in sorted(topic.partitions, key=lambda found: found.partition_index)
    }
    return Topic(topic.name, topic.topic_id or ZERO_ID, topic.is_internal, partitions)
