"""DeleteRecords (key 21), versions 0 to 2: all below an offset goes, on every replica, before the client is told.

Source: ReplicaManager.deleteRecords, DelayedDeleteRecords and Partition.deleteRecordsOnLeader; kraft.md 4.6.
"""

from collections.abc import Mapping, Sequence

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.internal_topics import INTERNAL_TOPICS
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.replication.deleting import await_deleted, delete_records, low_watermark
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.purgatory import ParkedRequest
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.wire.messages.delete_records_request import DeleteRecordsRequest
from ottla.broker.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.runtime.errors import ErrorCode, KafkaError

NO_LOW_WATERMARK = -1


def routes(broker: BrokerContext) -> list[Route]:
    replicas = broker.replicas

    def answer(request: RequestContext, body: DeleteRecordsRequest) -> None:
        deletion = _Deletion(request)
        for topic, offsets in _asked(body).items():
            deletion.add(replicas, topic, offsets)
        deletion.parked.park(broker.timers.call_later_ms, max(0, body.timeout_ms))
        if not deletion.parked.done:
            request.on_close(deletion.parked.drop)

    return [route("DeleteRecords", DeleteRecordsRequest, answer)]


def _asked(body: DeleteRecordsRequest) -> dict[str, dict[int, int]]:
    """The offset of each partition of each topic: the last one where it is named again, as in Kafka. So many waiters of one
    partition would cost their square."""
    found: dict[str, dict[int, int]] = {}
    for topic in body.topics:
        found.setdefault(topic.name, {}).update({each.partition_index: each.offset for each in topic.partitions})
    return found


class _Deletion:
    """A request, and the partitions whose replicas have yet to follow."""

    def __init__(self, request: RequestContext) -> None:
        self.parked = ParkedRequest(self._respond)
        self._request = request
        self._topics: list[DeleteRecordsTopicResult] = []
        self._awaited: list[tuple[Partition, DeleteRecordsPartitionResult]] = []

    def add(self, replicas: ReplicaManager, topic: str, offsets: Mapping[int, int]) -> None:
        results = [self._delete(replicas, topic, index, offset) for index, offset in offsets.items()]
        self._topics.append(DeleteRecordsTopicResult(topic, results))

    def _delete(self, replicas: ReplicaManager, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
        result = DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK)
        try:
            partition = _partition(replicas, topic, index)
            target = delete_records(partition, offset)
        except KafkaError as error:
            result.error_code = error.code
            return result
        self._awaited.append((partition, result))
        await_deleted(partition, target, self.parked)
        return result

    def _respond(self, errors: Sequence[int]) -> None:
        for (partition, result), error in zip(self._awaited, errors, strict=True):
            result.error_code = error
            result.low_watermark = low_watermark(partition)
        self._request.respond_message(DeleteRecordsResponse(0, self._topics))


def _partition(replicas: ReplicaManager, topic: str, index: int) -> Partition:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is Ottla's own")
    partition = replicas.partitions.get((topic, index))
    if partition is None:
        raise KafkaError(replicas.missing_error(topic, index), f"{topic}-{index} is not here")
    if not partition.usable:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {partition} failed")
    return partition
