"""What administrators are told of transactions."""

from collections.abc import Iterable, Sequence

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


def unknown_states(asked: ListTransactionsRequest) -> list[str]:
    return [each for each in asked.state_filters if each not in _BY_NAME]


def listed(
    transactions: Iterable[tuple[str, Transaction]], asked: ListTransactionsRequest, now_ms: int
) -> list[Listed]:
    """Those that every filter lets through; the pattern of names is the caller's."""
    states = {_BY_NAME[each] for each in asked.state_filters if each in _BY_NAME}
    ids: Sequence[int] = asked.producer_id_filters
    return [
        Listed(name, each.producer_id, each.state.told)
        for name, each in transactions
        if (not asked.state_filters or each.state in states)
        and (not ids or each.producer_id in ids)
        and (asked.duration_filter < 0 or now_ms - each.started_ms > asked.duration_filter)
    ]
