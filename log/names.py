"""What a partition is called, and what a topic may be called."""

import re
from typing import NamedTuple

TOPIC_NAME_LENGTH_MAX = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


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


def is_valid_topic_name(name: str) -> bool:
    """Kafka's Topic.validate: letters, digits, dot, underscore and dash; not ``.`` or ``..``, which are no names for a directory."""
    return len(name) <= TOPIC_NAME_LENGTH_MAX and name not in (".", "..") and _TOPIC_NAME.fullmatch(name) is not None
