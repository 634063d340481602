"""The two sparse indexes of a segment, byte for byte Kafka's: by offset and by time.

An entry is added for about every ``index.interval.bytes`` of data (`ottla.log.segments.layout` has what one holds). Both only
rise.

Entries live in flat arrays while their segment is in use, and are written in small chunks. An index is checked when it is loaded
and each entry again when it is used; what is wrong is rebuilt from the segment.
"""

from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import lt

from ottla.log.segments.layout import INDEX_ENTRY, RELATIVE_OFFSET_MAX, TIME_INDEX_ENTRY
from ottla.runtime.disk import Disk

OFFSET_ENTRY_BYTES = INDEX_ENTRY.size
TIME_ENTRY_BYTES = TIME_INDEX_ENTRY.size
ENTRIES_PER_WRITE = 64


class IndexCorruptError(Exception):
    """An index that cannot be right. Not an error of the log: its owner rebuilds the index."""


class OffsetIndex:
    """Relative last offset -> position of the batch."""

    __slots__ = ("_written", "is_new", "offsets", "path", "positions")

    def __init__(self, path: str, *, is_new: bool = False) -> None:
        """``is_new``: made from the batches; what the file has, if there is one, counts for nothing and is replaced as a whole."""
        self.path = path
        self.is_new = is_new
        self.offsets = array("I")
        self.positions = array("I")
        self._written = 0  # entries that the file has

    def load(self, disk: Disk, size: int) -> None:
        """Reads the file of a segment of ``size`` bytes. Raises IndexCorruptError; FileNotFoundError when there is none."""
        data = disk.read_bytes(self.path)
        if len(data) % OFFSET_ENTRY_BYTES:
            raise IndexCorruptError(f"{self.path}: {len(data)} bytes are no whole entries")
        both = array("I", data)
        both.byteswap()
        offsets, positions = both[0::2], both[1::2]
        zeros = len(positions) > 0 and positions[0] == 0  # no entry is for the first batch
        if zeros or not _rising(offsets) or not _rising(positions) or (positions and positions[-1] >= size):
            raise IndexCorruptError(f"{self.path}: entries do not rise, or lie behind the segment's {size} bytes")
        if offsets and offsets[-1] > RELATIVE_OFFSET_MAX:
            raise IndexCorruptError(f"{self.path}: negative offset")
        self.offsets, self.positions, self._written = offsets, positions, len(offsets)

    def add(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def floor(self, relative_offset: int) -> int:
        """The number of the last entry at or below the offset; -1 when there is none."""
        return bisect_right(self.offsets, relative_offset) - 1

    def floor_of_position(self, position: int) -> int:
        """The number of the last entry whose batch begins at or before ``position``; -1 when there is none."""
        return bisect_right(self.positions, position) - 1

    def cut(self, disk: Disk, position: int) -> bool:
        """Drops the entries of batches that begin at or behind ``position``; whether the file had any of them."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:], self.positions[keep:]
        if self._written <= keep:
            return False
        self._written = keep
        return _cut_file(disk, self.path, keep * OFFSET_ENTRY_BYTES)

    def clear(self, disk: Disk) -> bool:
        """Empties it, memory and file (created if need be): it is about to be built anew. Whether the file had anything."""
        self.offsets, self.positions, self._written = array("I"), array("I"), 0
        return _cut_file(disk, self.path, 0)

    @property
    def unwritten(self) -> int:
        return len(self.offsets) - self._written

    def write(self, disk: Disk) -> None:
        """Appends to the file the entries that it lacks."""
        count = len(self.offsets) - self._written
        if not count and not self.is_new:
            return
        both = array("I", bytes(count * OFFSET_ENTRY_BYTES))
        both[0::2] = self.offsets[self._written :]
        both[1::2] = self.positions[self._written :]
        both.byteswap()
        _write(disk, self.path, both.tobytes(), self._written * OFFSET_ENTRY_BYTES, whole=self.is_new)
        self._written, self.is_new = len(self.offsets), False


class TimeIndex:
    """Largest timestamp so far -> relative last offset of the batch that has it."""

    __slots__ = ("_written", "is_new", "offsets", "path", "timestamps")

    def __init__(self, path: str, *, is_new: bool = False) -> None:
        self.path = path
        self.is_new = is_new
        self.timestamps = array("q")
        self.offsets = array("I")
        self._written = 0

    def load(self, disk: Disk, relative_end: int) -> None:
        """Reads the file of a segment that ends before ``relative_end``. Raises as `OffsetIndex.load`."""
        data = disk.read_bytes(self.path)
        if len(data) % TIME_ENTRY_BYTES:
            raise IndexCorruptError(f"{self.path}: {len(data)} bytes are no whole entries")
        timestamps, offsets = array("q"), array("I")
        for timestamp, offset in TIME_INDEX_ENTRY.iter_unpack(data):
            if offset < 0:
                raise IndexCorruptError(f"{self.path}: negative offset")
            timestamps.append(timestamp)
            offsets.append(offset)
        if not _rising(timestamps) or not _rising(offsets) or (offsets and offsets[-1] >= relative_end):
            raise IndexCorruptError(f"{self.path}: entries do not rise, or lie behind the segment's end")
        self.timestamps, self.offsets, self._written = timestamps, offsets, len(offsets)

    @property
    def begins_with_zeros(self) -> bool:
        """An entry of a batch of time 0, or what a crash leaves of a page it did not write: only the batch tells."""
        return len(self.offsets) > 0 and self.timestamps[0] == self.offsets[0] == 0

    def add(self, timestamp: int, relative_offset: int) -> None:
        """Adds an entry, unless its time is not later than the last one's, or is none."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def floor(self, timestamp: int) -> int:
        """The number of the last entry whose time is before ``timestamp``; -1 when there is none."""
        return bisect_left(self.timestamps, timestamp) - 1

    def cut(self, disk: Disk, relative_offset: int) -> bool:
        """Drops the entries at or behind the offset; whether the file had any of them."""
        keep = bisect_left(self.offsets, relative_offset)
        del self.timestamps[keep:], self.offsets[keep:]
        if self._written <= keep:
            return False
        self._written = keep
        return _cut_file(disk, self.path, keep * TIME_ENTRY_BYTES)

    def clear(self, disk: Disk) -> bool:
        self.timestamps, self.offsets, self._written = array("q"), array("I"), 0
        return _cut_file(disk, self.path, 0)

    def write(self, disk: Disk) -> None:
        if len(self.offsets) == self._written and not self.is_new:
            return
        entries = zip(
            islice(self.timestamps, self._written, None), islice(self.offsets, self._written, None), strict=True
        )
        data = b"".join(TIME_INDEX_ENTRY.pack(*entry) for entry in entries)
        _write(disk, self.path, data, self._written * TIME_ENTRY_BYTES, whole=self.is_new)
        self._written, self.is_new = len(self.offsets), False


def _rising(numbers: "array[int]") -> bool:
    return all(map(lt, numbers, islice(numbers, 1, None)))


def _write(disk: Disk, path: str, data: bytes, at: int, *, whole: bool) -> None:
    if whole:
        disk.write_atomically(path, data)
        return
    # Opened each time: it is once in 64 entries, and a descriptor for each index would be two more for each partition.
    file = disk.open(path, create=True)
    try:
        file.write_at([data], at)
    finally:
        file.close()


def _cut_file(disk: Disk, path: str, size: int) -> bool:
    file = disk.open(path, create=True)
    try:
        shorter = file.size() > size
        if shorter:
            file.truncate(size)
        return shorter
    finally:
        file.close()
