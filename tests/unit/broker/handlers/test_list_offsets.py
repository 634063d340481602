"""ListOffsets of thousands of partitions holds the loop for a piece of them at a time."""

from typing import cast

import pytest

from ottla.broker.handlers.list_offsets import PIECE, ListOffsets
from ottla.broker.handlers.time_searches import TimeSearches
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.runtime.errors import ErrorCode


class NoReplicas:
    """Of a broker that hosts nothing."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str | bytes, int], Partition] = {}

    def missing_error(self, topic: str, index: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("topics", "each", "pieces"), [(1, PIECE // 2 - 1, 0), (1, 3 * PIECE, 6), (3, PIECE, 6)])
def test_partitions_are_looked_at_in_pieces_whatever_their_topics(topics: int, each: int, pieces: int) -> None:
    asked = [ListOffsetsPartition(index, -1, -1) for index in range(each)]
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(f"topic-{number}", asked) for number in range(topics)])
    answering = ListOffsets(cast(ReplicaManager, NoReplicas()), cast(TimeSearches, None), body, 7)
    assert len(list(answering.look())) == pieces
    told = [len(topic.partitions) for topic in answering.response.topics]
    assert told == [each] * topics
