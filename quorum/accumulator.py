"""What the leader's application has appended and the log has not taken yet: offsets are given at once, bytes wait."""

from collections.abc import Sequence

from ottla.quorum.batches import encode_values
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.raft.events import AppendRequested
from ottla.quorum.raft.messages import BatchInfo
from ottla.runtime.errors import ErrorCode, KafkaError


class BatchAccumulator:
    """Appends gathered for one epoch of one leader; ``next_offset`` is what the next record will get."""

    def __init__(self, epoch: int, next_offset: int, batch_bytes_max: int) -> None:
        self.epoch = epoch
        self.next_offset = next_offset
        self._batch_bytes_max = batch_bytes_max
        self._encoded: list[bytearray] = []
        self._committable: list[CommittedBatch] = []

    def __bool__(self) -> bool:
        return bool(self._encoded)

    def append(self, values: Sequence[bytes], now_ms: int, cause: str) -> int:
        """One batch of at least one record; returns the last offset. Raises KafkaError (RECORD_LIST_TOO_LARGE), and then
        nothing was appended."""
        base = self.next_offset
        batch = encode_values(values, base, self.epoch, now_ms, cause)
        if len(batch) > self._batch_bytes_max:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(batch)} bytes of records in one batch")
        last = base + len(values) - 1
        self._encoded.append(batch)
        self._committable.append(CommittedBatch(base, last, self.epoch, now_ms, list(values), cause))
        self.next_offset = last + 1
        return last

    def drain(self) -> tuple[AppendRequested, list[CommittedBatch]]:
        """Everything that waits, as one append of several batches; and the same for the application, to be told later."""
        committable = self._committable
        batches = tuple(BatchInfo(batch.base_offset, batch.last_offset, self.epoch) for batch in committable)
        event = AppendRequested(self.epoch, b"".join(self._encoded), batches)
        self._encoded, self._committable = [], []
        return event, committable
