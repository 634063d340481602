"""InitProducerId (22): the id and epoch of an idempotent producer, or of a transactional one (KIP-360, KIP-939)."""

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.decisions.transactions.answers import INIT_FENCED_FROM, told
from ottla.broker.coordinator.decisions.transactions.asking import Producer, check_says_who
from ottla.broker.coordinator.decisions.transactions.shard import Beginning, Told, TransactionShard
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.broker.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.runtime.errors import ErrorCode, KafkaError


def routes(broker: BrokerContext) -> list[Route]:
    def answer(request: RequestContext, body: InitProducerIdRequest) -> None:
        def tell(found: Told) -> None:
            error = told(found.error, request.version, INIT_FENCED_FROM)
            request.respond_message(
                InitProducerIdResponse(error_code=error, producer_id=found.producer_id, producer_epoch=found.epoch)
            )

        asker, transactional_id = Producer(body.producer_id, body.producer_epoch), body.transactional_id
        try:
            check_says_who(asker)
            shard = None if transactional_id is None else _shard_of(broker, transactional_id)
        except KafkaError as error:
            tell(Told(error.code))
            return
        if transactional_id is None or shard is None:
            # A producer without transactions begins anew with a new id, whatever id and epoch it says it had.
            broker.producer_ids.allocate(lambda new_id, error: tell(Told(error) if error else Told(error, new_id, 0)))
            return
        beginning = Beginning(
            body.transaction_timeout_ms, asker, two_phases=body.enable2_pc, keeps_prepared=body.keep_prepared_txn
        )
        shard.init(transactional_id, beginning, tell)

    return [route("InitProducerId", InitProducerIdRequest, answer)]


def _shard_of(broker: BrokerContext, transactional_id: str) -> TransactionShard:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id has a name")
    return broker.transactions.shard_of(transactional_id)
