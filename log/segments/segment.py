"""One segment: a file of batches that grows at its end, or was closed."""

from bisect import bisect_right
from operator import attrgetter

from ottla.log.batch import BatchHeader
from ottla.log.config import FOREVER, LogConfig
from ottla.log.errors import DamagedLogError
from ottla.log.segments.files import NO_TIMESTAMP
from ottla.log.segments.index import IndexCorruptError
from ottla.log.segments.open_files import OpenFiles
from ottla.log.segments.reader import SegmentReader
from ottla.runtime.disk import Buffer, File

_SMALL_BYTES = 1 << 20  # below this nothing is preallocated: idle logs take no disk
_STEP_BYTES = 8 << 20  # write-back is asked for, and space reserved, once for so much data
_ALLOCATION_BYTES_MAX = 64 << 20

_base_offset = attrgetter("base_offset")


class Segment(SegmentReader):
    """A segment that can be written. It takes no batch later than ``roll_after_ms`` (as batches tell the time)."""

    __slots__ = ("_allocated", "_pace_at", "_written_back", "roll_after_ms")

    def __init__(self, files: OpenFiles, directory: str, base_offset: int, config: LogConfig, size: int = 0) -> None:
        super().__init__(files, directory, base_offset, config, size)
        self.roll_after_ms = FOREVER
        self._pace_at = self._written_back = size
        self._allocated = 0

    def append(self, view: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Writes one or more whole batches at the end. OSError leaves the segment as it was."""
        handle = self.handle
        file = handle.file
        if file is None:
            file = handle.open()
        handle.used = True
        position = self.size
        size = len(view)
        if self._offset_index is None:
            self._load_indexes()
        if position + size > self._pace_at:
            self._pace(file, position + size)
        file.write_at((view,), position)
        self.size = position + size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._unindexed > self._interval:
            self._add_entries(last_offset, position)
            self.write_some_entries()
            self._unindexed = size
        else:
            self._unindexed += size

    def append_run(self, view: memoryview, batches: list[tuple[int, BatchHeader]]) -> None:
        """Writes batches, given with their positions in ``view``, in one go, and indexes each."""
        file = self.handle.open()
        if self._offset_index is None:
            self._load_indexes()
        start = self.size
        end = start + len(view)
        if end > self._pace_at:
            self._pace(file, end)
        file.write_at((view,), start)
        first = batches[0][0]
        for position, header in batches:
            self.note(start + position - first, header)
        self.write_some_entries()
        self.size = end

    def _pace(self, file: File, end: int) -> None:
        """Asks for write-back of what was written since the last time, so that dirty pages never pile up; reserves space."""
        if self.size - self._written_back >= _STEP_BYTES:
            file.start_writeback(self._written_back, self.size - self._written_back)
            self._written_back = self.size
        if end <= _SMALL_BYTES:
            self._pace_at = _SMALL_BYTES
            return
        if end > self._allocated:
            step = min(max(_STEP_BYTES, self.size), _ALLOCATION_BYTES_MAX)
            self._allocated = max(end, min(end + step, self.size_limit))
            file.allocate(self.size, self._allocated - self.size)
        self._pace_at = min(self.size + _STEP_BYTES, self._allocated)

    @property
    def grew(self) -> bool:
        """Something was appended since it was opened."""
        return self.size > self._found_size or self._allocated > 0

    def finish(self) -> None:
        """No more appends: the last time index entry, indexes written, the preallocated rest given back.

        What a failed append left behind the end goes durably: all before it may count as stable already, and is not synced again.
        """
        if not self.is_begun:
            return
        self.end_times()
        self.write_indexes()
        file = self.handle.open()
        size = file.size()
        if self._allocated > self.size or size != self.size:
            file.truncate(self.size)
        if size > self.size:
            file.sync()
        self._allocated = 0

    def sync(self) -> None:
        """Makes the batches durable."""
        self.handle.open().sync()

    def load_tail(self, *, gaps_allowed: bool = True) -> int:
        """Reads what lies behind the last index entry; returns the offset after the last batch.

        Sets the times and what is not indexed yet. Raises DamagedLogError when the file does not end with a whole batch.
        """
        try:
            return self._load_tail(gaps_allowed)
        except IndexCorruptError:
            self.rebuild_indexes()
            return self._load_tail(gaps_allowed)

    def _load_tail(self, gaps_allowed: bool) -> int:
        index = self.offset_index()
        self._load_max_timestamp()
        number = len(index.offsets) - 1
        start = index.positions[number] if number >= 0 else 0
        next_offset = self.base_offset
        for position, header in self._walk_from_entry(number, start, self.size):
            if header.base_offset != next_offset and position > start and not gaps_allowed:
                raise DamagedLogError(
                    self.path, position, next_offset, f"batch {header.base_offset} leaves offsets out"
                )
            next_offset = header.base_offset + header.last_offset_delta + 1
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, next_offset - 1
        self._unindexed = self.size - start
        return next_offset

    def truncate(self, position: int, *, damaged: bool = False, sync: bool = True) -> None:
        """Cuts the file and the indexes off at ``position``, a batch boundary; ``sync``: durably."""
        file = self.handle.open()
        file.truncate(position)
        if sync:
            file.sync()
        self.size = position
        if damaged:
            self.rebuild_indexes()
        self.cut_indexes(position)
        self.load_tail()
        self._allocated = 0
        self._written_back = min(self._written_back, position)
        self._pace_at = min(self._pace_at, position)
        self._checked_end = min(self._checked_end, position)
        self._trusted_from = min(self._trusted_from, position)
        self._found_size = min(self._found_size, position)

    def cut_indexes(self, position: int) -> None:
        """Drops the entries of batches at or behind ``position`` and takes the times anew from what remains."""
        index, times = self.offset_index(), self.time_index()
        cut = index.cut(self.disk, position)
        end = self.last_offset_before(position) + 1
        self.indexes_cut = times.cut(self.disk, end - self.base_offset) or cut or self.indexes_cut
        self.transactions().truncate_to(end)
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, -1
        self._load_max_timestamp()
        self._unindexed = position - (index.positions[-1] if index.positions else 0)


def number_before(segments: list[Segment], offset: int) -> int:
    """Which of the segments is the last that begins at or before ``offset``; the first one if none does."""
    return max(0, bisect_right(segments, offset, key=_base_offset) - 1)
