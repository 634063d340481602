"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): what kafka-reassign-partitions asks of the controller."""

from ottla.broker.context import NodeContext
from ottla.broker.handlers.common import Ask, Told, ask_controller, prepared_route, text_or_none
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
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
from ottla.runtime.errors import ErrorCode

Listed = controller_pb2.ListPartitionReassignmentsRequest


def routes(node: NodeContext) -> list[Route]:
    def alter(request: RequestContext, prepared: tuple[AlterPartitionReassignmentsRequest, Ask]) -> None:
        body, ask = prepared
        factor_may_change = body.allow_replication_factor_change

        def told(response: Told) -> AlterPartitionReassignmentsResponse:
            results = [
                ReassignableTopicResponse(topic.name, [_result(each) for each in topic.partitions])
                for topic in response.alter_partition_reassignments.topics
            ]
            return AlterPartitionReassignmentsResponse(0, factor_may_change, ErrorCode.NONE, None, results)

        def refuse(code: ErrorCode, message: str) -> AlterPartitionReassignmentsResponse:
            return AlterPartitionReassignmentsResponse(0, factor_may_change, code, text_or_none(message))

        ask_controller(node, request, ask, body.timeout_ms, told, refuse)

    def list_ongoing(request: RequestContext, prepared: tuple[ListPartitionReassignmentsRequest, Ask]) -> None:
        body, ask = prepared

        def told(response: Told) -> ListPartitionReassignmentsResponse:
            topics = [_ongoing(topic) for topic in response.list_partition_reassignments.topics]
            return ListPartitionReassignmentsResponse(error_message=None, topics=topics)

        def refuse(code: ErrorCode, message: str) -> ListPartitionReassignmentsResponse:
            return ListPartitionReassignmentsResponse(error_code=code, error_message=text_or_none(message))

        ask_controller(node, request, ask, body.timeout_ms, told, refuse)

    return [
        prepared_route("AlterPartitionReassignments", AlterPartitionReassignmentsRequest, _changes, alter),
        prepared_route("ListPartitionReassignments", ListPartitionReassignmentsRequest, _question, list_ongoing),
    ]


def _changes(body: AlterPartitionReassignmentsRequest) -> tuple[AlterPartitionReassignmentsRequest, Ask]:
    """Made in its place: a message of hundreds of thousands that is put into another one is copied, in which nobody else runs."""
    ask = Ask()
    ask.alter_partition_reassignments.allow_replication_factor_change = body.allow_replication_factor_change
    for topic in body.topics:
        partitions = ask.alter_partition_reassignments.topics.add(name=topic.name).partitions
        for each in topic.partitions:
            partitions.add(
                partition_index=each.partition_index, replicas=each.replicas or (), cancel=each.replicas is None
            )
    return body, ask


def _question(body: ListPartitionReassignmentsRequest) -> tuple[ListPartitionReassignmentsRequest, Ask]:
    named = [Listed.Topic(name=each.name, partitions=each.partition_indexes) for each in body.topics or ()]
    return body, Ask(list_partition_reassignments=Listed(topics=named, all_partitions=body.topics is None))


def _result(told: controller_pb2.AlterPartitionReassignmentsResponse.Partition) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(told.partition_index, told.error_code, text_or_none(told.error_message))


def _ongoing(topic: controller_pb2.ListPartitionReassignmentsResponse.Topic) -> OngoingTopicReassignment:
    partitions = [
        OngoingPartitionReassignment(each.partition_index, [*each.replicas], [*each.adding], [*each.removing])
        for each in topic.partitions
    ]
    return OngoingTopicReassignment(topic.name, partitions)
