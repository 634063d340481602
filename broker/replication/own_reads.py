"""What a broker reads by itself of a partition that it hosts: a coordinator that loads what its partition says."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from ottla.broker.replication.partition import Partition
from ottla.log.results import ColdReadError
from ottla.runtime.errors import ErrorCode, KafkaError

SLICE_BYTES = 256 << 10
"""What one turn of the loop reads: a fifth of a millisecond, and as much again and more for whoever decodes it."""

UpTo = Callable[[Partition], int]
OnSlice = Callable[[bytes, int, int], Iterable[object] | None]
"""Told whole batches, the offset from which their records count (the first may begin before it), and the one that follows them. What
it gives back is gone through, a piece a turn, before more is read."""

Plan = Callable[[Callable[[], None]], object]
"""Calls back in a later turn of the loop."""

OnEnd = Callable[[KafkaError | None], None]


_NO_MORE = object()


class Loads(Protocol):
    """Waits for the disk on threads (`ColdReads`)."""

    def load(self, cold: Sequence[ColdReadError], on_done: Callable[[], None]) -> None: ...


def high_watermark(partition: Partition) -> int:
    """For whoever wants what is committed."""
    return partition.log.high_watermark


def log_end(partition: Partition) -> int:
    """For the leader: all that it has will be committed, unless another leads before."""
    return partition.log.log_end_offset


class PartitionReading:
    """Reads from an offset on, a slice a turn of the loop, up to where ``up_to`` says then; ``on_end`` is told once, at the end or
    of what kept it from going on. After `cancel` nothing is told."""

    def __init__(
        self,
        partition: Partition,
        offset: int,
        up_to: UpTo,
        loads: Loads,
        on_slice: OnSlice,
        on_end: OnEnd,
        slice_bytes: int = SLICE_BYTES,
        plan: Plan | None = None,
    ) -> None:
        """Begins with the next turn, or when ``plan`` calls. Where the log begins later than at ``offset``, it is read from there."""
        self._partition = partition
        self._offset = offset
        self._up_to = up_to
        self._loads = loads
        self._on_slice = on_slice
        self._on_end = on_end
        self._slice_bytes = slice_bytes
        self._pieces: Iterator[object] = iter(())
        self._warmed = False
        self._over = False
        self._plan = plan or asyncio.get_running_loop().call_soon
        self._plan(self._take_turn)

    def cancel(self) -> None:
        self._over = True

    def _take_turn(self) -> None:
        if self._over:
            return
        try:
            goes_on = next(self._pieces, _NO_MORE) is not _NO_MORE or self._read()
        except ColdReadError as cold:
            self._loads.load([cold], self._loaded)
        except KafkaError as error:
            self._end(error)
        else:
            if goes_on and not self._over:
                self._plan(self._take_turn)

    def _loaded(self) -> None:
        self._warmed = True  # read next time in any case, so that this ends
        self._plan(self._take_turn)

    def _read(self) -> bool:
        partition = self._partition
        if not partition.usable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is not here any more")
        log = partition.log
        offset = max(self._offset, log.log_start_offset)
        limit = self._up_to(partition)
        if offset < limit:
            found = log.read(offset, self._slice_bytes, limit, minimum_one=True, wait=self._warmed)
            self._warmed = False
            if found.data:
                self._offset = found.next_offset
                self._pieces = iter(self._on_slice(found.data, offset, found.next_offset) or ())
                return True
        self._end(None)  # what lies below the limit may have been compacted away
        return False

    def _end(self, error: KafkaError | None) -> None:
        if not self._over:
            self._over = True
            self._on_end(error)
