"""The records of `__transaction_state`."""

from functools import cache

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.record_format import Format
from ottla.broker.coordinator.decisions.transactions.transaction import (
    EPOCH_BUMPS_FROM,
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    NOTHING,
    State,
    Transaction,
)
from ottla.broker.wire.messages.transaction_log_key import TransactionLogKey
from ottla.broker.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue

_FORMAT = Format({0: (TransactionLogKey, TransactionLogValue)})
_TAGGED = 1
"""The version with tagged fields, which transaction.version 1 allows. What a transaction of version 2 needs stands in them, so it is
used for such a one in any case: the cluster may be going back."""


def record(transactional_id: str, transaction: Transaction, transaction_version: int) -> Record:
    """Raises WireError for a name that no record can hold."""
    tagged = transaction_version >= _TAGGED or transaction.client_version >= EPOCH_BUMPS_FROM
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=_schemas(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    if tagged:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    written = _FORMAT.record(TransactionLogKey(transactional_id), value, _TAGGED if tagged else 0)
    return written._replace(meaning=(transactional_id, transaction))


def _schemas(transaction: Transaction) -> list[PartitionsSchema] | None:
    """Sorted, so that equal transactions have equal records."""
    if transaction.state is State.EMPTY:
        return None
    return [PartitionsSchema(topic, sorted(indexes)) for topic, indexes in sorted(transaction.partitions.items())]


def tombstone(transactional_id: str) -> Record:
    return _FORMAT.record(TransactionLogKey(transactional_id), None)._replace(meaning=(transactional_id, None))


def read(written: Record) -> tuple[str, Transaction | None] | None:
    """The id, and its transaction unless the id is gone; None for a kind that is not known. Raises WireError, ValueError."""
    if written.meaning is not None:
        return written.meaning
    found = _FORMAT.read(written)
    if found is None:
        return None
    key, value = found
    return key.transactional_id, None if value is None else _restored(value)


def _restored(value: TransactionLogValue) -> Transaction:
    partitions = {each.topic: frozenset(each.partition_ids) for each in value.transaction_partitions or ()}
    state = _state(value.transaction_status)
    return Transaction(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        updated_ms=value.transaction_last_update_timestamp_ms,
        started_ms=value.transaction_start_timestamp_ms,
        partitions=partitions or NOTHING,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        last_epoch=_last_epoch(value, state),
        client_version=value.client_transaction_version,
    )


def _last_epoch(value: TransactionLogValue, state: State) -> int:
    """Whoever ended a transaction of version 2 had the epoch before."""
    if value.client_transaction_version < EPOCH_BUMPS_FROM or state in (State.EMPTY, State.ONGOING):
        return NO_EPOCH
    if value.producer_epoch > 0:
        return value.producer_epoch - 1
    return LAST_EPOCH if value.previous_producer_id != NO_ID else NO_EPOCH


@cache
def _state(status: int) -> State:
    state = State(status)
    if state in (State.DEAD, State.PREPARE_EPOCH_FENCE):
        raise ValueError(f"no record has the state {state.name}")
    return state
