"""Transactions' requests: AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26). What is decided stands in `broker/coordinator`.

Producers of transaction.version 2 send only the last; for them the leaders of partitions add these (KIP-890), with version 4 and later
of AddPartitionsToTxn, which is also asked whether a partition is part of a transaction.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.decisions.transactions import answers
from ottla.broker.coordinator.decisions.transactions.asking import Producer
from ottla.broker.coordinator.decisions.transactions.shard import (
    BROKER_PATIENCE_MS,
    CLIENT_PATIENCE_MS,
    Told,
    TransactionShard,
)
from ottla.broker.coordinator.decisions.transactions.transaction import Partitions
from ottla.broker.handlers.common import route
from ottla.broker.internal_topics import GROUPS, INTERNAL_TOPICS
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.broker.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from ottla.broker.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from ottla.broker.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.broker.wire.messages.end_txn_request import EndTxnRequest
from ottla.broker.wire.messages.end_txn_response import EndTxnResponse
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.timers import Timer

if TYPE_CHECKING:
    from ottla.broker.links.peers import Peers
    from ottla.broker.replication.verifications import Place, Transaction

_CREATION_TIMEOUT_MS = 5_000
_BROKER_ANSWER_MS = 1_000
"""A broker is told of each transaction by then: it asks on one connection, where an answer waits for those before it, and gives up
after some seconds what it asked about others too."""


def routes(broker: BrokerContext) -> list[Route]:
    def add(request: RequestContext, body: AddPartitionsToTxnRequest) -> None:
        if request.version >= answers.BROKERS_FROM:
            add_all(broker, body, request.respond_message, request.version)
        else:
            Adding(broker, request.version, [_only(body)], lambda told: _answer_one(request, told))

    def add_offsets(request: RequestContext, body: AddOffsetsToTxnRequest) -> None:
        broker.internal_topics.require(GROUPS, lambda _: _add_offsets(broker, request, body), _CREATION_TIMEOUT_MS)

    def end(request: RequestContext, body: EndTxnRequest) -> None:
        def tell(found: Told) -> None:
            error = answers.told(found.error, request.version)
            request.respond_message(EndTxnResponse(0, error, found.producer_id, found.epoch))

        try:
            shard = _shard_of(broker, body.transactional_id)
        except KafkaError as error:
            tell(Told(error.code))
        else:
            shard.finish(
                body.transactional_id,
                Producer(body.producer_id, body.producer_epoch),
                tell,
                is_commit=body.committed,
                client_version=answers.client_version_of_end(request.version),
            )

    return [
        route("AddPartitionsToTxn", AddPartitionsToTxnRequest, add),
        route("AddOffsetsToTxn", AddOffsetsToTxnRequest, add_offsets),
        route("EndTxn", EndTxnRequest, end),
    ]


def _shard_of(broker: BrokerContext, transactional_id: str) -> TransactionShard:
    """Raises KafkaError."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id has a name")
    return broker.transactions.shard_of(transactional_id)


def _add_offsets(broker: BrokerContext, request: RequestContext, body: AddOffsetsToTxnRequest) -> None:
    """The partition that keeps the group's offsets becomes part of the transaction."""

    def tell(error: ErrorCode) -> None:
        request.respond_message(AddOffsetsToTxnResponse(0, answers.told(error, request.version)))

    index = broker.groups.place_of(body.group_id)
    if index is None:
        tell(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    try:
        shard = _shard_of(broker, body.transactional_id)
    except KafkaError as error:
        tell(error.code)
    else:
        producer = Producer(body.producer_id, body.producer_epoch)
        shard.add(body.transactional_id, producer, {GROUPS: frozenset((index,))}, tell)


def add_all(
    broker: BrokerContext,
    body: AddPartitionsToTxnRequest,
    answer: Callable[[AddPartitionsToTxnResponse], None],
    version: int,
) -> None:
    """What brokers ask."""
    if body.transactions:
        Adding(broker, version, body.transactions, lambda told: answer(AddPartitionsToTxnResponse(0, 0, told)))
    else:
        answer(AddPartitionsToTxnResponse())


class Coordinators:
    """The nodes that leaders of partitions ask (`links/verifier.py`); this one without a request."""

    def __init__(self, others: "Peers", broker: Callable[[], BrokerContext]) -> None:
        self._others = others
        self._broker = broker

    def ask(
        self,
        broker_id: int,
        request: AddPartitionsToTxnRequest,
        response: type[AddPartitionsToTxnResponse],
        versions: tuple[int, int],
        timeout_ms: int,
        told: Callable[[AddPartitionsToTxnResponse | None], None],
    ) -> None:
        broker = self._broker()
        if broker_id == broker.node_id:
            asyncio.get_running_loop().call_soon(add_all, broker, request, told, versions[1])
        else:
            self._others.ask(broker_id, request, response, versions, timeout_ms, told)

    def verify_here(
        self, broker_id: int, transaction: "Transaction", place: "Place", told: Callable[[ErrorCode], None]
    ) -> bool:
        broker = self._broker()
        if broker_id != broker.node_id:
            return False
        _verify(broker, transaction, place, told)
        return True


def _verify(
    broker: BrokerContext, transaction: "Transaction", place: "Place", told: Callable[[ErrorCode], None]
) -> None:
    """What `Adding` does for one partition that is to be verified, without its messages: once a transaction and partition."""

    def tell(error: ErrorCode, found: Partitions) -> None:
        told(error or answers.verified_one(found, *place))

    if not broker.transactions.has(*place):
        told(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return
    try:
        shard = _shard_of(broker, transaction.transactional_id)
    except KafkaError as error:
        told(error.code)
    else:
        producer = Producer(transaction.producer_id, transaction.producer_epoch)
        shard.verify(transaction.transactional_id, producer, tell)


def _answer_one(request: RequestContext, told: list[AddPartitionsToTxnResult]) -> None:
    request.respond_message(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=told[0].topic_results))


class Adding:
    """AddPartitionsToTxn of several transactions: ``answer`` is told when the last of them has told."""

    def __init__(
        self,
        broker: BrokerContext,
        version: int,
        transactions: list[AddPartitionsToTxnTransaction],
        answer: Callable[[list[AddPartitionsToTxnResult]], None],
    ) -> None:
        self._broker = broker
        self._version = version
        self._is_of_broker = version >= answers.BROKERS_FROM
        self._transactions = transactions
        self._answer = answer
        self._told: dict[int, AddPartitionsToTxnResult] = {}
        self._timer: Timer | None = None
        for place, each in enumerate(transactions):
            self._ask(place, each)
        if self._is_of_broker and len(self._told) < len(transactions):
            self._timer = broker.timers.call_later_ms(_BROKER_ANSWER_MS, self._tell_the_rest)

    def _ask(self, place: int, asked: AddPartitionsToTxnTransaction) -> None:
        partitions = answers.partitions_of(asked.topics)
        forbidden = () if self._is_of_broker else INTERNAL_TOPICS  # a group's is added by AddOffsetsToTxn
        unattempted = answers.unattempted(partitions, self._broker.transactions.has, forbidden)
        if unattempted is not None:
            self._tell(place, unattempted)
            return
        tell_error = partial(self._tell_error, place, partitions)
        producer = Producer(asked.producer_id, asked.producer_epoch)
        try:
            shard = _shard_of(self._broker, asked.transactional_id)
        except KafkaError as error:
            tell_error(error.code)
            return
        if asked.verify_only:
            shard.verify(asked.transactional_id, producer, partial(self._tell_verified, place, partitions))
        else:
            shard.add(
                asked.transactional_id,
                producer,
                partitions,
                tell_error,
                client_version=answers.client_version_of_add(self._version),
                patience_ms=BROKER_PATIENCE_MS if self._is_of_broker else CLIENT_PATIENCE_MS,
            )

    def _tell_error(self, place: int, partitions: Partitions, error: ErrorCode) -> None:
        self._tell(place, answers.same_for_all(partitions, answers.told(error, self._version)))

    def _tell_verified(self, place: int, partitions: Partitions, error: ErrorCode, found: Partitions) -> None:
        if error:
            self._tell_error(place, partitions, error)
        else:
            self._tell(place, answers.verified(partitions, found))

    def _tell_the_rest(self) -> None:
        for place, asked in enumerate(self._transactions):
            self._tell_error(place, answers.partitions_of(asked.topics), ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _tell(self, place: int, topics: list[AddPartitionsToTxnTopicResult]) -> None:
        if place in self._told:
            return
        self._told[place] = AddPartitionsToTxnResult(self._transactions[place].transactional_id, topics)
        if len(self._told) == len(self._transactions):
            if self._timer is not None:
                self._timer.cancel()
            self._answer([self._told[each] for each in range(len(self._transactions))])


def _only(body: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        body.v3_and_below_transactional_id,
        body.v3_and_below_producer_id,
        body.v3_and_below_producer_epoch,
        False,
        body.v3_and_below_topics,
    )
