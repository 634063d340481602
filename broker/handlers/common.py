"""What the handlers share: decoding a body, asking the controller, bits and limits."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from ottla.broker.context import NodeContext
from ottla.broker.network.beside import LARGE_BYTES
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Handler, Route
from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder
from ottla.proto import controller_pb2
from ottla.quorum.causes import client_origin
from ottla.quorum.controller.decisions.decision import ENTRIES_MAX, check_entries
from ottla.runtime.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

Message = TypeVar("Message", bound=msgspec.Struct)
Prepared = TypeVar("Prepared")

CONTROLLER_TIMEOUT_MS_MAX = 60_000

# What a client may do where nothing is forbidden: bit n stands for Kafka's ACL operation n.
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
NAMED_TWICE = "the request names this topic more than once"
OPERATIONS_NOT_ASKED = -2147483648


def route(api: str, message: type[Message], answer: Callable[[RequestContext, Message], None]) -> Route:
    """The route of all stable versions of an API whose answer works on the decoded request."""
    return prepared_route(api, message, _as_it_came, answer)


def prepared_route(
    api: str,
    message: type[Message],
    prepare: Callable[[Message], Prepared],
    answer: Callable[[RequestContext, Prepared], None],
) -> Route:
    """The same where the answer works on what ``prepare`` makes of the request: of a large one on the thread that reads it."""

    def handle(request: RequestContext, frame: memoryview, position: int) -> None:
        decode = decoder(message, request.version)
        if len(frame) <= LARGE_BYTES:
            answer(request, prepare(decode(frame, position)[0]))
            return
        copy = memoryview(bytes(frame))
        request.read_beside(lambda: prepare(decode(copy, position)[0]), partial(answer, request))

    return raw_route(api, handle)


def _as_it_came(body: Message) -> Message:
    return body


def raw_route(api: str, handler: Handler) -> Route:
    """The route of all stable versions of an API, given by its name."""
    found = BY_NAME[api]
    return Route(found.key, found.min, found.max_stable, handler)


Ask = controller_pb2.ControllerRequest
Told = controller_pb2.ControllerResponse


def ask_controller(
    node: NodeContext,
    request: RequestContext,
    ask: Ask,
    timeout_ms: int,
    answer: Callable[[Told], msgspec.Struct],
    refuse: Callable[[ErrorCode, str], msgspec.Struct],
) -> None:
    """Sends a request on to the active controller and answers the client with what it says.

    ``answer`` makes the response of a success, ``refuse`` that of an error of the whole request; of a large one on a thread.
    """

    def tell(told: Told) -> None:
        request.respond_with(lambda: answer(told))

    ask_controller_first(node, request, ask, timeout_ms, tell, refuse)


def ask_controller_first(
    node: NodeContext,
    request: RequestContext,
    ask: Ask,
    timeout_ms: int,
    tell: Callable[[Told], None],
    refuse: Callable[[ErrorCode, str], msgspec.Struct],
) -> None:
    """`ask_controller` where the answer takes longer: ``tell`` begins to give it."""
    ask.origin = client_origin(request.client_id, node.node_id)

    def on_done(told: Told | None) -> None:
        if told is None:
            refused(ErrorCode.REQUEST_TIMED_OUT, "the controller did not answer in time")
        elif told.error_code:
            refused(error_code(told.error_code), told.error_message)
        else:
            tell(told)

    def refused(code: ErrorCode, message: str) -> None:
        request.respond_with(lambda: refuse(code, message))

    node.controller.call_back(ask, on_done, max(1, min(timeout_ms, CONTROLLER_TIMEOUT_MS_MAX)))


def is_too_much(request: RequestContext, entries: int, refuse: Callable[[ErrorCode, str], msgspec.Struct]) -> bool:
    """Answers a request that the controller would refuse for its many entries: to pass it on takes longer than to refuse it, and so
    does to look at each of them. ``refuse`` may run on a thread."""
    try:
        check_entries(entries, ENTRIES_MAX)
    except KafkaError as error:
        code, words = error.code, error.message
        request.respond_with(lambda: refuse(code, words))
        return True
    return False


class _Topic(Protocol):
    name: str
    partition_indexes: list[int]


def each_once(topics: Iterable[_Topic]) -> dict[str, dict[int, None]]:
    """Partitions by topic, for an answer that tells each once: a few bytes name one, as often as a client likes."""
    found: dict[str, dict[int, None]] = {}
    for each in topics:
        found.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
    return found


def error_code(number: int) -> ErrorCode:
    """The error of a number that another node sent, which may be newer than we are, and than the client."""
    code = ErrorCode(number)
    if not code.is_known:
        logger.warning("A node answered with error %d, which is unknown here", number)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return code


def text_or_none(text: str) -> str | None:
    """Protobuf's empty string as the null that Kafka's messages carry."""
    return text or None


def operations(asked: bool, all_operations: int) -> int:
    """The bits for a response that may carry permissions: nothing is forbidden here, if they were asked for."""
    return all_operations if asked else OPERATIONS_NOT_ASKED
