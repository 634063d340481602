"""From one state of a transaction to the next. Who may ask for it is decided elsewhere (`asking.py`)."""

from collections.abc import Mapping

import msgspec

from ottla.broker.coordinator.decisions.transactions.transaction import (
    BEFORE,
    EPOCH_BUMPS_FROM,
    EPOCH_MAX,
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    NO_TIME,
    NOTHING,
    Partitions,
    State,
    Transaction,
)

replace = msgspec.structs.replace


class IllegalTransitionError(Exception):
    """A mistake of ours."""


def _moved(known: Transaction, state: State, now_ms: int, **changes: object) -> Transaction:
    if known.state not in BEFORE[state]:
        raise IllegalTransitionError(f"{state.name} does not follow {known.state.name}")
    changes = {"previous_producer_id": NO_ID, **changes}
    return replace(known, state=state, updated_ms=max(now_ms, known.updated_ms), **changes)


def begun(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """A transactional id that was not known."""
    return Transaction(producer_id=producer_id, epoch=0, timeout_ms=timeout_ms, state=State.EMPTY, updated_ms=now_ms)


def bumped(known: Transaction, timeout_ms: int, now_ms: int, *, epoch: int, last_epoch: int) -> Transaction:
    """The producer begins anew, with that epoch."""
    return _moved(
        known,
        State.EMPTY,
        now_ms,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=NOTHING,
        started_ms=NO_TIME,
        next_producer_id=NO_ID,
        client_version=0,
        previous_producer_id=known.previous_producer_id if epoch == known.epoch else NO_ID,
    )


def rotated(known: Transaction, producer_id: int, timeout_ms: int, now_ms: int, *, last_epoch: int) -> Transaction:
    """The producer begins anew, with another id."""
    fresh = bumped(known, timeout_ms, now_ms, epoch=0, last_epoch=last_epoch)
    return replace(fresh, producer_id=producer_id, previous_producer_id=known.producer_id)


def extended(known: Transaction, partitions: Partitions, client_version: int, now_ms: int) -> Transaction:
    """With more partitions; perhaps its first."""
    started_ms = known.started_ms if known.state is State.ONGOING else now_ms
    return _moved(
        known,
        State.ONGOING,
        now_ms,
        partitions=_joined(known.partitions, partitions),
        started_ms=started_ms,
        client_version=client_version,
    )


def _joined(some: Partitions, more: Partitions) -> Partitions:
    joined: dict[str, frozenset[int]] = dict(some)
    for topic, indexes in more.items():
        joined[topic] = joined.get(topic, frozenset()) | indexes
    return joined


def prepared(
    known: Transaction, *, is_commit: bool, client_version: int, next_producer_id: int, now_ms: int
) -> Transaction:
    """The decision how it ends. From version 2 on it bumps the epoch."""
    changes: Mapping[str, object] = {}
    if client_version >= EPOCH_BUMPS_FROM:
        changes = {"epoch": known.epoch + 1, "last_epoch": known.epoch, "next_producer_id": next_producer_id}
    return _moved(
        known,
        State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
        now_ms,
        client_version=client_version,
        started_ms=known.started_ms if known.state is State.ONGOING else now_ms,
        **changes,
    )


def fenced(known: Transaction, transaction_version: int, now_ms: int) -> Transaction:
    """Nobody's producer has the epoch with which it is aborted: whoever began it is fenced.

    Of version 2 the producer may go on with it: it is told when it ends what is ended already.
    """
    bumps = transaction_version >= EPOCH_BUMPS_FROM
    return _moved(
        known,
        State.PREPARE_ABORT,
        now_ms,
        epoch=min(known.epoch + 1, EPOCH_MAX),
        last_epoch=known.epoch if bumps else NO_EPOCH,
        client_version=EPOCH_BUMPS_FROM if bumps else 0,
    )


def completed(known: Transaction, now_ms: int) -> Transaction:
    """All its partitions know how it ended."""
    changes: Mapping[str, object] = {}
    if known.next_producer_id != NO_ID:
        changes = {
            "producer_id": known.next_producer_id,
            "previous_producer_id": known.producer_id,
            "next_producer_id": NO_ID,
            "epoch": 0,
            "last_epoch": LAST_EPOCH,
        }
    is_commit = known.state is State.PREPARE_COMMIT
    state = State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT
    return _moved(known, state, now_ms, partitions=NOTHING, **changes)
