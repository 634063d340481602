"""FindCoordinator (10): of groups, of which there are none yet, every node says that it is itself; joining one is then refused
(`groups.py`). Transactions and share groups have no coordinator, and the answer says so.

An error here instead would be told by librdkafka to everyone with a group.id, which it demands also of those who only assign
partitions; it would try again for ever, and its close would wait for a coordinator to commit to, for session.timeout.ms.
"""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from ottla.runtime.errors import ErrorCode

_MANY_KEYS_FROM = 4
_GROUP = 0
_NOT_SERVED = {1: "transactions", 2: "share groups"}


def routes(broker: BrokerContext) -> list[Route]:
    def answer(request: RequestContext, body: FindCoordinatorRequest) -> None:
        many = request.version >= _MANY_KEYS_FROM
        keys = body.coordinator_keys if many else [body.key]
        found = [_coordinator(broker, request.connection.listener_name, body.key_type, key) for key in keys]
        request.respond_message(FindCoordinatorResponse(coordinators=found) if many else _single(found[0]))

    return [route("FindCoordinator", FindCoordinatorRequest, answer)]


def _coordinator(broker: BrokerContext, listener_name: str, key_type: int, key: str) -> Coordinator:
    if key_type == _GROUP:
        own = broker.image.brokers.get(broker.node_id)
        address = own.address_on(listener_name) if own is not None else None
        if address is not None:
            return Coordinator(key, broker.node_id, *address, ErrorCode.NONE, None)
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "this node is not registered yet")
    served = _NOT_SERVED.get(key_type)
    if served is None:
        return _nobody(key, ErrorCode.INVALID_REQUEST, f"there is no key type {key_type}")
    return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{served} are not served by this version of Ottla yet")


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
