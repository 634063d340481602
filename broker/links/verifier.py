"""Asks transactions' coordinators whether partitions belong to them, or has them added (KIP-890): AddPartitionsToTxn.

What is asked in one turn of the loop goes to each coordinator in one request.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ottla.broker.replication.verifications import OnTold, Place, Transaction, tell
from ottla.broker.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.broker.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from ottla.runtime.errors import ErrorCode
from ottla.runtime.timers import LoopTimers

VERSIONS = (4, 5)
TIMEOUT_MS = 5_000


class Others(Protocol):
    """The brokers, by their numbers (`Peers`)."""

    def ask(
        self,
        broker_id: int,
        request: AddPartitionsToTxnRequest,
        response: type[AddPartitionsToTxnResponse],
        versions: tuple[int, int],
        timeout_ms: int,
        told: Callable[[AddPartitionsToTxnResponse | None], None],
    ) -> None: ...


VerifyHere = Callable[[int, Transaction, Place, OnTold], bool]
"""Whether the broker of that number is this one; then it was asked whether the place is a part of the transaction, without a request."""


def _elsewhere(*_: object) -> bool:
    return False


class _Question(NamedTuple):
    transaction: Transaction
    place: Place
    told: OnTold
    asked_ms: int


class Verifier:
    """For all partitions of a broker (`Coordinators`)."""

    def __init__(
        self,
        others: Others,
        coordinator_of: Callable[[str], int | None],
        timers: LoopTimers,
        *,
        retry_ms: int,
        retry_ms_max: int,
        verify_here: VerifyHere = _elsewhere,
    ) -> None:
        """``coordinator_of``: the broker that coordinates a transactional id. ``retry_ms``, ``retry_ms_max``: after which time, and how
        long, a partition is added again while the transaction before is being ended."""
        self._others = others
        self._coordinator_of = coordinator_of
        self._timers = timers
        self._retry_ms = retry_ms
        self._retry_ms_max = retry_ms_max
        self._verify = verify_here
        self._waiting: list[_Question] = []

    def ask(self, transaction: Transaction, place: Place, told: OnTold) -> None:
        """``told`` comes once, and never before this returns."""
        self._put(_Question(transaction, place, told, self._timers.now_ms()))

    def _put(self, question: _Question) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send)
        self._waiting.append(question)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        of_broker: dict[int, list[_Question]] = {}
        for question in waiting:
            broker_id = self._coordinator_of(question.transaction.transactional_id)
            if broker_id is None:
                tell(question.told, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            elif not self._verify_here(broker_id, question):
                of_broker.setdefault(broker_id, []).append(question)
        for broker_id, questions in of_broker.items():
            for together in _requests(questions):
                request = _request(together)
                told = partial(self._answered, together)
                self._others.ask(broker_id, request, AddPartitionsToTxnResponse, VERSIONS, TIMEOUT_MS, told)

    def _verify_here(self, broker_id: int, question: _Question) -> bool:
        """Partitions that are to be added go together in one request, and one record, wherever that is."""
        if question.transaction.adds:
            return False
        return self._verify(broker_id, question.transaction, question.place, partial(tell, question.told))

    def _answered(self, questions: Sequence[_Question], response: AddPartitionsToTxnResponse | None) -> None:
        found = _errors(response) if response is not None else {}
        missing = _error_of_all(response)
        for question in questions:
            error = found.get((question.transaction.transactional_id, question.place), missing)
            if not self._asks_again(question, error):
                tell(question.told, error)

    def _asks_again(self, question: _Question, error: ErrorCode) -> bool:
        if error is not ErrorCode.CONCURRENT_TRANSACTIONS or not question.transaction.adds:
            return False
        if self._timers.now_ms() + self._retry_ms > question.asked_ms + self._retry_ms_max:
            return False
        self._timers.call_later_ms(self._retry_ms, partial(self._put, question))
        return True


def _requests(questions: list[_Question]) -> list[list[_Question]]:
    """In one request a transactional id stands once: answers name nothing else."""
    requests: list[list[_Question]] = []
    of_id: dict[str, dict[Transaction, int]] = {}
    for question in questions:
        numbers = of_id.setdefault(question.transaction.transactional_id, {})
        number = numbers.setdefault(question.transaction, len(numbers))
        if number == len(requests):
            requests.append([])
        requests[number].append(question)
    return requests


def _request(questions: list[_Question]) -> AddPartitionsToTxnRequest:
    places: dict[Transaction, dict[str, dict[int, None]]] = {}
    for transaction, place, *_ in questions:
        places.setdefault(transaction, {}).setdefault(place.topic, {})[place.partition] = None
    return AddPartitionsToTxnRequest(
        [
            AddPartitionsToTxnTransaction(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                not transaction.adds,
                [AddPartitionsToTxnTopic(topic, list(indexes)) for topic, indexes in topics.items()],
            )
            for transaction, topics in places.items()
        ]
    )


def _errors(response: AddPartitionsToTxnResponse) -> dict[tuple[str, Place], ErrorCode]:
    return {
        (transaction.transactional_id, Place(topic.name, each.partition_index)): _known(each.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for each in topic.results_by_partition
    }


def _error_of_all(response: AddPartitionsToTxnResponse | None) -> ErrorCode:
    """Of what the answer does not name."""
    if response is None:
        return ErrorCode.NETWORK_EXCEPTION
    return _known(response.error_code) if response.error_code else ErrorCode.INVALID_TXN_STATE


def _known(number: int) -> ErrorCode:
    code = ErrorCode(number)
    return code if code.is_known else ErrorCode.UNKNOWN_SERVER_ERROR
