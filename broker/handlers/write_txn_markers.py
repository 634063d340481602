"""WriteTxnMarkers (27): a transaction's coordinator ends it in the partitions that this broker leads (kraft.md 5.4).

Each marker is acknowledged when the in-sync replicas have it, also one that comes again; each partition's failure is its own. A
tool that aborts what hangs (``kafka-transactions abort``) asks the same.
"""

from functools import partial

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import each_once, route
from ottla.broker.internal_topics import GROUPS
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.replication.appending import OnCommitted
from ottla.broker.replication.markers import Marker, write_marker
from ottla.broker.replication.purgatory import ParkedRequest
from ottla.broker.wire.messages.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest
from ottla.broker.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from ottla.runtime.errors import ErrorCode, KafkaError

NO_PRODUCER = -1


def routes(broker: BrokerContext) -> list[Route]:
    return [route("WriteTxnMarkers", WriteTxnMarkersRequest, partial(_write_all, broker))]


def _write_all(broker: BrokerContext, request: RequestContext, body: WriteTxnMarkersRequest) -> None:
    results: list[WritableTxnMarkerPartitionResult] = []

    def answer(errors: object) -> None:
        for each, error in zip(results, parked.errors, strict=True):
            each.error_code = error
        request.respond_message(response)

    parked = ParkedRequest(answer)
    response = WriteTxnMarkersResponse([_write(broker, each, parked, results) for each in body.markers])
    parked.park(broker.timers.call_later_ms, _patience_ms(broker))
    if not parked.done:
        request.on_close(parked.drop)


def _patience_ms(broker: BrokerContext) -> int:
    """Then who asked is told REQUEST_TIMED_OUT of what is not replicated, and asks that again: well before a coordinator takes this
    broker for dead and asks everything again."""
    return broker.config.integer("request.timeout.ms") // 2


def _write(
    broker: BrokerContext,
    asked: WritableTxnMarker,
    parked: ParkedRequest,
    results: list[WritableTxnMarkerPartitionResult],
) -> WritableTxnMarkerResult:
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    answer = WritableTxnMarkerResult(asked.producer_id, [])
    for name, indexes in each_once(asked.topics).items():
        answer.topics.append(WritableTxnMarkerTopicResult(name, []))
        for index in indexes:
            result = WritableTxnMarkerPartitionResult(index)
            results.append(result)
            answer.topics[-1].partitions.append(result)
            place = parked.add()
            try:
                write_one(broker, name, index, marker, partial(parked.settle, place))
            except KafkaError as error:
                parked.settle(place, error.code)
    return answer


def write_one(broker: BrokerContext, topic: str, index: int, marker: Marker, on_done: OnCommitted) -> None:
    """In a partition that this broker leads. Raises KafkaError if the marker is not written."""
    if marker.producer_id <= NO_PRODUCER or marker.producer_epoch < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a marker is of a producer")
    partition = broker.replicas.partitions.get((topic, index))
    if partition is None:
        raise KafkaError(broker.replicas.missing_error(topic, index), "no replica of the partition is here")
    if topic == GROUPS:
        broker.groups.end_transaction(partition, marker, on_done)
    else:
        write_marker(partition, marker, broker.host.clock.wall_ms(), broker.timers.now_ms(), on_done)
