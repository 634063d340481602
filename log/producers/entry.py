"""What one partition remembers of one producer: epoch, last batches, the transaction it has open here."""

from typing import NamedTuple

from ottla.log.batch import BatchHeader

BATCHES_KEPT = 5  # a client has at most five requests in flight with idempotence
NO_EPOCH = -1
NO_SEQUENCE = -1
SEQUENCE_MAX = 2**31 - 1


class CachedBatch(NamedTuple):
    """A batch that was appended, by which its repetition is known. Offsets are the log's."""

    base_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


def add_to_sequence(sequence: int, count: int) -> int:
    """The sequence ``count`` further on: after 2^31 - 1 comes 0."""
    return (sequence + count) & SEQUENCE_MAX


def comes_before(sequence: int, other: int) -> bool:
    """Sequences go round, and those of batches that are on their way together lie close by each other."""
    return 0 < (other - sequence) & SEQUENCE_MAX <= SEQUENCE_MAX // 2


class ProducerEntry:
    """Mutable state of one producer id; a batch is known as repeated by epoch and both its sequences."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "next_sequence",
        "seen_ms",
        "seen_offset",
        "transaction_first_offset",
    )

    def __init__(
        self,
        epoch: int = NO_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        transaction_first_offset: int = -1,
    ) -> None:
        self.epoch = epoch
        self.batches: list[CachedBatch] = []
        self.next_sequence = 0
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.transaction_first_offset = transaction_first_offset
        self.seen_offset = (
            self.seen_ms
        ) = -1  # how far it had written when idle producers were looked for, and when that was news

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def find_duplicate(self, header: BatchHeader) -> CachedBatch | None:
        """The cached batch that this one repeats."""
        if header.producer_epoch != self.epoch:
            return None
        last_sequence = add_to_sequence(header.base_sequence, header.last_offset_delta)
        for batch in self.batches:
            if batch.base_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def add(self, epoch: int, batch: CachedBatch) -> None:
        self.set_epoch(epoch)
        batches = self.batches
        batches.append(batch)
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        self.next_sequence = (batch.last_sequence + 1) & SEQUENCE_MAX
        self.last_timestamp = batch.timestamp

    def set_epoch(self, epoch: int) -> None:
        """With a new epoch sequences begin anew, so older batches no longer count."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []
            self.next_sequence = 0
