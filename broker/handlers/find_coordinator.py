"""FindCoordinator (10): which broker leads the partition that keeps a group, or a transactional id (KIP-699: of many at once)."""

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.placement import partition_of
from ottla.broker.handlers.common import route
from ottla.broker.handlers.long_answers import LongAnswers, batches, list_in_pieces
from ottla.broker.internal_topics import GROUPS, TRANSACTIONS
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from ottla.runtime.errors import ErrorCode

_MANY_KEYS_FROM = 4
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
        is_one = request.version < _MANY_KEYS_FROM
        keys = [body.key] if is_one else body.coordinator_keys
        found = (_coordinator(broker, request.connection.listener_name, body.key_type, key) for key in keys)
        if is_one:
            request.respond_message(_single(next(found)))
        elif len(keys) <= PIECE:
            request.respond_message(_many(list(found)))
        else:
            long_answers.give(request, list_in_pieces(request, _many, batches(found, PIECE, lambda _: 1)))

    return [route("FindCoordinator", FindCoordinatorRequest, answer)]


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


def _many(found: list[Coordinator]) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=found)


def _single(found: Coordinator) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )
