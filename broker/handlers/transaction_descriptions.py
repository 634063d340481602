"""What administrators ask about transactions: DescribeTransactions (65), ListTransactions (66)."""

from itertools import islice
from typing import Any

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.decisions.groups.regexes.matching import RegexError, compiled
from ottla.broker.coordinator.decisions.transactions.describing import TransactionFilter, described
from ottla.broker.handlers.common import route
from ottla.broker.handlers.long_answers import LongAnswers, Pieces, batches, list_in_pieces, work_of
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.broker.wire.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.broker.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.broker.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.broker.wire.messages.list_transactions_response import TransactionState as Listed
from ottla.runtime.errors import ErrorCode, KafkaError

LOOKED_AT_MAX = 250
"""Transactions that one turn of the loop looks at for a list, or, together with their topics, describes."""


def routes(broker: BrokerContext) -> list[Route]:
    long_answers = LongAnswers()

    def describe(request: RequestContext, body: DescribeTransactionsRequest) -> None:
        found = (_described(broker, each) for each in dict.fromkeys(body.transactional_ids))
        in_turn = batches(found, LOOKED_AT_MAX, lambda each: 1 + work_of(each.topics))
        long_answers.give(request, list_in_pieces(request, _states, in_turn))

    def list_all(request: RequestContext, body: ListTransactionsRequest) -> None:
        try:
            pieces = _listed(broker, body, _pattern(broker, body), request.version)
        except KafkaError as error:
            request.respond_message(ListTransactionsResponse(error_code=error.code))
        else:
            long_answers.give(request, pieces)

    return [
        route("DescribeTransactions", DescribeTransactionsRequest, describe),
        route("ListTransactions", ListTransactionsRequest, list_all),
    ]


def _states(found: list[TransactionState]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=found)


def _described(broker: BrokerContext, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    try:
        shard = broker.transactions.shard_of(transactional_id)
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    return described(transactional_id, shard.find(transactional_id))


def _pattern(broker: BrokerContext, asked: ListTransactionsRequest) -> Any | None:
    """Raises KafkaError if nothing can be listed."""
    if broker.transactions.is_loading:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "some are not known yet")
    try:
        return compiled(asked.transactional_id_pattern) if asked.transactional_id_pattern else None
    except RegexError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None


def _listed(broker: BrokerContext, asked: ListTransactionsRequest, pattern: Any | None, version: int) -> Pieces:
    wanted = TransactionFilter(
        asked, broker.host.clock.wall_ms()
    )  # once: a request may name a quarter of a million producers
    found: list[Listed] = []
    for shard in broker.transactions.shards():
        left = iter(list(shard.transactions()))
        while some := list(islice(left, LOOKED_AT_MAX)):
            listed = wanted.among(some)
            found += [each for each in listed if pattern is None or pattern.fullmatch(each.transactional_id)]
            if len(some) == LOOKED_AT_MAX:
                yield
    response = ListTransactionsResponse(unknown_state_filters=wanted.unknown, transaction_states=found)
    return encoder(ListTransactionsResponse, version)(response)
