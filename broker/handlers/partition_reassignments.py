"""AlterPartitionReassignments (45), decided by the controller, and ListPartitionReassignments (46), from this node's image:
what kafka-reassign-partitions asks."""

from collections.abc import Iterable, Iterator

from ottla.broker.context import NodeContext
from ottla.broker.handlers.common import Ask, Told, ask_controller, route, text_or_none
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignableTopic,
)
from ottla.broker.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.broker.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from ottla.broker.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.proto import controller_pb2
from ottla.quorum.metadata.views import TopicView
from ottla.runtime.errors import ErrorCode


def routes(node: NodeContext) -> list[Route]:
    def alter(request: RequestContext, body: AlterPartitionReassignmentsRequest) -> None:
        factor_may_change = body.allow_replication_factor_change

        def told(response: Told) -> AlterPartitionReassignmentsResponse:
            results = [
                ReassignableTopicResponse(topic.name, [_result(each) for each in topic.partitions])
                for topic in response.alter_partition_reassignments.topics
            ]
            return AlterPartitionReassignmentsResponse(0, factor_may_change, ErrorCode.NONE, None, results)

        def refuse(code: ErrorCode, message: str) -> AlterPartitionReassignmentsResponse:
            return AlterPartitionReassignmentsResponse(0, factor_may_change, code, text_or_none(message))

        asked = controller_pb2.AlterPartitionReassignmentsRequest(
            topics=[_asked(topic) for topic in body.topics], allow_replication_factor_change=factor_may_change
        )
        ask_controller(node, request, Ask(alter_partition_reassignments=asked), body.timeout_ms, told, refuse)

    def list_ongoing(request: RequestContext, body: ListPartitionReassignmentsRequest) -> None:
        found = [OngoingTopicReassignment(topic.name, ongoing) for topic, ongoing in _ongoing(node, body)]
        request.respond_message(ListPartitionReassignmentsResponse(error_message=None, topics=found))

    return [
        route("AlterPartitionReassignments", AlterPartitionReassignmentsRequest, alter),
        route("ListPartitionReassignments", ListPartitionReassignmentsRequest, list_ongoing),
    ]


def _asked(topic: ReassignableTopic) -> controller_pb2.AlterPartitionReassignmentsRequest.Topic:
    partitions = [
        controller_pb2.AlterPartitionReassignmentsRequest.Partition(
            partition_index=each.partition_index, replicas=each.replicas or (), cancel=each.replicas is None
        )
        for each in topic.partitions
    ]
    return controller_pb2.AlterPartitionReassignmentsRequest.Topic(name=topic.name, partitions=partitions)


def _result(told: controller_pb2.AlterPartitionReassignmentsResponse.Partition) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(told.partition_index, told.error_code, text_or_none(told.error_message))


def _ongoing(
    node: NodeContext, body: ListPartitionReassignmentsRequest
) -> Iterator[tuple[TopicView, list[OngoingPartitionReassignment]]]:
    """Reassignments under way by topic, of those that were asked for (null: of all); what is not there has no reassignment."""
    topics = node.image.topics_by_name
    if body.topics is None:
        asked: Iterable[tuple[str, Iterable[int]]] = ((name, topic.partitions) for name, topic in topics.items())
    else:
        asked = [(each.name, each.partition_indexes) for each in body.topics]
    for name, indexes in asked:
        topic = topics.get(name)
        ongoing = _of_topic(topic, indexes) if topic is not None else []
        if topic is not None and ongoing:
            yield topic, ongoing


def _of_topic(topic: TopicView, indexes: Iterable[int]) -> list[OngoingPartitionReassignment]:
    views = ((index, topic.partitions.get(index)) for index in indexes)
    return [
        OngoingPartitionReassignment(index, list(view.replicas), list(view.adding), list(view.removing))
        for index, view in views
        if view is not None and (view.adding or view.removing)
    ]
