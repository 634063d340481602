"""A segment being written by compaction: batches in, ``.cleaned`` files with their indexes out."""

import msgspec

from ottla.log.segments import transactions
from ottla.log.segments.layout import (
    CLEANED_SUFFIX,
    INDEX_ENTRY,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_ENTRY,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    stem,
)
from ottla.log.segments.transactions import AbortedTransaction
from ottla.runtime.disk import Buffer, Disk

FLUSH_BYTES = 1 << 20
WRITE_BACK_BYTES = 8 << 20


class CleanedSegment(msgspec.Struct, frozen=True):
    """What took the place of ``replaced`` (base offsets): a segment of the same first base offset, perhaps empty."""

    base_offset: int
    replaced: tuple[int, ...]
    size_bytes: int
    largest_timestamp: int = -1


class SegmentWriter:
    """A cleaned segment on its way to the disk, in pieces of a megabyte.

    Indexes as the log itself would have made them. `finish` makes it durable.
    """

    def __init__(self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        self._disk = disk
        self._stem = stem(directory, base_offset)
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._file = disk.open(self._stem + LOG_SUFFIX + CLEANED_SUFFIX, create=True)
        self._file.truncate(0)
        self._pending = bytearray()
        self._unindexed_bytes = 0
        self._index = bytearray()
        self._time_index = bytearray()
        self._indexed_timestamp = -1
        self._latest_offset = base_offset
        self.size_bytes = 0
        self._written_back = 0
        self.largest_timestamp = -1

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self.largest_timestamp:
            self.largest_timestamp, self._latest_offset = max_timestamp, last_offset
        if self._unindexed_bytes > self._index_interval_bytes:
            self._index += INDEX_ENTRY.pack(last_offset - self._base_offset, self.size_bytes)
            self._note_time()
            self._unindexed_bytes = 0
        size = len(batch)
        self.size_bytes += size
        self._unindexed_bytes += size
        self._pending += batch  # a copy: views would keep the pieces that they were read from alive
        if len(self._pending) >= FLUSH_BYTES:
            self._flush()

    def finish(self, aborted: list[AbortedTransaction]) -> None:
        """Writes what is left and the indexes, and syncs all of it."""
        self._flush()
        self._note_time()
        self._file.sync()
        self._file.close()
        self._write(INDEX_SUFFIX, bytes(self._index))
        self._write(TIME_INDEX_SUFFIX, bytes(self._time_index))
        if aborted:
            self._write(TRANSACTION_INDEX_SUFFIX, b"".join(map(transactions.encode, aborted)))

    def abandon(self) -> None:
        """Closes the file; the unfinished ``.cleaned`` files are removed by whoever starts the next cleaning or recovery."""
        self._file.close()

    def _note_time(self) -> None:
        if self.largest_timestamp > self._indexed_timestamp:
            self._time_index += TIME_INDEX_ENTRY.pack(self.largest_timestamp, self._latest_offset - self._base_offset)
            self._indexed_timestamp = self.largest_timestamp

    def _flush(self) -> None:
        if self._pending:
            self._file.write_at([self._pending], self.size_bytes - len(self._pending))
            self._pending = bytearray()
        if self.size_bytes - self._written_back >= WRITE_BACK_BYTES:
            # So that the sync at the end is short: it would hold up the syncs of whoever serves.
            self._file.start_writeback(self._written_back, self.size_bytes - self._written_back)
            self._written_back = self.size_bytes

    def _write(self, suffix: str, data: bytes) -> None:
        file = self._disk.open(self._stem + suffix + CLEANED_SUFFIX, create=True)
        try:
            file.truncate(0)
            if data:
                file.write_at([data], 0)
            file.sync()
        finally:
            file.close()
