"""What a partition is called."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic's name and a partition's index; printed as Kafka names its directory, ``topic-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


METADATA_PARTITION = TopicPartition("__cluster_metadata", 0)

NO_TOPIC_ID = b""


class TopicIdPartition(NamedTuple):
    """A partition of one topic and of no other that ever had, or will have, its name."""

    partition: TopicPartition
    topic_id: bytes  # NO_TOPIC_ID: unknown
