"""What a partition is called."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic's name and a partition's index; printed as Kafka names its directory, ``topic-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
