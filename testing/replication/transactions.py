"""A stand-in for the coordinator of all transactions: it says of partitions what the test says, when the test lets it."""

from ottla.broker.network.request import RequestContext
from ottla.broker.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from ottla.broker.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.runtime.errors import ErrorCode


class Transactions:
    """On broker ``node_id``; None: nobody coordinates."""

    def __init__(self) -> None:
        self.node_id: int | None = 1
        self.errors: list[ErrorCode] = []
        """Of the requests to come, each of all partitions in it; then NONE."""
        self.asked: list[AddPartitionsToTxnRequest] = []
        self.holds = False
        self._held: list[tuple[RequestContext, AddPartitionsToTxnRequest]] = []

    def add_partitions(self, request: RequestContext, body: AddPartitionsToTxnRequest) -> None:
        self.asked.append(body)
        self._held.append((request, body))
        if not self.holds:
            self.answer()

    def answer(self) -> None:
        """Those that wait, in their order."""
        held, self._held = self._held, []
        for request, body in held:
            error = self.errors.pop(0) if self.errors else ErrorCode.NONE
            request.respond_message(_answer(body, error))


def _answer(body: AddPartitionsToTxnRequest, error: ErrorCode) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transaction.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name, [AddPartitionsToTxnPartitionResult(each, error) for each in topic.partitions]
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in body.transactions
        ]
    )
