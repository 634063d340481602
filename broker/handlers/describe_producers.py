"""DescribeProducers (61): who has written to partitions, and whose transactions are open there (KIP-664). Every replica answers for itself."""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.describe_producers_request import DescribeProducersRequest
from ottla.broker.wire.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.log.producers.state import ProducerStateManager
from ottla.runtime.errors import ErrorCode


def routes(broker: BrokerContext) -> list[Route]:
    def answer(request: RequestContext, body: DescribeProducersRequest) -> None:
        wanted: dict[str, dict[int, None]] = {}  # each once: a few bytes of the request may be thousands of producers
        for each in body.topics:
            wanted.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
        topics = [
            TopicResponse(name, [_described(broker, name, index) for index in indexes])
            for name, indexes in wanted.items()
        ]
        request.respond_message(DescribeProducersResponse(topics=topics))

    return [route("DescribeProducers", DescribeProducersRequest, answer)]


def _described(broker: BrokerContext, topic: str, index: int) -> PartitionResponse:
    partition = broker.replicas.partitions.get((topic, index))
    if partition is None:
        error = broker.replicas.missing_error(topic, index)
        return PartitionResponse(index, error, "no replica of the partition is here")
    if not partition.usable:
        return PartitionResponse(index, ErrorCode.KAFKA_STORAGE_ERROR, "its disk failed")
    return PartitionResponse(index, active_producers=_active(partition.log.producers))


def _active(producers: ProducerStateManager) -> list[ProducerState]:
    found = []
    for producer_id in producers.producer_ids:
        entry = producers.entry(producer_id)
        if entry is not None:
            state = ProducerState(
                producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
            found.append(state)
    return found
