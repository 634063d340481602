"""One segment: a file of batches, its two indexes, its transaction index.

Offsets are absolute outside, relative to the base offset in the indexes. What this process wrote is trusted; what it found is
checked (CRC and offsets) the first time it is read. A damaged index is rebuilt in place.
"""

from collections.abc import Iterator
from struct import Struct

from ottla.log.batch import HEADER_BYTES, BatchHeader, CorruptBatchError
from ottla.log.config import FOREVER, LogConfig
from ottla.log.errors import NO_ROOM, DamagedLogError
from ottla.log.files import CachedFile, OpenFiles
from ottla.log.index import (
    ENTRIES_PER_WRITE,
    OFFSET_ENTRY_BYTES,
    OFFSET_SUFFIX,
    TIME_ENTRY_BYTES,
    TIME_SUFFIX,
    IndexCorruptError,
    OffsetIndex,
    TimeIndex,
)
from ottla.log.scan import scan_batches
from ottla.log.soundness import Expectation, sound_prefix, what_is_wrong
from ottla.log.transactions import SUFFIX as TRANSACTIONS_SUFFIX
from ottla.log.transactions import TransactionIndex
from ottla.log.walk import walk
from ottla.runtime.disk import Buffer, Disk, File

LOG_SUFFIX = ".log"
SUFFIXES = (LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX, TRANSACTIONS_SUFFIX)
DELETED = ".deleted"
RELATIVE_OFFSET_MAX = 2**31 - 1
NO_TIMESTAMP = -1
_UNKNOWN = -2  # a segment found on disk: its time index was not read yet

_SMALL_BYTES = 1 << 20  # below this nothing is preallocated: idle logs take no disk
_TAIL_BYTES_MAX = 4 << 20  # so much is walked to see that a closed segment's time index is complete
_STEP_BYTES = 8 << 20  # write-back is asked for, and space reserved, once for so much data
_ALLOCATION_BYTES_MAX = 64 << 20
_THIN_INDEX_BATCHES = 256  # a walk of more batches over more intervals than this means that the index lacks entries
_THIN_INDEX_INTERVALS = 64

_OFFSET = Struct(">q")


class Segment:
    """A segment. ``size`` is its length in bytes as far as it is valid; ``max_timestamp`` the largest in it, -1 for none."""

    __slots__ = (
        "_allocated",
        "_checked_end",
        "_checked_start",
        "_entries_max",
        "_files",
        "_interval",
        "_offset_index",
        "_pace_at",
        "_stem",
        "_time_index",
        "_transactions",
        "_trusted_from",
        "_unindexed",
        "_written_back",
        "base_offset",
        "disk",
        "handle",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_limit",
        "roll_after_ms",
        "size",
        "size_limit",
    )

    def __init__(self, files: OpenFiles, directory: str, base_offset: int, config: LogConfig, size: int = 0) -> None:
        self.disk = files.disk
        self._files = files
        self.base_offset = base_offset
        self._stem = f"{directory}/{base_offset:020d}"
        self.handle = CachedFile(files, self._stem + LOG_SUFFIX)
        self.size = size
        self.max_timestamp = _UNKNOWN if size else NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.offset_limit = base_offset + RELATIVE_OFFSET_MAX
        self.roll_after_ms = FOREVER
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transactions: TransactionIndex | None = None
        self._unindexed = 0
        self._trusted_from = size
        self._checked_start = self._checked_end = 0
        self._pace_at = self._written_back = size
        self._allocated = 0
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        self.size_limit = config.segment_bytes
        self._interval = config.index_interval_bytes
        self._entries_max = min(
            config.segment_index_bytes // OFFSET_ENTRY_BYTES, config.segment_index_bytes // TIME_ENTRY_BYTES
        )

    @property
    def path(self) -> str:
        return self.handle.path

    # Writing

    def create_files(self) -> None:
        """Creates the empty segment on disk. Names are durable after a sync of the directory."""
        self.handle.create().truncate(0)
        self._offset_index = OffsetIndex(self._stem + OFFSET_SUFFIX)
        self._time_index = TimeIndex(self._stem + TIME_SUFFIX)
        self._offset_index.clear(self.disk)
        self._time_index.clear(self.disk)
        if self.disk.exists(self._stem + TRANSACTIONS_SUFFIX):
            self.disk.unlink(self._stem + TRANSACTIONS_SUFFIX)

    def append(self, view: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Writes one or more whole batches at the end. OSError leaves the segment as it was."""
        handle = self.handle
        file = handle.file
        if file is None:
            file = handle.open()
        handle.used = True
        position = self.size
        size = len(view)
        if position + size > self._pace_at:
            self._pace(file, position + size)
        file.write_at((view,), position)
        self.size = position + size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._unindexed > self._interval:
            self._add_entries(last_offset, position)
            self._unindexed = size
        else:
            self._unindexed += size

    def append_run(self, view: memoryview, batches: list[tuple[int, BatchHeader]]) -> None:
        """Writes batches, given with their positions in ``view``, in one go, and indexes each."""
        file = self.handle.open()
        start = self.size
        end = start + len(view)
        if end > self._pace_at:
            self._pace(file, end)
        file.write_at((view,), start)
        first = batches[0][0]
        for position, header in batches:
            self.note(start + position - first, header)
        self.size = end

    def note(self, position: int, header: BatchHeader) -> None:
        """Takes the batch at ``position`` into the indexes and the times."""
        last_offset = header.base_offset + header.last_offset_delta
        self.note_batch(position, header.batch_length + 12, last_offset, header.max_timestamp)

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """`note` of the fields that it needs."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._unindexed > self._interval:
            self._add_entries(last_offset, position)
            self._unindexed = 0
        self._unindexed += size

    def _add_entries(self, last_offset: int, position: int) -> None:
        index, times = self.offset_index(), self.time_index()
        if index.positions and index.positions[-1] >= position:
            return  # the index was rebuilt just now, this batch included
        index.add(last_offset - self.base_offset, position)
        times.add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        if len(index.offsets) >= self._entries_max:
            self.size_limit = 0  # full: the next append rolls
        if index.unwritten >= ENTRIES_PER_WRITE:
            self.write_indexes()

    def write_indexes(self) -> None:
        """Brings the index files up to the entries in memory. For want of room it waits: they can be rebuilt."""
        try:
            if self._offset_index is not None:
                self._offset_index.write(self.disk)
            if self._time_index is not None:
                self._time_index.write(self.disk)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

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
        return self.size > self._trusted_from or self._allocated > 0

    def finish(self) -> None:
        """No more appends: the last time index entry, indexes written, the preallocated rest given back."""
        self.end_times()
        self.write_indexes()
        file = self.handle.open()
        if self._allocated > self.size or file.size() != self.size:
            file.truncate(self.size)
        self._allocated = 0

    def end_times(self) -> None:
        """The last entry of the time index, by which the largest timestamp of a closed segment is known."""
        if self.max_timestamp >= 0:
            self.time_index().add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def sync(self) -> None:
        """Makes the batches durable."""
        self.handle.open().sync()

    def sync_indexes(self) -> None:
        """Makes the index files durable: one that lost its end in a crash could not be told from a whole one."""
        self.write_indexes()
        for suffix in (OFFSET_SUFFIX, TIME_SUFFIX):
            file = self.disk.open(self._stem + suffix, create=True)
            try:
                file.sync()
            finally:
                file.close()

    def close(self) -> None:
        self.handle.close()

    # Indexes

    def offset_index(self) -> OffsetIndex:
        """Loaded at first use; rebuilt when it is missing or cannot be right."""
        if self._offset_index is None:
            self._load_indexes()
            assert self._offset_index is not None
        return self._offset_index

    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._load_indexes()
            assert self._time_index is not None
        return self._time_index

    def transactions(self) -> TransactionIndex:
        if self._transactions is None:
            self._transactions = TransactionIndex(self.disk, self._stem + TRANSACTIONS_SUFFIX)
        return self._transactions

    def index_bytes(self) -> tuple[int, int]:
        """The sizes of the offset index and the time index."""
        return OFFSET_ENTRY_BYTES * len(self.offset_index().offsets), TIME_ENTRY_BYTES * len(self.time_index().offsets)

    def _load_indexes(self) -> None:
        index, times = OffsetIndex(self._stem + OFFSET_SUFFIX), TimeIndex(self._stem + TIME_SUFFIX)
        try:
            index.load(self.disk, self.size)
            times.load(self.disk, RELATIVE_OFFSET_MAX + 1)
        except (IndexCorruptError, FileNotFoundError):
            self.rebuild_indexes()
        else:
            self._offset_index, self._time_index = index, times
            self._files.indexes_loaded(
                self, OFFSET_ENTRY_BYTES * len(index.offsets) + TIME_ENTRY_BYTES * len(times.offsets)
            )

    def forget_indexes(self) -> None:
        """Lets go of what can be read again (a segment that no one reads)."""
        self.write_indexes()
        self._offset_index = self._time_index = None

    def rebuild_indexes(self) -> None:
        """From the batches themselves; up to the first damaged header, where there is one."""
        self.clear_indexes()
        try:
            lowest = self.base_offset
            for position, header, _ in scan_batches(self.handle.open(), 0, self.size):
                if not lowest <= header.base_offset <= header.last_offset <= self.offset_limit:
                    break
                self.note(position, header)
                lowest = header.next_offset
        except CorruptBatchError:
            pass  # whoever reads there is told
        self.end_times()
        self.sync_indexes()

    def clear_indexes(self) -> None:
        index, times = OffsetIndex(self._stem + OFFSET_SUFFIX), TimeIndex(self._stem + TIME_SUFFIX)
        index.clear(self.disk)
        times.clear(self.disk)
        self._offset_index, self._time_index = index, times
        self.max_timestamp, self.max_timestamp_offset, self._unindexed = NO_TIMESTAMP, -1, 0

    # Finding

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

    def batch_size(self, position: int) -> int:
        """The length of the batch at ``position``. Raises DamagedLogError."""
        for _, header in self._walk(position, self.size, self.base_offset):
            return header.batch_length + 12
        raise DamagedLogError(self.path, position, self.base_offset, "no batch")

    def last_offset_before(self, position: int) -> int:
        """The last offset of the batches before ``position``; base offset - 1 when there are none."""
        index = self.offset_index()
        number = index.floor_of_position(position - 1) if position else -1
        last_offset = self.base_offset - 1
        start = index.positions[number] if number >= 0 else 0
        for _, header in self._walk_from_entry(number, start, position):
            last_offset = header.base_offset + header.last_offset_delta
        return last_offset

    def walk_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Headers from the batch at ``position`` to the end. Raises DamagedLogError."""
        return self._walk(position, self.size, self.base_offset)

    def _walk(self, position: int, end: int, lowest_offset: int) -> Iterator[tuple[int, BatchHeader]]:
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

    def largest_timestamp(self) -> int:
        """The largest timestamp of its batches, -1 for none; found at first use."""
        if self.max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
            if self.max_timestamp < 0 or not self._holds_time(self.max_timestamp_offset, self.max_timestamp):
                self.rebuild_indexes()
            else:
                self.complete_times(self.size, _TAIL_BYTES_MAX)
        return self.max_timestamp

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
        self._trusted_from = position

    def verify(self, data: Buffer, start: int, offset: int | None, segment_end: int) -> int:
        """Checks CRCs and offsets of whole batches read at ``start``; returns the offset after the last one.

        The first must hold ``offset`` and each begin where the one before ended (None: there may be gaps). The base offset
        lies outside the CRC, so the neighbours bear witness to it. Raises DamagedLogError.
        """
        view = memoryview(data)
        base_offset = _OFFSET.unpack_from(view)[0] if len(view) >= HEADER_BYTES else self.base_offset
        lowest = self.base_offset if offset is None else min(max(base_offset, self.base_offset), offset)
        expected = Expectation(offset is not None, self.offset_limit)
        size, next_offset, _ = sound_prefix(view, lowest, -1, expected)
        reason = what_is_wrong(view, size, next_offset) if size < len(view) or not size else None
        if reason is None and next_offset > self._bound(start + size, segment_end):
            reason = "batches overlap"
        if reason is not None:
            # Where two base offsets disagree it may be the first that is wrong: heal from where the read began.
            raise DamagedLogError(self.path, start + size, lowest if offset is None else offset, reason)
        if offset is None or next_offset == segment_end or start + size < self.size:
            self._note_checked(start, start + size)
        return next_offset

    def _bound(self, position: int, segment_end: int) -> int:
        """Where the batch at ``position`` says that it begins; behind the last one, the segment's end offset."""
        following = next(self._walk(position, self.size, self.base_offset), None) if position < self.size else None
        return segment_end if following is None else min(following[1].base_offset, segment_end)

    def _note_checked(self, start: int, end: int) -> None:
        if start == self._checked_end:
            self._checked_end = end
        elif end > self._checked_end or end - start >= self._checked_end - self._checked_start:
            self._checked_start, self._checked_end = start, end

    # Ends

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

    def _load_max_timestamp(self) -> None:
        times = self.time_index()
        self.max_timestamp = max(self.max_timestamp, NO_TIMESTAMP)
        if times.timestamps and times.timestamps[-1] > self.max_timestamp:
            self.max_timestamp = times.timestamps[-1]
            self.max_timestamp_offset = self.base_offset + times.offsets[-1]

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

    def truncate(self, position: int, *, damaged: bool = False) -> None:
        """Cuts the file and the indexes off at ``position``, a batch boundary, and syncs the file."""
        file = self.handle.open()
        file.truncate(position)
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

    def cut_indexes(self, position: int) -> None:
        """Drops the entries of batches at or behind ``position`` and takes the times anew from what remains."""
        index, times = self.offset_index(), self.time_index()
        index.cut(self.disk, position)
        end = self.last_offset_before(position) + 1
        times.cut(self.disk, end - self.base_offset)
        self.transactions().truncate_to(end)
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, -1
        self._load_max_timestamp()
        self._unindexed = position - (index.positions[-1] if index.positions else 0)

    def rename_deleted(self) -> list[str]:
        """Condemns the files: they get another name and are closed; returns what is to be unlinked later."""
        self.handle.close()
        condemned = []
        for suffix in SUFFIXES:
            if self.disk.exists(self._stem + suffix):
                self.disk.rename(self._stem + suffix, self._stem + suffix + DELETED)
                condemned.append(self._stem + suffix + DELETED)
        return condemned

    def unlink(self) -> None:
        """Removes the files at once, the batches first: indexes without batches are swept up at the next start."""
        self.handle.close()
        for suffix in SUFFIXES:
            if self.disk.exists(self._stem + suffix):
                self.disk.unlink(self._stem + suffix)


def base_offset_of(name: str) -> int | None:
    """The base offset in the name of a ``.log`` file; None for another name."""
    stem = name.removesuffix(LOG_SUFFIX)
    return int(stem) if stem != name and len(stem) == 20 and stem.isdecimal() else None


def segment_size(disk: Disk, path: str) -> int:
    file = disk.open(path, writable=False)
    try:
        return file.size()
    finally:
        file.close()
