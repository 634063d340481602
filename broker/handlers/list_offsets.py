"""ListOffsets (key 2), versions 1 to 11: the first and last offset, and the offset at a time.

Source: ReplicaManager.fetchOffset and Partition.fetchOffsetForTimestamp; kraft.md 3.3 and 4.10. A topic kept only locally
answers the tiered timestamps with "none".
"""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from ottla.broker.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.runtime.errors import ErrorCode, KafkaError

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
FIRST_WITH_OFFSET_NOT_AVAILABLE = 5
READ_COMMITTED = 1
NOTHING = (-1, -1, -1)

Found = tuple[int, int, int]
"""(offset, timestamp, leader epoch); -1 for what there is not."""

EPOCHS_FROM = 4
NO_EPOCH = -1


def routes(broker: BrokerContext) -> list[Route]:
    replicas = broker.replicas

    def answer(request: RequestContext, body: ListOffsetsRequest) -> None:
        request.respond_message(list_offsets(replicas, body, request.version))

    return [route("ListOffsets", ListOffsetsRequest, answer)]


def list_offsets(replicas: ReplicaManager, body: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    """The answer to a request of that version."""
    seen: dict[tuple[str, int], int] = {}
    for topic in body.topics:
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            seen[key] = seen.get(key, 0) + 1
    topics = []
    for topic in body.topics:
        partitions = []
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            error, found = ErrorCode.INVALID_REQUEST, NOTHING
            if seen[key] == 1:
                error, found = _answer(replicas, key, asked, body, version)
            offset, timestamp, epoch = found
            epoch = epoch if version >= EPOCHS_FROM else NO_EPOCH  # a version that cannot carry one refuses it
            partitions.append(ListOffsetsPartitionResponse(asked.partition_index, error, timestamp, offset, epoch))
        topics.append(ListOffsetsTopicResponse(topic.name, partitions))
    return ListOffsetsResponse(0, topics)


def _answer(
    replicas: ReplicaManager, key: tuple[str, int], asked: ListOffsetsPartition, body: ListOffsetsRequest, version: int
) -> tuple[ErrorCode, Found]:
    partition = replicas.partitions.get(key)
    if partition is None:
        return replicas.missing_error(*key), NOTHING
    try:
        partition.require_epoch(asked.current_leader_epoch)
        if partition.leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, NOTHING
        if version < FIRST_VERSION.get(asked.timestamp, 0):
            return ErrorCode.UNSUPPORTED_VERSION, NOTHING
        if body.replica_id >= 0:
            return ErrorCode.NONE, _find(partition, asked.timestamp, partition.log.log_end_offset)
        return ErrorCode.NONE, _find_for_client(partition, asked.timestamp, body.isolation_level)
    except KafkaError as error:
        replicas.note_damage(partition, error)
        if error.code == ErrorCode.OFFSET_NOT_AVAILABLE and version < FIRST_WITH_OFFSET_NOT_AVAILABLE:
            return ErrorCode.LEADER_NOT_AVAILABLE, NOTHING
        return error.code, NOTHING


def _find_for_client(partition: Partition, timestamp: int, isolation: int) -> Found:
    """What a client may know: offsets up to what is committed, once that is certain.

    Raises KafkaError(OFFSET_NOT_AVAILABLE) right after an election, when the last offset could still seem to go back.
    """
    log, leader = partition.log, partition.leader
    limit = log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark
    found = _find(partition, timestamp, limit)
    certain = leader is not None and leader.has_committed_own_epoch()
    if timestamp in (EARLIEST, EARLIEST_LOCAL) or found == NOTHING:
        return found
    beyond = timestamp == LATEST or found[0] >= limit
    if beyond and not certain:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition} was elected a moment ago")
    return found if timestamp == LATEST or not beyond else NOTHING


def _find(partition: Partition, timestamp: int, limit: int) -> Found:
    log = partition.log
    if timestamp == LATEST:
        return limit, -1, log.epochs.latest_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, -1, log.epochs.epoch_for_offset(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    return NOTHING if found is None else (found.offset, found.timestamp, found.leader_epoch)
