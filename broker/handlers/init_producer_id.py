"""InitProducerId (22): the id of an idempotent producer. Transactions are not served yet."""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.broker.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.runtime.errors import ErrorCode


def routes(broker: BrokerContext) -> list[Route]:
    def answer(request: RequestContext, body: InitProducerIdRequest) -> None:
        if body.transactional_id is not None:
            # An empty id is a mistake of the client; another one needs a coordinator, which there is none of.
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if body.transactional_id else ErrorCode.INVALID_REQUEST
            request.respond_message(InitProducerIdResponse(error_code=code))
            return

        def on_id(producer_id: int, error: ErrorCode) -> None:
            # A producer without transactions begins anew with a new id, whatever id and epoch it says it had.
            epoch = 0 if error is ErrorCode.NONE else -1
            request.respond_message(
                InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)
            )

        broker.producer_ids.allocate(on_id)

    return [route("InitProducerId", InitProducerIdRequest, answer)]
