"""OffsetForLeaderEpoch (key 23), versions 2 to 4: where an epoch ended, for consumers that look for truncation.

Source: ReplicaManager.lastOffsetForLeaderEpoch; kraft.md 3.5 and 4.9.
"""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from ottla.broker.wire.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.runtime.errors import ErrorCode, KafkaError


def routes(broker: BrokerContext) -> list[Route]:
    replicas = broker.replicas

    def answer(request: RequestContext, body: OffsetForLeaderEpochRequest) -> None:
        topics = [
            OffsetForLeaderTopicResult(
                topic.topic, [end_of_epoch(replicas, topic.topic, asked) for asked in topic.partitions]
            )
            for topic in body.topics
        ]
        request.respond_message(OffsetForLeaderEpochResponse(0, topics))

    return [route("OffsetForLeaderEpoch", OffsetForLeaderEpochRequest, answer)]


def end_of_epoch(replicas: ReplicaManager, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    """The largest epoch not above the one asked for and where it ended; -1 and -1 when that is not known."""
    partition = replicas.partitions.get((topic, asked.partition))
    if partition is None:
        return EpochEndOffset(replicas.missing_error(topic, asked.partition), asked.partition)
    try:
        partition.require_leader(asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error.code, asked.partition)
    epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(ErrorCode.NONE, asked.partition, epoch, end_offset)
