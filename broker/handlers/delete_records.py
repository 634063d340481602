"""DeleteRecords (key 21), versions 0 to 2: all below an offset goes, on every replica, before the client is told. Of many
partitions some a turn of the loop.

Source: ReplicaManager.deleteRecords, DelayedDeleteRecords and Partition.deleteRecordsOnLeader; kraft.md 4.6.
"""

from collections.abc import Mapping, Sequence

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import prepared_route
from ottla.broker.handlers.long_answers import LongAnswers, Pieces
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


PIECE = 1_000
"""Partitions of a request that are deleted from in one turn of the loop: some milliseconds."""

_Asked = tuple[int, dict[str, dict[int, int]]]
"""How long to wait in ms, and the offset of each partition of each topic."""


def routes(broker: BrokerContext) -> list[Route]:
    long_answers = LongAnswers()

    def answer(request: RequestContext, asked: _Asked) -> None:
        long_answers.give(request, _deleted(broker, request, *asked))

    return [prepared_route("DeleteRecords", DeleteRecordsRequest, _asked, answer)]


def _asked(body: DeleteRecordsRequest) -> _Asked:
    """The last offset where a partition is named again, as in Kafka. So many waiters of one partition would cost their square."""
    found: dict[str, dict[int, int]] = {}
    for topic in body.topics:
        found.setdefault(topic.name, {}).update({each.partition_index: each.offset for each in topic.partitions})
    return max(0, body.timeout_ms), found


def _deleted(
    broker: BrokerContext, request: RequestContext, timeout_ms: int, asked: Mapping[str, Mapping[int, int]]
) -> Pieces:
    """Some partitions a turn; it is waited for the replicas of all of them."""
    deletion = _Deletion(request)
    request.on_close(deletion.parked.drop)
    count = 0
    for topic, offsets in asked.items():
        results = deletion.results_of(topic)
        for index, offset in offsets.items():
            results.append(deletion.delete(broker.replicas, topic, index, offset))
            count += 1
            if not count % PIECE:
                yield
    deletion.parked.park(broker.timers.call_later_ms, timeout_ms)
    return None


class _Deletion:
    """A request, and the partitions whose replicas have yet to follow."""

    def __init__(self, request: RequestContext) -> None:
        self.parked = ParkedRequest(self._respond)
        self._request = request
        self._topics: list[DeleteRecordsTopicResult] = []
        self._awaited: list[tuple[Partition, DeleteRecordsPartitionResult]] = []

    def results_of(self, topic: str) -> list[DeleteRecordsPartitionResult]:
        """The answer's list of partitions of one more topic."""
        results: list[DeleteRecordsPartitionResult] = []
        self._topics.append(DeleteRecordsTopicResult(topic, results))
        return results

    def delete(self, replicas: ReplicaManager, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
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
