"""The files of one segment and its indexes: loaded when they are needed, rebuilt when they are missing or wrong.

Offsets are absolute outside, relative to the base offset in the indexes.
"""

from contextlib import suppress

from ottla.log.batch import HEADER_BYTES, BatchHeader, CorruptBatchError, read_header
from ottla.log.config import LogConfig
from ottla.log.errors import NO_ROOM, NOT_THE_DISK
from ottla.log.segments.index import (
    ENTRIES_PER_WRITE,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexCorruptError,
    OffsetIndex,
    TimeIndex,
)
from ottla.log.segments.layout import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    stem,
)
from ottla.log.segments.open_files import CachedFile, OpenFiles
from ottla.log.segments.scan import scan_batches
from ottla.log.segments.transactions import TransactionIndex
from ottla.runtime.disk import Disk

NO_TIMESTAMP = -1
UNKNOWN = -2  # the largest timestamp of a segment found on disk: its time index was not read yet


class SegmentFiles:
    """One segment's files.

    ``size`` is the segment's length in bytes as far as it is valid; ``max_timestamp`` the largest in it, -1 for none.

    ``size_limit`` says how large it may become, 0 once an index is full. ``is_begun``: it has files; without, it is empty.
    """

    __slots__ = (
        "_entries_max",
        "_files",
        "_interval",
        "_offset_index",
        "_time_index",
        "_transactions",
        "_unindexed",
        "base_offset",
        "disk",
        "handle",
        "indexes_cut",
        "is_begun",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_limit",
        "size",
        "size_limit",
    )

    def __init__(self, files: OpenFiles, directory: str, base_offset: int, config: LogConfig, size: int) -> None:
        self.disk = files.disk
        self._files = files
        self.base_offset = base_offset
        self.handle = CachedFile(files, stem(directory, base_offset) + LOG_SUFFIX)
        self.size = size
        self.is_begun = True
        self.max_timestamp = UNKNOWN if size else NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.offset_limit = base_offset + RELATIVE_OFFSET_MAX
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transactions: TransactionIndex | None = None
        self._unindexed = 0  # bytes since the last index entry
        self.indexes_cut = False  # entries went from the files, and a power cut may bring them back
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

    @property
    def _stem(self) -> str:
        return self.handle.path.removesuffix(LOG_SUFFIX)  # not kept: a hundred bytes, for each of many partitions

    def create_files(self) -> None:
        """Creates the empty segment on disk. Names are durable after a sync of the directory."""
        index, times = OffsetIndex(self._stem + INDEX_SUFFIX), TimeIndex(self._stem + TIME_INDEX_SUFFIX)
        index.clear(self.disk)
        times.clear(self.disk)
        if self.disk.exists(self._stem + TRANSACTION_INDEX_SUFFIX):
            self.disk.unlink(self._stem + TRANSACTION_INDEX_SUFFIX)
        self._create_log()
        self._offset_index, self._time_index = index, times
        self.is_begun = True

    def _create_log(self) -> None:
        """Creates the ``.log``: last, for it is what makes a segment: indexes without it are swept up at the next start."""
        file = self.handle.create()
        try:
            if file.size():
                file.truncate(0)
        except OSError:
            self.handle.close()
            with suppress(OSError):
                self.disk.unlink(self.path)
            raise

    def close(self) -> None:
        """Ends its service. What its indexes have in memory goes with it: the files may be another segment's soon."""
        self.handle.close()
        self._offset_index = self._time_index = None

    def rename_deleted(self) -> list[str]:
        """Condemns the files: they get another name and are closed; returns what is to be unlinked later."""
        self.close()
        condemned = []
        for suffix in SUFFIXES:
            if self.disk.exists(self._stem + suffix):
                self.disk.rename(self._stem + suffix, self._stem + suffix + DELETED_SUFFIX)
                condemned.append(self._stem + suffix + DELETED_SUFFIX)
        return condemned

    def unlink(self) -> None:
        """Removes the files at once, the batches first: indexes without batches are swept up at the next start."""
        self.close()
        for suffix in SUFFIXES:
            if self.disk.exists(self._stem + suffix):
                self.disk.unlink(self._stem + suffix)

    # Indexes

    def offset_index(self) -> OffsetIndex:
        """Loaded at first use; rebuilt when it is missing or cannot be right."""
        if self._offset_index is None:
            if not self.is_begun:
                return OffsetIndex(self._stem + INDEX_SUFFIX)
            self._load_indexes()
            assert self._offset_index is not None
        return self._offset_index

    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            if not self.is_begun:
                return TimeIndex(self._stem + TIME_INDEX_SUFFIX)
            self._load_indexes()
            assert self._time_index is not None
        return self._time_index

    def transactions(self) -> TransactionIndex:
        if self._transactions is None:
            self._transactions = TransactionIndex(self.disk, self._stem + TRANSACTION_INDEX_SUFFIX)
        return self._transactions

    def index_bytes(self) -> tuple[int, int]:
        """The sizes of the offset index and the time index."""
        return OFFSET_ENTRY_BYTES * len(self.offset_index().offsets), TIME_ENTRY_BYTES * len(self.time_index().offsets)

    def _load_indexes(self) -> None:
        index, times = OffsetIndex(self._stem + INDEX_SUFFIX), TimeIndex(self._stem + TIME_INDEX_SUFFIX)
        try:
            index.load(self.disk, self.size)
            times.load(self.disk, RELATIVE_OFFSET_MAX + 1)
            if times.begins_with_zeros and not self._begins_at_time_zero():
                raise IndexCorruptError(f"{times.path}: zeros")
        except (IndexCorruptError, FileNotFoundError):
            self.rebuild_indexes()
        else:
            self._offset_index, self._time_index = index, times
            self._files.indexes_loaded(
                self, OFFSET_ENTRY_BYTES * len(index.offsets) + TIME_ENTRY_BYTES * len(times.offsets)
            )

    def _begins_at_time_zero(self) -> bool:
        """Whether the first batch is one record of that time: nothing of it is in an index entry but zeros."""
        try:
            first = read_header(self.handle.open().read_at(HEADER_BYTES, 0))
        except CorruptBatchError:
            return False
        return first.max_timestamp == 0 and first.last_offset == self.base_offset

    def forget_indexes(self) -> None:
        """Lets go of what can be read again (a segment that no one reads), unless the files do not have it and cannot get it."""
        index, times = self._offset_index, self._time_index
        if index is None or times is None:
            return
        with suppress(OSError):
            self._write_indexes()
            self._offset_index = self._time_index = None

    def rebuild_indexes(self) -> None:
        """Makes both anew from the batches themselves, up to the first damaged header, where there is one.

        The files are replaced when all is there, or later for want of room. OSError of a read leaves everything as it was.
        """
        if not self.is_begun:
            return
        before = self._offset_index, self._time_index, self.max_timestamp, self.max_timestamp_offset, self._unindexed
        self._offset_index = OffsetIndex(self._stem + INDEX_SUFFIX, is_new=True)
        self._time_index = TimeIndex(self._stem + TIME_INDEX_SUFFIX, is_new=True)
        self.max_timestamp, self.max_timestamp_offset, self._unindexed = NO_TIMESTAMP, -1, 0
        try:
            self._note_all()
        except OSError:
            self._offset_index, self._time_index, self.max_timestamp, self.max_timestamp_offset, self._unindexed = (
                before
            )
            raise
        self.end_times()
        self.write_indexes()

    def _note_all(self) -> None:
        lowest = self.base_offset
        try:
            for position, header, _ in scan_batches(self.handle.open(), 0, self.size):
                if not lowest <= header.base_offset <= header.last_offset <= self.offset_limit:
                    return
                self.note(position, header)
                lowest = header.next_offset
        except CorruptBatchError:
            return  # whoever reads there is told

    def clear_indexes(self) -> None:
        index, times = OffsetIndex(self._stem + INDEX_SUFFIX), TimeIndex(self._stem + TIME_INDEX_SUFFIX)
        for cut in (index.clear(self.disk), times.clear(self.disk)):
            self.indexes_cut = self.indexes_cut or cut
        self._offset_index, self._time_index = index, times
        self.max_timestamp, self.max_timestamp_offset, self._unindexed = NO_TIMESTAMP, -1, 0

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

    def write_some_entries(self) -> None:
        """Brings the index files up to the entries in memory once these are many."""
        if self.offset_index().unwritten >= ENTRIES_PER_WRITE:
            self.write_indexes()

    def end_times(self) -> None:
        """The last entry of the time index, by which the largest timestamp of a closed segment is known."""
        if self.max_timestamp >= 0:
            self.time_index().add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def write_indexes(self, *, may_wait: bool = True) -> None:
        """Brings the index files up to the entries in memory. For want of room or descriptors that waits, where it may."""
        try:
            self._write_indexes()
        except OSError as error:
            if not may_wait or error.errno not in (*NO_ROOM, *NOT_THE_DISK):
                raise

    def _write_indexes(self) -> None:
        if self._offset_index is not None:
            self._offset_index.write(self.disk)
        if self._time_index is not None:
            self._time_index.write(self.disk)

    def sync_indexes(self) -> None:
        """Makes the index files durable: one that lost its end in a crash could not be told from a whole one."""
        self._write_indexes()
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            file = self.disk.open(self._stem + suffix, create=True)
            try:
                file.sync()
            finally:
                file.close()
        self.indexes_cut = False


def segment_size(disk: Disk, path: str) -> int:
    file = disk.open(path, writable=False)
    try:
        return file.size()
    finally:
        file.close()
