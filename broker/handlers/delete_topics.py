"""DeleteTopics (20): by name, and from version 6 by id; decided by the controller."""

from collections import Counter
from collections.abc import Iterable
from functools import partial

from ottla.broker.context import NodeContext
from ottla.broker.handlers.common import Ask, Told, ask_controller, is_too_much, route, text_or_none
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.broker.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

_DISABLED_ERROR_FROM = 3


def routes(node: NodeContext) -> list[Route]:
    def answer(request: RequestContext, body: DeleteTopicsRequest) -> None:
        if is_too_much(request, len(body.topics) + len(body.topic_names), partial(_all_refused, body)):
            return
        asked = _named(body)
        if not node.config.flag("delete.topic.enable"):
            known = request.version >= _DISABLED_ERROR_FROM
            code = ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST
            request.respond_message(_refused(asked, code, "delete.topic.enable=false"))
            return
        refused = _mistakes(asked)
        wanted = [each for each in asked if (each.name, each.topic_id) not in refused]
        if not wanted:
            request.respond_message(DeleteTopicsResponse(responses=list(refused.values())))
            return

        def told(response: Told) -> DeleteTopicsResponse:
            results = [_result(topic) for topic in response.delete_topics.topics]
            return DeleteTopicsResponse(responses=results + list(refused.values()))

        def refuse(code: ErrorCode, message: str) -> DeleteTopicsResponse:
            return DeleteTopicsResponse(responses=_refused(wanted, code, message).responses + list(refused.values()))

        ask = Ask(delete_topics=controller_pb2.DeleteTopicsRequest(topics=[_asked(topic) for topic in wanted]))
        ask_controller(node, request, ask, body.timeout_ms, told, refuse)

    return [route("DeleteTopics", DeleteTopicsRequest, answer)]


def _named(body: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """Each version has one of the two lists."""
    return body.topics or [DeleteTopicState(name) for name in body.topic_names]


def _mistakes(asked: list[DeleteTopicState]) -> dict[tuple[str | None, bytes], DeletableTopicResult]:
    """The entries that say both name and id, neither, or the same as another entry."""
    count = Counter((each.name, each.topic_id) for each in asked)
    found: dict[tuple[str | None, bytes], DeletableTopicResult] = {}
    for key, times in count.items():
        name, topic_id = key
        if times > 1:
            message = "the request names this topic more than once"
        elif (name is None) == (topic_id == ZERO_ID):
            message = "say either the topic's name or its id"
        else:
            continue
        found[key] = DeletableTopicResult(name, topic_id, ErrorCode.INVALID_REQUEST, message)
    return found


def _asked(topic: DeleteTopicState) -> controller_pb2.DeleteTopicsRequest.Topic:
    if topic.name is not None:
        return controller_pb2.DeleteTopicsRequest.Topic(name=topic.name)
    return controller_pb2.DeleteTopicsRequest.Topic(topic_id=topic.topic_id)


def _result(topic: controller_pb2.DeleteTopicsResponse.Topic) -> DeletableTopicResult:
    return DeletableTopicResult(
        topic.name if topic.HasField("name") else None,
        topic.topic_id or ZERO_ID,
        topic.error_code,
        text_or_none(topic.error_message),
    )


def _all_refused(body: DeleteTopicsRequest, code: ErrorCode, message: str) -> DeleteTopicsResponse:
    """Each once: a few bytes name one, as often as a client likes."""
    return _refused({(each.name, each.topic_id): each for each in _named(body)}.values(), code, message)


def _refused(asked: Iterable[DeleteTopicState], code: ErrorCode, message: str) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[DeletableTopicResult(each.name, each.topic_id, code, message) for each in asked]
    )
