"""What becomes of a transactional id when somebody asks: who may, and which transition it is.

CONCURRENT_TRANSACTIONS: the transaction before is not over; whoever asks may wait for that.
"""

from math import inf
from typing import NamedTuple

from ottla.broker.coordinator.decisions.transactions import transitions
from ottla.broker.coordinator.decisions.transactions.transaction import (
    EPOCH_BUMPS_FROM,
    EPOCH_MAX,
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    TWO_PHASES_TIMEOUT_MS,
    Partitions,
    State,
    Transaction,
)
from ottla.runtime.errors import ErrorCode, KafkaError


class NeedsProducerIdError(Exception):
    """The transition needs a producer id that nobody has had: ask again with one."""


class Producer(NamedTuple):
    """Who a producer says it is."""

    id: int
    epoch: int


NOBODY = Producer(NO_ID, NO_EPOCH)


def _new(producer_id: int) -> int:
    if producer_id == NO_ID:
        raise NeedsProducerIdError
    return producer_id


def _refuse(code: ErrorCode, message: str) -> KafkaError:
    return KafkaError(code, message)


# --- InitProducerId ---------------------------------------------------------------------------------------------------


def check_says_who(asker: Producer) -> None:
    """Raises KafkaError (INVALID_REQUEST), also for who is in no transactions."""
    if (asker.id == NO_ID) != (asker.epoch == NO_EPOCH):
        raise _refuse(ErrorCode.INVALID_REQUEST, "a producer has an id and an epoch")


def initialized(
    known: Transaction | None, asker: Producer, timeout_ms: int, now_ms: int, new_id: int = NO_ID
) -> Transaction:
    """A producer begins, or goes on after an error (then it says who it is, KIP-360). Raises KafkaError: PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS. Of a transaction that is open see `must_fence`."""
    if known is None:
        return transitions.begun(_new(new_id), timeout_ms, now_ms)
    _check_may_begin(known, asker)
    if not known.is_at_rest:
        raise _refuse(ErrorCode.CONCURRENT_TRANSACTIONS, f"its transaction is {known.state.told}")
    if known.is_exhausted and asker in (NOBODY, Producer(known.producer_id, known.epoch)):
        last_epoch = known.epoch if asker != NOBODY else NO_EPOCH
        return transitions.rotated(known, _new(new_id), timeout_ms, now_ms, last_epoch=last_epoch)
    if asker == NOBODY:
        return transitions.bumped(known, timeout_ms, now_ms, epoch=known.epoch + 1, last_epoch=NO_EPOCH)
    if asker == (known.producer_id, known.epoch):
        return transitions.bumped(known, timeout_ms, now_ms, epoch=known.epoch + 1, last_epoch=known.epoch)
    if asker.epoch == known.last_epoch and known.epoch == EPOCH_MAX:
        return transitions.rotated(known, _new(new_id), timeout_ms, now_ms, last_epoch=asker.epoch)
    if asker.epoch == known.last_epoch:
        # Its answer was lost. Nobody else can have begun: that would have forgotten the last epoch.
        return transitions.bumped(known, timeout_ms, now_ms, epoch=known.epoch, last_epoch=known.last_epoch)
    raise _refuse(ErrorCode.PRODUCER_FENCED, f"the epoch is {known.epoch}, not {asker.epoch}")


def _check_may_begin(known: Transaction, asker: Producer) -> None:
    # `producer` has another id where it was just given the next one.
    if asker in (NOBODY, known.producer) or asker.id == known.producer_id:
        return
    if asker.id != known.previous_producer_id:
        raise _refuse(ErrorCode.PRODUCER_FENCED, f"producer {asker.id} is another's, or no more")


def must_fence(known: Transaction | None, asker: Producer) -> bool:
    """Whether a producer that begins finds a transaction open, which is aborted then. Raises KafkaError (PRODUCER_FENCED): one
    that goes on after an error aborts only its own."""
    if known is None or known.state is not State.ONGOING:
        return False
    if asker not in (NOBODY, Producer(known.producer_id, known.epoch)):
        raise _refuse(ErrorCode.PRODUCER_FENCED, f"the transaction is of producer {known.producer_id}, {known.epoch}")
    return True


# --- AddPartitionsToTxn -----------------------------------------------------------------------------------------------


def _check_producer(known: Transaction | None, asker: Producer) -> Transaction:
    if known is None:
        raise _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id is not known")
    if known.is_prepared and asker == known.producer:
        raise _refuse(ErrorCode.CONCURRENT_TRANSACTIONS, f"its transaction before is {known.state.told}")
    _check_identity(known, asker)
    return known


def _check_identity(known: Transaction, asker: Producer) -> None:
    if asker.id != known.producer_id:
        raise _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"its producer is {known.producer_id}, not {asker.id}")
    if asker.epoch != known.epoch or known.epoch == EPOCH_MAX or known.next_producer_id != NO_ID:
        raise _refuse(ErrorCode.PRODUCER_FENCED, f"the epoch is {known.epoch}, not {asker.epoch}")


def extended(
    known: Transaction | None, asker: Producer, partitions: Partitions, client_version: int, now_ms: int
) -> Transaction | None:
    """With the partitions in its transaction, which this may begin; None if they are. Raises KafkaError:
    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS."""
    found = _check_producer(known, asker)
    has = found.partitions
    if found.state is State.ONGOING and all(each <= has.get(topic, frozenset()) for topic, each in partitions.items()):
        return None
    return transitions.extended(found, partitions, client_version, now_ms)


def verified(known: Transaction | None, asker: Producer) -> Partitions:
    """What is in its transaction. Raises as `extended` does."""
    return _check_producer(known, asker).partitions


# --- EndTxn -----------------------------------------------------------------------------------------------------------


def ended(
    known: Transaction | None,
    asker: Producer,
    *,
    is_commit: bool,
    client_version: int,
    now_ms: int,
    new_id: int = NO_ID,
) -> Transaction | None:
    """Prepared; None: it was ended so before, and this is a repetition. Raises KafkaError: INVALID_PRODUCER_ID_MAPPING,
    PRODUCER_FENCED, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS."""
    bumps = client_version >= EPOCH_BUMPS_FROM
    if bumps and known is not None and _is_repeated(known, asker):
        _check_again(known, is_commit=is_commit)
        return None
    if known is not None and known.is_prepared and not bumps:
        _check_identity(known, asker)
        _check_again(known, is_commit=is_commit)
        return None
    found = _check_producer(known, asker)
    if found.state is not State.ONGOING:
        if not bumps and found.state is not State.EMPTY:
            _check_again(found, is_commit=is_commit)
            return None
        if is_commit or not bumps:
            raise _refuse(ErrorCode.INVALID_TXN_STATE, f"there is no transaction: it is {found.state.told}")
    next_id = _new(new_id) if bumps and found.is_exhausted else NO_ID
    return transitions.prepared(
        found, is_commit=is_commit, client_version=client_version, next_producer_id=next_id, now_ms=now_ms
    )


def _is_repeated(known: Transaction, asker: Producer) -> bool:
    """The answer to a request of version 2 was lost: since then the epoch has moved on by one, or to the next id. What was ended by
    older rules is another's, who was given the epoch that follows."""
    if known.state in (State.EMPTY, State.ONGOING) or known.client_version < EPOCH_BUMPS_FROM:
        return False
    if asker.id == known.producer_id:
        return known.epoch == asker.epoch + 1
    is_next = not known.is_prepared and known.epoch == 0
    return is_next and asker == (known.previous_producer_id, LAST_EPOCH)


def _check_again(known: Transaction, *, is_commit: bool) -> None:
    """A repetition: in the same way it is answered once the transaction is complete."""
    if is_commit != (known.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)):
        raise _refuse(ErrorCode.INVALID_TXN_STATE, f"the transaction is {known.state.told}")
    if known.is_prepared:
        raise _refuse(ErrorCode.CONCURRENT_TRANSACTIONS, f"its transaction is {known.state.told}")
    if known.epoch == EPOCH_MAX:
        raise _refuse(ErrorCode.PRODUCER_FENCED, "its epochs are used up")


# --- on the coordinator's own account ---------------------------------------------------------------------------------


def due_ms(known: Transaction, clock_ms: int, time_ms: int) -> float:
    """When one that has just come to be known here as open will have been so for as long as its producer allowed, by the clock that
    never goes back. The time of day tells only what it had left then, and never more than all: the calendar of this node, or of
    the coordinator before, may have jumped. Infinity where its producer allowed any time."""
    if known.timeout_ms == TWO_PHASES_TIMEOUT_MS:
        return inf
    return clock_ms + min(known.started_ms - time_ms, 0) + known.timeout_ms


def is_late(due_ms: float, clock_ms: int) -> bool:
    """Open for longer than its producer allowed."""
    return due_ms < clock_ms


def is_expired(known: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Nobody has used the transactional id for so long that it is forgotten."""
    return known.is_at_rest and known.updated_ms <= now_ms - expiration_ms
