"""Proof that a transaction is known to its coordinator before its first batch enters a partition (KIP-890).

A delayed batch could otherwise arrive behind its transaction's marker and hold the last stable offset back for ever. The
leader makes a guard, asks the coordinator, and appends only while that same guard stands: an end marker that was written
meanwhile has removed it. One object per partition, made when the first transactional batch comes.
"""

from typing import Protocol

import msgspec

from ottla.log.batch import BatchHeader
from ottla.log.producers.entry import comes_before
from ottla.log.producers.state import ProducerStateManager
from ottla.runtime.errors import ErrorCode, KafkaError

EPOCH_BUMPS_FROM = 2
"""The transaction.version from which each transaction of a producer has an epoch of its own."""
NOT_NEEDED = 0
"""The guard of a batch whose transaction is open here already."""


class OfProducer(Protocol):
    """What there is to know of a batch: its header, mostly."""

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def base_sequence(self) -> int: ...


class UnverifiedError(KafkaError):
    """The batch may begin a transaction here: the coordinator has to be asked before it is written."""

    def __init__(self, header: BatchHeader) -> None:
        super().__init__(
            ErrorCode.INVALID_TXN_STATE, f"producer {header.producer_id}: no coordinator knows the transaction"
        )
        self.header = header


class _Verification(msgspec.Struct, gc=False):
    """What one guard stands for."""

    guard: int
    epoch: int
    lowest_sequence: int
    started_ms: int
    from_zero: bool


class VerificationGuards:
    """The guards of one partition: numbers, never given twice.

    Call `verify` right before the append, on the thread that appends.
    """

    __slots__ = ("_last_guard", "_producers", "_verifications", "_void_up_to")

    def __init__(self, producers: ProducerStateManager) -> None:
        self._producers = producers
        self._verifications: dict[int, _Verification] = {}
        self._last_guard = self._void_up_to = NOT_NEEDED

    def clear(self) -> None:
        """Another may have led since: what was proved before, it may have ended. No guard is given again."""
        self._verifications.clear()
        self._void_up_to = self._last_guard

    def begin(self, header: OfProducer, now_ms: int, transaction_version: int = 0) -> int:
        """The guard to hold while the coordinator is asked about a transactional batch; NOT_NEEDED: append at once.

        Retries of a producer share a guard; a later epoch gets a new one.
        """
        if self._is_open(header):
            return NOT_NEEDED
        found = self._verifications.get(header.producer_id)
        if found is None or header.producer_epoch > found.epoch:
            self._last_guard += 1
            from_zero = transaction_version >= EPOCH_BUMPS_FROM
            found = _Verification(self._last_guard, header.producer_epoch, header.base_sequence, now_ms, from_zero)
            self._verifications[header.producer_id] = found
        elif header.producer_epoch == found.epoch and comes_before(header.base_sequence, found.lowest_sequence):
            # An earlier batch may come second; appending the later one first would lose it.
            found.lowest_sequence = header.base_sequence
        return found.guard

    def verify(self, header: OfProducer, guard: int) -> None:
        """Raises KafkaError unless the batch may be appended with what was learned under ``guard``.

        NOT_LEADER_OR_FOLLOWER: another may have led since it was made, so whoever sent the batch may send it again.
        INVALID_TXN_STATE: the guard no longer stands; INVALID_PRODUCER_EPOCH: because its producer was fenced. OUT_OF_ORDER_SEQUENCE_NUMBER: a batch before this one is still being
        verified, or a transaction of version 2 does not begin at 0 in a partition that does not know its producer.
        """
        if self._is_open(header):
            return
        if NOT_NEEDED < guard <= self._void_up_to:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the transaction was verified in another leader epoch")
        found = self._verifications.get(header.producer_id)
        entry = self._producers.entry(header.producer_id)
        if found is None or found.guard != guard:
            message = f"producer {header.producer_id}: the transaction was not verified, or ended meanwhile"
            is_fenced = entry is not None and header.producer_epoch < entry.epoch
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.INVALID_TXN_STATE, message)
        unknown = entry is None
        is_later = comes_before(found.lowest_sequence, header.base_sequence)
        if is_later or (found.from_zero and unknown and header.base_sequence != 0):
            lowest = 0 if found.from_zero and unknown else found.lowest_sequence
            message = (
                f"producer {header.producer_id}: sequence {header.base_sequence} where {lowest} was expected first"
            )
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)

    def appended(self, producer_id: int) -> None:
        """A transactional batch of the producer is in the log: guards made before are void."""
        self._verifications.pop(producer_id, None)

    def ended(self, producer_id: int, epoch: int, transaction_version: int) -> None:
        """An end marker is in the log: what it ended may not be begun again by a guard that was made before.

        From transaction version 2 on the marker has the epoch of the producer's next transaction. A client may be at that before
        all partitions know of the end of the last one, and its guard stands.
        """
        found = self._verifications.get(producer_id)
        if found is not None and not (transaction_version >= EPOCH_BUMPS_FROM and found.epoch >= epoch):
            del self._verifications[producer_id]

    def expire(self, now_ms: int, idle_ms_max: int) -> int:
        """Forgets guards that nobody came back with; returns how many."""
        gone = [pid for pid, found in self._verifications.items() if now_ms - found.started_ms >= idle_ms_max]
        for producer_id in gone:
            del self._verifications[producer_id]
        return len(gone)

    def _is_open(self, header: OfProducer) -> bool:
        return self._producers.has_open(header.producer_id, header.producer_epoch)
