"""What administrators are told of transactions."""

from collections.abc import Iterable

from ottla.broker.coordinator.decisions.transactions.transaction import State, Transaction
from ottla.broker.wire.messages.describe_transactions_response import TopicData
from ottla.broker.wire.messages.describe_transactions_response import TransactionState as Described
from ottla.broker.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.broker.wire.messages.list_transactions_response import TransactionState as Listed
from ottla.runtime.errors import ErrorCode

_BY_NAME = {state.told: state for state in State}


def described(transactional_id: str, found: Transaction | None) -> Described:
    if found is None:
        return Described(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
    return Described(
        transactional_id=transactional_id,
        transaction_state=found.state.told,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[TopicData(topic, sorted(indexes)) for topic, indexes in sorted(found.partitions.items())],
    )


class TransactionFilter:
    """What ListTransactions asks for: what every filter lets through; the pattern of names is the caller's."""

    def __init__(self, asked: ListTransactionsRequest, now_ms: int) -> None:
        self.unknown = list(dict.fromkeys(each for each in asked.state_filters if each not in _BY_NAME))
        self._names_states = bool(asked.state_filters)
        self._states = {_BY_NAME[each] for each in asked.state_filters if each in _BY_NAME}
        self._ids = set(asked.producer_id_filters)
        self._duration_ms, self._now_ms = asked.duration_filter, now_ms

    def among(self, transactions: Iterable[tuple[str, Transaction]]) -> list[Listed]:
        ids, duration_ms = self._ids, self._duration_ms
        return [
            Listed(name, each.producer_id, each.state.told)
            for name, each in transactions
            if (not self._names_states or each.state in self._states)
            and (not ids or each.producer_id in ids)
            and (duration_ms < 0 or self._now_ms - each.started_ms > duration_ms)
        ]
