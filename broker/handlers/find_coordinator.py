"""FindCoordinator (10): groups and transactions have no coordinator yet, and the answer says so."""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from ottla.runtime.errors import ErrorCode

_MANY_KEYS_FROM = 4
_KEY_TYPES = {0: "consumer groups", 1: "transactions", 2: "share groups"}


def routes(broker: BrokerContext) -> list[Route]:
    def answer(request: RequestContext, body: FindCoordinatorRequest) -> None:
        request.respond_message(_response(body, request.version))

    return [route("FindCoordinator", FindCoordinatorRequest, answer)]


def _response(body: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    served = _KEY_TYPES.get(body.key_type)
    if served is None:
        code, message = ErrorCode.INVALID_REQUEST, f"there is no key type {body.key_type}"
    else:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{served} are not served by this version of Ottla yet"
    if version < _MANY_KEYS_FROM:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key, -1, "", -1, code, message) for key in body.coordinator_keys]
    )
