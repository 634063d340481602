"""What administrators ask about transactions: DescribeTransactions (65), ListTransactions (66)."""

import re2

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.decisions.transactions.describing import described, listed, unknown_states
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.broker.wire.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.broker.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.broker.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.runtime.errors import ErrorCode, KafkaError


def routes(broker: BrokerContext) -> list[Route]:
    def describe(request: RequestContext, body: DescribeTransactionsRequest) -> None:
        found = [_described(broker, each) for each in body.transactional_ids]
        request.respond_message(DescribeTransactionsResponse(transaction_states=found))

    def list_all(request: RequestContext, body: ListTransactionsRequest) -> None:
        request.respond_message(_listed(broker, body))

    return [
        route("DescribeTransactions", DescribeTransactionsRequest, describe),
        route("ListTransactions", ListTransactionsRequest, list_all),
    ]


def _described(broker: BrokerContext, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    try:
        shard = broker.transactions.shard_of(transactional_id)
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    return described(transactional_id, shard.find(transactional_id))


def _listed(broker: BrokerContext, asked: ListTransactionsRequest) -> ListTransactionsResponse:
    if broker.transactions.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    pattern = None
    if asked.transactional_id_pattern:
        try:
            pattern = re2.compile(asked.transactional_id_pattern)
        except re2.error:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now_ms = broker.host.clock.wall_ms()
    found = [each for shard in broker.transactions.shards() for each in listed(shard.transactions(), asked, now_ms)]
    if pattern is not None:
        found = [each for each in found if pattern.fullmatch(each.transactional_id)]
    return ListTransactionsResponse(unknown_state_filters=unknown_states(asked), transaction_states=found)
