"""UnregisterBroker (64): a node that does not come back is forgotten, a broker or a controller that is none (Kafka's
kafka-cluster unregister)."""

from ottla.broker.context import NodeContext
from ottla.broker.handlers.common import CONTROLLER_TIMEOUT_MS_MAX, Ask, Told, ask_controller, route, text_or_none
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.broker.wire.messages.unregister_broker_response import UnregisterBrokerResponse
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode


def routes(node: NodeContext) -> list[Route]:
    def answer(request: RequestContext, body: UnregisterBrokerRequest) -> None:
        def told(_: Told) -> UnregisterBrokerResponse:
            return UnregisterBrokerResponse(error_message=None)

        def refuse(code: ErrorCode, message: str) -> UnregisterBrokerResponse:
            return UnregisterBrokerResponse(error_code=code, error_message=text_or_none(message))

        asked = controller_pb2.UnregisterBrokerRequest(broker_id=body.broker_id)
        ask_controller(node, request, Ask(unregister_broker=asked), CONTROLLER_TIMEOUT_MS_MAX // 2, told, refuse)

    return [route("UnregisterBroker", UnregisterBrokerRequest, answer)]
