"""CreateTopics (19): decided by the controller; the answer tells the settings that hold here, of some topics a turn of the loop."""

from functools import partial
from itertools import chain

from ottla.broker.context import NodeContext
from ottla.broker.handlers.cluster_view import duplicates
from ottla.broker.handlers.common import NAMED_TWICE, Ask, Told, ask_controller_first, is_too_much, route, text_or_none
from ottla.broker.handlers.config_entries import topic_entries
from ottla.broker.handlers.long_answers import LongAnswers, batches, list_in_pieces
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.broker.wire.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode

PIECE = 8
"""Topics whose answer is put together in one turn of the loop: each has all its settings."""


def routes(node: NodeContext) -> list[Route]:
    long_answers = LongAnswers()

    def answer(request: RequestContext, body: CreateTopicsRequest) -> None:
        if is_too_much(request, _entries(body.topics), partial(_all_refused, body.topics)):
            return
        twice = duplicates(topic.name for topic in body.topics)
        refused = [
            CreatableTopicResult(name, error_code=ErrorCode.INVALID_REQUEST, error_message=NAMED_TWICE)
            for name in twice
        ]
        wanted = [topic for topic in body.topics if topic.name not in twice]
        if not wanted:
            request.respond_message(CreateTopicsResponse(topics=refused))
            return

        def tell(response: Told) -> None:
            results = chain((_result(node, topic) for topic in response.create_topics.topics), refused)
            long_answers.give(request, list_in_pieces(request, _response, batches(results, PIECE, lambda _: 1)))

        def refuse(code: ErrorCode, message: str) -> CreateTopicsResponse:
            return CreateTopicsResponse(topics=_all_refused(wanted, code, message).topics + refused)

        asked = controller_pb2.CreateTopicsRequest(
            topics=[_asked(topic) for topic in wanted], validate_only=body.validate_only
        )
        ask_controller_first(node, request, Ask(create_topics=asked), body.timeout_ms, tell, refuse)

    return [route("CreateTopics", CreateTopicsRequest, answer)]


def _response(results: list[CreatableTopicResult]) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=results)


def _entries(topics: list[CreatableTopic]) -> int:
    """What would become a record each."""
    return len(topics) + sum(len(each.assignments) + len(each.configs) for each in topics)


def _all_refused(topics: list[CreatableTopic], code: ErrorCode, message: str) -> CreateTopicsResponse:
    names = dict.fromkeys(each.name for each in topics)
    return _response([CreatableTopicResult(name, error_code=code, error_message=message) for name in names])


def _asked(topic: CreatableTopic) -> controller_pb2.CreateTopicsRequest.Topic:
    return controller_pb2.CreateTopicsRequest.Topic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            controller_pb2.ReplicaAssignment(partition_index=each.partition_index, broker_ids=each.broker_ids)
            for each in topic.assignments
        ],
        configs=[controller_pb2.TopicConfig(name=each.name, value=each.value) for each in topic.configs],
    )


def _result(node: NodeContext, topic: controller_pb2.CreateTopicsResponse.Topic) -> CreatableTopicResult:
    if topic.error_code:
        return CreatableTopicResult(
            topic.name, error_code=topic.error_code, error_message=text_or_none(topic.error_message)
        )
    own = {each.name: each.value for each in topic.configs if each.HasField("value")}
    return CreatableTopicResult(
        topic.name,
        topic.topic_id,
        error_message=None,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(entry.name, entry.shown_value, entry.read_only, entry.source, entry.is_sensitive)
            for entry in topic_entries(node, own)
        ],
    )
