"""The records of `__transaction_state`.

Three are written of each transaction, so they are put together here: the generated messages, which say the same (a test), take three times
as long. Read they are by those.
"""

from functools import cache
from struct import Struct, pack

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
from ottla.broker.wire.messages.transaction_log_value import TransactionLogValue
from ottla.broker.wire.primitives import encode_compact_string, encode_string, encode_varint

_FORMAT = Format({0: (TransactionLogKey, TransactionLogValue)})
_HEAD = Struct(">hqhib")  # version, producer id and epoch, timeout, state
_TIMES = Struct(">qq")
_INT = Struct(">i")
_KEY_NUMBER = b"\0\0"
_NO_TAGS = b"\0"
_ID_TAG, _VERSION_TAG = Struct(">BBq"), Struct(">BBh")  # number and size of the field before it
_TAGGED = 1
"""The version with tagged fields, which transaction.version 1 allows. What a transaction of version 2 needs stands in them, so it is
used for such a one in any case: the cluster may be going back."""


def record(transactional_id: str, transaction: Transaction, transaction_version: int) -> Record:
    """Raises WireError for a name that no record can hold."""
    tagged = transaction_version >= _TAGGED or transaction.client_version >= EPOCH_BUMPS_FROM
    value = bytearray(
        _HEAD.pack(
            _TAGGED if tagged else 0,
            transaction.producer_id,
            transaction.epoch,
            transaction.timeout_ms,
            transaction.state,
        )
    )
    value += (_tagged_partitions if tagged else _partitions)(transaction)
    value += _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    if tagged:
        value += _tags(transaction)
    return Record(_key(transactional_id), bytes(value), (transactional_id, transaction))


def _key(transactional_id: str) -> bytes:
    return _KEY_NUMBER + encode_string(transactional_id)


def _sorted(transaction: Transaction) -> list[tuple[str, list[int]]]:
    """So that equal transactions have equal records."""
    return [(topic, sorted(indexes)) for topic, indexes in sorted(transaction.partitions.items())]


def _partitions(transaction: Transaction) -> bytes:
    if transaction.state is State.EMPTY:
        return _INT.pack(-1)
    parts = [_INT.pack(len(transaction.partitions))]
    for topic, indexes in _sorted(transaction):
        parts += (encode_string(topic), pack(f">i{len(indexes)}i", len(indexes), *indexes))
    return b"".join(parts)


def _tagged_partitions(transaction: Transaction) -> bytes:
    if transaction.state is State.EMPTY:
        return b"\0"
    parts = [encode_varint(len(transaction.partitions) + 1)]
    for topic, indexes in _sorted(transaction):
        numbers = pack(f">{len(indexes)}i", *indexes)
        parts += (encode_compact_string(topic), encode_varint(len(indexes) + 1), numbers, _NO_TAGS)
    return b"".join(parts)


def _tags(transaction: Transaction) -> bytes:
    """Those that say something, in the order of their numbers."""
    tags = []
    if transaction.previous_producer_id != NO_ID:
        tags.append(_ID_TAG.pack(0, 8, transaction.previous_producer_id))
    if transaction.next_producer_id != NO_ID:
        tags.append(_ID_TAG.pack(1, 8, transaction.next_producer_id))
    if transaction.client_version:
        tags.append(_VERSION_TAG.pack(2, 2, transaction.client_version))
    return bytes((len(tags),)) + b"".join(tags)


def tombstone(transactional_id: str) -> Record:
    return Record(_key(transactional_id), None, (transactional_id, None))


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
