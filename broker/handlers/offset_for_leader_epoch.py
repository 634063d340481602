"""OffsetForLeaderEpoch (key 23), versions 2 to 4: where an epoch ended, for consumers that look for truncation.

Source: ReplicaManager.lastOffsetForLeaderEpoch; kraft.md 3.5 and 4.9.
"""

from contextlib import suppress

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.handlers.long_answers import LongAnswers, Pieces
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

PIECE = 200
"""Partitions that are looked at in one turn of the loop: half a millisecond, and 2 to 3 more where each is compacted."""


def routes(broker: BrokerContext) -> list[Route]:
    long_answers = LongAnswers()

    def answer(request: RequestContext, body: OffsetForLeaderEpochRequest) -> None:
        long_answers.give(request, _found(broker.replicas, request, body))

    return [route("OffsetForLeaderEpoch", OffsetForLeaderEpochRequest, answer)]


def _found(replicas: ReplicaManager, request: RequestContext, body: OffsetForLeaderEpochRequest) -> Pieces:
    topics: list[OffsetForLeaderTopicResult] = []
    count = 0
    for topic in body.topics:
        ends: list[EpochEndOffset] = []
        topics.append(OffsetForLeaderTopicResult(topic.topic, ends))
        for asked in topic.partitions:
            ends.append(end_of_epoch(replicas, topic.topic, asked))
            count += 1
            if not count % PIECE:
                yield
    request.respond_message(OffsetForLeaderEpochResponse(0, topics))
    return None


def end_of_epoch(replicas: ReplicaManager, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    """The largest epoch not above the one asked for and where it ended; -1 and -1 when that is not known."""
    partition = replicas.partitions.get((topic, asked.partition))
    if partition is None:
        return EpochEndOffset(replicas.missing_error(topic, asked.partition), asked.partition)
    try:
        partition.require_leader(asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error.code, asked.partition)
    log = partition.log
    epoch, end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    if log.gaps_allowed and log.log_start_offset < end_offset < log.log_end_offset:
        # Who has read what compaction took since is where that was: nothing is cut off from under it.
        with suppress(KafkaError):
            end_offset = log.next_written(end_offset)
    return EpochEndOffset(ErrorCode.NONE, asked.partition, epoch, end_offset)
