"""Finding records by time: ListOffsets (kraft.md 4.10).

A search is a generator: it runs until it has to look into a batch that may take long, or to wait for the disk, and gives that out.
Whoever runs it answers a `Look` with what came of it, on whatever thread, and a ColdReadError once the bytes are loaded. Meanwhile
the log may change: each step begins anew at an offset.

A batch whose records are not what its header says is its producer's doing as long as its CRC is sound. Nobody can say which of its
records is the first at a time; it is then the batch itself, so that a reader who starts there misses nothing.
"""

from collections.abc import Generator

import msgspec

from ottla.log import reopening
from ottla.log.batch import COMPRESSION_MASK, HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, read_header
from ottla.log.compression import NONE, DecompressionError, inflate
from ottla.log.errors import StorageError
from ottla.log.read import ReadableLog
from ottla.log.record_times import first_at_or_after
from ottla.log.records import DECOMPRESSED_BYTES_MAX
from ottla.log.results import ColdReadError, TimestampAndOffset
from ottla.log.segments.segment import Segment
from ottla.log.validation import COMPRESSED_RECORDS_MAX, LIGHT_BYTES_MAX
from ottla.runtime.errors import KafkaError

_LIGHT_COMPRESSED_BYTES = 16 << 10
_LIGHT_BYTES = 32 << 10
_LIARS_MAX = 100
"""So many batches are looked into whose headers promise a time that none of their records has; the next is believed."""


class Unclear(msgspec.Struct, frozen=True):
    """What a look finds where the records are not what their header says.

    ``is_size``: or where there are too many bytes of them to look at here.
    """

    is_size: bool = False


Found = tuple[int, int]
"""(offset, timestamp) of a record."""


class Look(msgspec.Struct, frozen=True):
    """A batch to look into: call it, on any thread."""

    batch: bytes
    header: BatchHeader
    timestamp: int
    lowest_offset: int

    @property
    def is_light(self) -> bool:
        """Whether it is over in a moment, or gives up."""
        return len(self.batch) <= (
            _LIGHT_COMPRESSED_BYTES if self.header.attributes & COMPRESSION_MASK else _LIGHT_BYTES
        )

    def __call__(self, inflated_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Found | Unclear | None:
        """The batch's first record at or after the time, not below the lowest offset."""
        header = self.header
        codec = header.compression
        if codec != NONE and header.records_count > COMPRESSED_RECORDS_MAX:
            return Unclear()
        pieces = inflate(codec, memoryview(self.batch)[HEADER_BYTES : header.size_bytes], inflated_bytes_max)
        try:
            return first_at_or_after(pieces, header, self.timestamp, self.lowest_offset)
        except DecompressionError as error:
            return Unclear(error.is_size)
        except KafkaError:
            return Unclear()


Search = Generator[Look | ColdReadError, Found | Unclear | None, TimestampAndOffset | None]


class SearchableLog(ReadableLog):
    """A log whose records are found by their time."""

    __slots__ = ()

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record at or after ``timestamp``; None when there is none. Raises DamagedLogError, StorageError."""
        steps = self.search(timestamp)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Look):
                    step = steps.send(step())
                else:
                    _load(self, step)
                    step = next(steps)
        except StopIteration as end:
            result: TimestampAndOffset | None = end.value
            return result

    def search(self, timestamp: int) -> Search:
        """`offset_for_timestamp` for those who must not wait (ListOffsets)."""
        if self.half_done:
            reopening.refuse(self)
        return _search(self, timestamp)

    def largest_timestamp(self) -> int:
        """The largest timestamp that a batch says it has, -1 for a log without times. Raises as `offset_for_timestamp`."""
        if self.half_done:
            reopening.refuse(self)
        segments = self.segments[self.segments.index(self.segment_of(self.log_start_offset)) :]
        try:
            return max(segment.largest_timestamp() for segment in segments)
        except OSError as error:
            raise self.root.failed(error) from error


def _search(log: ReadableLog, timestamp: int) -> Search:
    offset, liars = log.log_start_offset, 0
    while True:
        _require_here(log)
        found = _next_batch(log, timestamp, offset)
        if found is None:
            return None
        header, lowest = found
        believed = TimestampAndOffset(max(header.base_offset, lowest), header.max_timestamp, header.leader_epoch)
        if header.attributes & LOG_APPEND_TIME or liars == _LIARS_MAX:
            return believed
        try:
            batch = log.read(max(header.base_offset, lowest), 1, wait=False).data
        except ColdReadError as cold:
            yield cold
            continue
        offset = max(offset, header.next_offset)
        if len(batch) < header.size_bytes or read_header(batch).base_offset != header.base_offset:
            continue  # it was cut off, or cleaned, this very moment
        look = Look(batch, read_header(batch), timestamp, lowest)
        outcome: Found | Unclear | None = Unclear(is_size=True)
        if look.is_light and not liars:
            outcome = look(LIGHT_BYTES_MAX)
        if outcome == Unclear(is_size=True):
            outcome = yield look
            _require_here(log)
        if isinstance(outcome, Unclear):
            log.recheck(max(header.base_offset, log.log_start_offset), 1)  # or did the disk do it?
            return believed
        if outcome is not None:
            return TimestampAndOffset(*outcome, header.leader_epoch)
        liars += 1


def _require_here(log: ReadableLog) -> None:
    """Raises StorageError for a log that went meanwhile: that its files are not there is nothing of the disk's."""
    if log.abandoned:
        raise StorageError(f"{log.partition} is not here any more")


def _load(log: ReadableLog, cold: ColdReadError) -> None:
    try:
        cold.file.open().load(cold.position, cold.length)
    except OSError as error:
        raise log.root.failed(error) from error


def _next_batch(log: ReadableLog, timestamp: int, offset: int) -> tuple[BatchHeader, int] | None:
    """(header, lowest offset that counts) of the first batch that has records, reaches ``offset`` and says it reaches the time."""
    lowest = max(offset, log.log_start_offset)
    if lowest >= log.log_end_offset:
        return None
    try:
        for segment in log.segments[log.segments.index(log.segment_of(lowest)) :]:
            if segment.largest_timestamp() >= timestamp:
                header = _in_segment(segment, timestamp, lowest)
                if header is not None:
                    return header, lowest
    except OSError as error:
        raise log.root.failed(error) from error
    return None


def _in_segment(segment: Segment, timestamp: int, lowest: int) -> BatchHeader | None:
    position = segment.find(max(segment.offset_before_time(timestamp), lowest))[0]
    for _, header in segment.walk_from(position):
        if header.max_timestamp >= timestamp and header.records_count and header.last_offset >= lowest:
            return header
    return None
