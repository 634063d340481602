"""DescribeTopicPartitions (75): topics page by page, for clusters whose metadata does not fit one answer."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.cluster_view import (
    missing_topic_error,
    partition_state,
    reachable_brokers,
)
from ottla.broker.handlers.common import TOPIC_OPERATIONS, prepared_route
from ottla.broker.internal_topics import INTERNAL_TOPICS
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from ottla.broker.wire.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.runtime.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.quorum.metadata.image import BrokerView, TopicView


_Asked = tuple[DescribeTopicPartitionsRequest, dict[str, None]]
"""With the names of its topics in order, which may be very many."""


def routes(broker: BrokerContext) -> list[Route]:
    def answer(request: RequestContext, asked: _Asked) -> None:
        body, named = asked
        if _is_sound(body, named):
            request.respond_message(_response(broker, body, named, request.connection.listener_name))
        else:
            request.respond_with(lambda: _refusal(body))

    return [prepared_route("DescribeTopicPartitions", DescribeTopicPartitionsRequest, _in_order, answer)]


def _in_order(body: DescribeTopicPartitionsRequest) -> _Asked:
    return body, dict.fromkeys(sorted(topic.name for topic in body.topics))


def _is_sound(body: DescribeTopicPartitionsRequest, named: dict[str, None]) -> bool:
    """Whether the cursor, if there is one, is at a partition that may be, of a topic that is asked for."""
    cursor = body.cursor
    return cursor is None or (cursor.partition_index >= 0 and (not named or cursor.topic_name in named))


def _refusal(body: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """As Kafka's: an error of each topic that was named."""
    names = dict.fromkeys(topic.name for topic in body.topics)
    refused = [DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name) for name in names]
    return DescribeTopicPartitionsResponse(topics=refused)


def _response(
    broker: BrokerContext, body: DescribeTopicPartitionsRequest, named: dict[str, None], listener_name: str
) -> DescribeTopicPartitionsResponse:
    """Topics by name from the cursor on, until the limit of partitions is reached; then where to go on. One that there is not
    counts as a partition, for it costs as much."""
    limit = max(1, min(body.response_partition_limit, broker.config.integer("max.request.partition.size.limit")))
    describer = _Describer(broker, reachable_brokers(broker.image, listener_name))
    response = DescribeTopicPartitionsResponse(topics=[])
    for name, first in _ahead(broker, body, named):
        if limit == 0:
            response.next_cursor = Cursor(name, first)
            break
        topic, next_index = describer.describe(name, first, limit)
        response.topics.append(topic)
        limit -= max(1, len(topic.partitions))
        if next_index is not None:
            response.next_cursor = Cursor(name, next_index)
            break
    return response


def _ahead(
    broker: BrokerContext, body: DescribeTopicPartitionsRequest, named: dict[str, None]
) -> Iterator[tuple[str, int]]:
    """Names in order, each with the partition index to begin with."""
    names = list(named) or sorted(broker.image.topics_by_name)
    after, first = (body.cursor.topic_name, body.cursor.partition_index) if body.cursor else ("", 0)
    for name in islice(names, bisect_left(names, after), None):
        yield name, first if name == after else 0


class _Describer:
    def __init__(self, broker: BrokerContext, reachable: "dict[int, BrokerView]") -> None:
        self._image = broker.image
        self._reachable = reachable
        self._lost = broker.replicas.lost_leaders()

    def describe(self, name: str, first: int, limit: int) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
        """The topic with at most ``limit`` partitions from ``first`` on, and the index it stopped at, if it did."""
        topic = self._image.topics_by_name.get(name)
        if topic is None:
            missing = missing_topic_error(name)
            return DescribeTopicPartitionsResponseTopic(missing, name, is_internal=name in INTERNAL_TOPICS), None
        indexes = [index for index in sorted(topic.partitions) if index >= first]
        described = DescribeTopicPartitionsResponseTopic(
            ErrorCode.NONE,
            name,
            topic.id,
            name in INTERNAL_TOPICS,
            [self._partition(topic, index) for index in indexes[:limit]],
            TOPIC_OPERATIONS,
        )
        return described, indexes[limit] if len(indexes) > limit else None

    def _partition(self, topic: "TopicView", index: int) -> DescribeTopicPartitionsResponsePartition:
        partition = topic.partitions[index]
        state = partition_state(partition, self._reachable, self._image.brokers, lost=self._lost)
        error, leader, replicas, isr, offline = state
        return DescribeTopicPartitionsResponsePartition(
            error,
            index,
            leader,
            partition.leader_epoch,
            replicas,
            isr,
            list(partition.elr),
            list(partition.last_known_elr),
            offline,
        )
