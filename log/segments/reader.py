"""Finding and reading in one segment: by offset, by position, by time.

What this process wrote is trusted; what it found is checked (CRC and offsets) the first time it is read. An index entry is
believed only as far as the batch that it names agrees.
"""

from collections.abc import Iterator
from struct import Struct

from ottla.log.batch import HEADER_BYTES, BatchHeader, CorruptBatchError, read_header
from ottla.log.config import LogConfig
from ottla.log.errors import DamagedLogError
from ottla.log.segments.files import NO_TIMESTAMP, UNKNOWN, SegmentFiles
from ottla.log.segments.index import IndexCorruptError
from ottla.log.segments.open_files import OpenFiles
from ottla.log.segments.soundness import Expectation, sound_prefix, what_is_wrong
from ottla.log.segments.walk import walk
from ottla.runtime.disk import Buffer

_TAIL_BYTES_MAX = 4 << 20  # so much is walked to see that a closed segment's time index is complete
_THIN_INDEX_BATCHES = 256  # a walk of more batches over more intervals than this means that the index lacks entries
_THIN_INDEX_INTERVALS = 64

_OFFSET = Struct(">q")


class SegmentReader(SegmentFiles):
    """A segment as it is read. Every method raises DamagedLogError where the batches are not what was written."""

    __slots__ = ("_checked_end", "_checked_start", "_found_size", "_trusted_from")

    def __init__(self, files: OpenFiles, directory: str, base_offset: int, config: LogConfig, size: int) -> None:
        super().__init__(files, directory, base_offset, config, size)
        self._trusted_from = self._found_size = size
        self._checked_start = self._checked_end = 0

    def find(self, offset: int) -> tuple[int, int]:
        """(position, base offset) of the first batch that ends at ``offset`` or later; (size, -1) when there is none.

        Raises DamagedLogError.
        """
        try:
            return self._find(offset)
        except IndexCorruptError:
            self.rebuild_indexes()
        try:
            return self._find(offset)
        except IndexCorruptError as error:
            raise DamagedLogError(self.path, 0, self.base_offset, str(error)) from error

    def _find(self, offset: int) -> tuple[int, int]:
        if not self.size:
            return 0, -1
        index = self.offset_index()
        number = index.floor(offset - self.base_offset)
        start = index.positions[number] if number >= 0 else 0
        for count, (position, header) in enumerate(self._walk_from_entry(number, start, self.size)):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header.base_offset
            if count > _THIN_INDEX_BATCHES and position - start > _THIN_INDEX_INTERVALS * self._interval:
                raise IndexCorruptError(f"{index.path}: lacks entries behind the one at {start}")
        return self.size, -1

    def boundary(self, start: int, end: int, lowest_offset: int) -> tuple[int, int]:
        """(position, offset after the batches before it) of the last batch boundary in (start, end].

        (start, lowest_offset) when the batch at ``start`` alone passes ``end``. Raises DamagedLogError.
        """
        index = self.offset_index()
        number = index.floor_of_position(end)
        while number >= 0 and index.positions[number] > start:
            try:
                position, following = self._boundary(
                    self._walk_from_entry(number, index.positions[number], self.size), end
                )
            except IndexCorruptError:
                self.rebuild_indexes()
                break
            if following is not None:
                return position, following
            number -= 1  # nothing fits behind this entry: the batch before it tells the offset
        position, following = self._boundary(self._walk(start, self.size, lowest_offset), end)
        return position, lowest_offset if following is None else following

    def _boundary(self, steps: Iterator[tuple[int, BatchHeader]], end: int) -> tuple[int, int | None]:
        following = None
        for position, header in steps:
            if position + header.batch_length + 12 > end:
                return position, following
            following = header.base_offset + header.last_offset_delta + 1
        return self.size, following

    def last_offset_before(self, position: int) -> int:
        """The last offset of the batches before ``position``; base offset - 1 when there are none."""
        try:
            return self._last_offset_before(position)
        except IndexCorruptError:
            self.rebuild_indexes()
        try:
            return self._last_offset_before(position)
        except IndexCorruptError as error:
            raise DamagedLogError(self.path, position, self.base_offset, str(error)) from error

    def _last_offset_before(self, position: int) -> int:
        if not position:
            return self.base_offset - 1
        index = self.offset_index()
        number = index.floor_of_position(position - 1)
        last_offset = self.base_offset - 1
        start = index.positions[number] if number >= 0 else 0
        for _, header in self._walk_from_entry(number, start, position):
            last_offset = header.base_offset + header.last_offset_delta
        return last_offset

    def walk_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Headers from the batch at ``position`` to the end. Raises DamagedLogError."""
        return self._walk(position, self.size, self.base_offset)

    def _walk(self, position: int, end: int, lowest_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        if position >= end:
            return
        try:
            yield from walk(self.handle.open(), position, end, lowest_offset)
        except CorruptBatchError as error:
            raise DamagedLogError(self.path, error.position, lowest_offset, error.message) from error

    def _walk_from_entry(self, number: int, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """A walk that begins at an index entry (-1: at the front). Raises IndexCorruptError when no such batch lies there."""
        if number < 0:
            yield from self._walk(0, end, self.base_offset)
            return
        index = self.offset_index()
        expected = self.base_offset + index.offsets[number]
        steps = walk(self.handle.open(), start, end, self.base_offset)
        try:
            first = next(steps, None)
        except CorruptBatchError as error:
            raise IndexCorruptError(f"{index.path}: entry {number}: {error.message}") from error
        if first is None or first[1].last_offset != expected:
            raise IndexCorruptError(f"{index.path}: entry {number} says {expected} at {start}")
        yield first
        try:
            yield from steps
        except CorruptBatchError as error:
            raise DamagedLogError(self.path, error.position, expected + 1, error.message) from error

    # Times

    def largest_timestamp(self) -> int:
        """The largest timestamp of its batches, -1 for none; found at first use."""
        if self.max_timestamp == UNKNOWN:
            try:
                self._find_max_timestamp()
            except OSError:
                self.max_timestamp = UNKNOWN
                raise
        return self.max_timestamp

    def _find_max_timestamp(self) -> None:
        self._load_max_timestamp()
        if self.max_timestamp < 0 or not self._holds_time(self.max_timestamp_offset, self.max_timestamp):
            self.rebuild_indexes()
        else:
            self.complete_times(self.size, _TAIL_BYTES_MAX)

    def _load_max_timestamp(self) -> None:
        times = self.time_index()
        self.max_timestamp = max(self.max_timestamp, NO_TIMESTAMP)
        if times.timestamps and times.timestamps[-1] > self.max_timestamp:
            self.max_timestamp = times.timestamps[-1]
            self.max_timestamp_offset = self.base_offset + times.offsets[-1]

    def complete_times(self, end: int, bytes_max: int = 1 << 62) -> None:
        """Notes the largest timestamp of the batches before ``end`` behind the last time index entry, should it be incomplete.

        Leaves it where more than ``bytes_max`` would have to be walked. Raises DamagedLogError.
        """
        start = self.find(self.max_timestamp_offset)[0] if self.max_timestamp >= 0 else 0
        if end - start > bytes_max:
            return
        for _, header in self._walk(start, end, self.base_offset):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset

    def offset_before_time(self, timestamp: int) -> int:
        """An offset before which every record is earlier than ``timestamp``."""
        times = self.time_index()
        number = times.floor(timestamp)
        if number >= 0:
            offset = self.base_offset + times.offsets[number]
            if self._holds_time(offset, times.timestamps[number]):
                return offset
            self.rebuild_indexes()
            number = self.time_index().floor(timestamp)
        return self.base_offset + self.time_index().offsets[number] if number >= 0 else self.base_offset

    def _holds_time(self, offset: int, timestamp: int) -> bool:
        """Whether a time index entry says what is in the batch that it names."""
        position, base_offset = self.find(offset)
        return base_offset >= 0 and next(self.walk_from(position))[1].max_timestamp == timestamp

    # Trust

    def trusts(self, start: int, end: int) -> bool:
        """Whether these bytes were written or checked by this process."""
        return start >= self._trusted_from or (start >= self._checked_start and end <= self._checked_end)

    def trust_from(self, position: int) -> None:
        """Everything from ``position`` on was just checked."""
        self._trusted_from = self._found_size = position

    def distrust(self) -> None:
        """What was trusted turned out to be damaged: everything there is now is checked when it is read."""
        self._trusted_from = self.size
        self._checked_start = self._checked_end = 0

    def verify(self, data: Buffer, start: int, offset: int | None, segment_end: int) -> tuple[int, int]:
        """Checks CRCs and offsets of whole batches read at ``start``; returns how many bytes are sound, and the offset after
        them.

        The first must hold ``offset`` and each begin where the one before ended (None: there may be gaps). The base offset
        lies outside the CRC, so the neighbours bear witness to it. Raises DamagedLogError when not even the first is sound.
        """
        view = memoryview(data)
        base_offset = _OFFSET.unpack_from(view)[0] if len(view) >= HEADER_BYTES else self.base_offset
        lowest = self.base_offset if offset is None else min(max(base_offset, self.base_offset), offset)
        expected = Expectation(offset is not None, self.offset_limit)
        size, next_offset, _ = sound_prefix(view, lowest, -1, expected)
        if 0 < size < len(view) and _witnessed(view, size, next_offset, dense=offset is not None):
            self._note_checked(start, start + size)
            return size, next_offset
        reason = what_is_wrong(view, size, next_offset) if size < len(view) or not size else None
        if reason is None and next_offset > self._bound(start + size, segment_end):
            reason = "batches overlap"
        if reason is not None:
            # Where two base offsets disagree it may be the first that is wrong: heal from where the read began.
            raise DamagedLogError(self.path, start + size, lowest if offset is None else offset, reason)
        if offset is None or next_offset == segment_end or start + size < self.size:
            self._note_checked(start, start + size)
        return size, next_offset

    def _bound(self, position: int, segment_end: int) -> int:
        """Where the batch at ``position`` says that it begins; behind the last one, the segment's end offset."""
        following = next(self._walk(position, self.size, self.base_offset), None) if position < self.size else None
        return segment_end if following is None else min(following[1].base_offset, segment_end)

    def _note_checked(self, start: int, end: int) -> None:
        if start == self._checked_end:
            self._checked_end = end
        elif end > self._checked_end or end - start >= self._checked_end - self._checked_start:
            self._checked_start, self._checked_end = start, end

    def sound_end(self, offset: int) -> tuple[int, int]:
        """(position, offset) after the last batch below ``offset`` before which every header is sound."""
        position, end = 0, self.base_offset
        try:
            for position, header in self._walk(0, self.size, self.base_offset):
                if header.last_offset >= offset:
                    return position, end
                end = header.next_offset
        except DamagedLogError as error:
            return error.position, end
        return self.size, end


def _witnessed(view: memoryview, size: int, next_offset: int, *, dense: bool) -> bool:
    """Whether the offsets of the sound batches before a damaged one are certain: two neighbours agree, or the damaged one does."""
    if size <= len(view) - HEADER_BYTES and _OFFSET.unpack_from(view, size)[0] == next_offset:
        return True
    return dense and size > read_header(view).size_bytes
