"""CreatePartitions (37): raises a topic's partition count; decided by the controller."""

from functools import partial

from ottla.broker.context import NodeContext
from ottla.broker.handlers.cluster_view import duplicates
from ottla.broker.handlers.common import NAMED_TWICE, Ask, Told, ask_controller, is_too_much, route, text_or_none
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.broker.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode


def routes(node: NodeContext) -> list[Route]:
    def answer(request: RequestContext, body: CreatePartitionsRequest) -> None:
        if is_too_much(request, _entries(body.topics), partial(_all_refused, body.topics)):
            return
        twice = duplicates(topic.name for topic in body.topics)
        refused = [CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, NAMED_TWICE) for name in twice]
        wanted = [topic for topic in body.topics if topic.name not in twice]
        if not wanted:
            request.respond_message(CreatePartitionsResponse(results=refused))
            return

        def told(response: Told) -> CreatePartitionsResponse:
            results = [
                CreatePartitionsTopicResult(each.name, each.error_code, text_or_none(each.error_message))
                for each in response.create_partitions.topics
            ]
            return CreatePartitionsResponse(results=results + refused)

        def refuse(code: ErrorCode, message: str) -> CreatePartitionsResponse:
            return CreatePartitionsResponse(results=_all_refused(wanted, code, message).results + refused)

        asked = controller_pb2.CreatePartitionsRequest(
            topics=[_asked(topic) for topic in wanted], validate_only=body.validate_only
        )
        ask_controller(node, request, Ask(create_partitions=asked), body.timeout_ms, told, refuse)

    return [route("CreatePartitions", CreatePartitionsRequest, answer)]


def _entries(topics: list[CreatePartitionsTopic]) -> int:
    """Topics, and the partitions whose replicas are said: each would become a record."""
    return len(topics) + sum(len(each.assignments or ()) for each in topics)


def _all_refused(topics: list[CreatePartitionsTopic], code: ErrorCode, message: str) -> CreatePartitionsResponse:
    names = dict.fromkeys(each.name for each in topics)
    return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name, code, message) for name in names])


def _asked(topic: CreatePartitionsTopic) -> controller_pb2.CreatePartitionsRequest.Topic:
    given = topic.assignments or []
    return controller_pb2.CreatePartitionsRequest.Topic(
        name=topic.name,
        count=topic.count,
        assignments=[controller_pb2.CreatePartitionsRequest.Assignment(broker_ids=each.broker_ids) for each in given],
        has_assignments=topic.assignments is not None,
    )
