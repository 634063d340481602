"""FindCoordinator (10): which broker leads the partition that keeps a group, or a transactional id (KIP-699: of many at once)."""

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.placement import partition_of
from ottla.broker.handlers.common import route
from ottla.broker.handlers.long_answers import LongAnswers, Pieces
from ottla.broker.internal_topics import GROUPS, TRANSACTIONS
from ottla.broker.network.request import RequestContext
from ottla.broker.network.response_errors import errors_in
from ottla.broker.network.routing import Route
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from ottla.broker.wire.primitives import encode_varint
from ottla.runtime.errors import ErrorCode

_MANY_KEYS_FROM = 4
_NOT_THROTTLED, _NO_TAGS = bytes(4), b"\0"
_TOPICS = {0: GROUPS, 1: TRANSACTIONS}
_NOT_SERVED = {2: "share groups"}
_CREATION_TIMEOUT_MS = 5_000
"""Less than clients wait for an answer: whoever comes first finds a coordinator with its first question."""


PIECE = 1_000
"""Keys that are looked up, and their coordinators written down, in one turn of the loop: a millisecond. A request may have two million."""


def routes(broker: BrokerContext) -> list[Route]:
    long_answers = LongAnswers()

    def answer(request: RequestContext, body: FindCoordinatorRequest) -> None:
        topic = _TOPICS.get(body.key_type)
        if topic is None:
            tell(request, body)
        else:
            broker.internal_topics.require(topic, lambda _: tell(request, body), _CREATION_TIMEOUT_MS)

    def tell(request: RequestContext, body: FindCoordinatorRequest) -> None:
        if request.version >= _MANY_KEYS_FROM and len(body.coordinator_keys) > PIECE:
            long_answers.give(request, _pieces(broker, request, body))
        else:
            _tell(broker, request, body)

    return [route("FindCoordinator", FindCoordinatorRequest, answer)]


def _tell(broker: BrokerContext, request: RequestContext, body: FindCoordinatorRequest) -> None:
    many = request.version >= _MANY_KEYS_FROM
    keys = body.coordinator_keys if many else [body.key]
    found = [_coordinator(broker, request.connection.listener_name, body.key_type, key) for key in keys]
    request.respond_message(FindCoordinatorResponse(coordinators=found) if many else _single(found[0]))


def _pieces(broker: BrokerContext, request: RequestContext, body: FindCoordinatorRequest) -> Pieces:
    """The answer of many keys: the entries of answers to some of them, one behind the other."""
    keys, parts = body.coordinator_keys, list[bytes]()
    for start in range(0, len(keys), PIECE):
        if parts:
            yield
        some = [
            _coordinator(broker, request.connection.listener_name, body.key_type, key)
            for key in keys[start : start + PIECE]
        ]
        answer = FindCoordinatorResponse(coordinators=some)
        request.count_errors(errors_in(answer))
        whole = b"".join(encoder(FindCoordinatorResponse, request.version)(answer))
        parts.append(whole[len(_beginning(len(some))) : -len(_NO_TAGS)])
        request.connection.hold(len(parts[-1]))
    request.connection.hold(-sum(map(len, parts)))
    return [_beginning(len(keys)), *parts, _NO_TAGS]


def _beginning(count: int) -> bytes:
    """What stands before so many entries."""
    return _NOT_THROTTLED + encode_varint(count + 1)


def _coordinator(broker: BrokerContext, listener_name: str, key_type: int, key: str) -> Coordinator:
    name = _TOPICS.get(key_type)
    if name is None:
        served = _NOT_SERVED.get(key_type)
        if served is None:
            return _nobody(key, ErrorCode.INVALID_REQUEST, f"there is no key type {key_type}")
        return _nobody(
            key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{served} are not served by this version of Ottla yet"
        )
    topic = broker.image.topics_by_name.get(name)
    if topic is None or not topic.partitions:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} is not there yet")
    leader_id = topic.partitions[partition_of(key, len(topic.partitions))].leader
    leader = broker.image.brokers.get(leader_id)
    address = leader.address_on(listener_name) if leader is not None and not leader.fenced else None
    if address is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the partition that keeps it has no leader")
    return Coordinator(key, leader_id, *address, ErrorCode.NONE, None)


def _nobody(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key, -1, "", -1, code, message)


def _single(found: Coordinator) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )
