"""Reading a segment from front to back, for the sake of it: damage that nobody has met yet, in batches and in indexes.

It looks at a segment as it was when it began, through a file of its own, and may run on a thread: meanwhile the log goes on, and
may have cut, cleaned or dropped what is being read. So a finding is a suspicion; `Log.recheck` tells.
"""

from array import array

from ottla.log.batch import CorruptBatchError, read_header
from ottla.log.segments.segment import Segment
from ottla.log.segments.soundness import Expectation, sound_prefix
from ottla.runtime.disk import Disk, File

NOTHING = -1


class SegmentScrub:
    """One reading of a segment. Call `step` until it says that it is over; then ``suspect`` and ``index_is_wrong`` are the result.

    ``suspect`` is the offset where something seems to be damaged, `NOTHING` if all is well; ``following`` the offset after the
    segment; ``bytes_read`` is what the last step read. In a ``dense`` log no offset may be missing.
    """

    def __init__(
        self, disk: Disk, segment: Segment, position: int, offset: int, following: int, *, dense: bool
    ) -> None:
        self.path = segment.path
        self.base_offset = segment.base_offset
        self.following = following
        self.suspect = NOTHING
        self.index_is_wrong = False
        self.bytes_read = 0
        self._disk = disk
        self._file: File | None = None
        self._position = position
        self._end = segment.size
        self._next_offset = offset
        self._expected = Expectation(dense, min(segment.offset_limit, following - 1))
        index, times = segment.offset_index(), segment.time_index()
        self._index = _Entries(index.positions, index.offsets, position)
        self._times = _Entries(times.offsets, times.timestamps, offset - segment.base_offset)
        self._large = 0

    def step(self, bytes_max: int) -> bool:
        """Reads on, about so many bytes; True when it is over. OSError passes through."""
        if self._file is None:
            self._file = self._disk.open(self.path, writable=False)
        want = min(max(bytes_max, self._large), self._end - self._position)
        piece = memoryview(self._file.read_at(want, self._position))
        self.bytes_read = len(piece)
        size, self._next_offset, _ = sound_prefix(piece, self._next_offset, -1, self._expected, self._note)
        self._position += size
        self._large = 0 if size else self._size_of_first(piece, want)
        if not size and not self._large:
            self.suspect = self._next_offset
        elif self._position < self._end:
            return False
        else:
            self._finish()
        self.close()
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _note(self, at: int, size: int, last_offset: int, max_timestamp: int) -> None:
        relative = last_offset - self.base_offset
        self._index.meet(self._position + at, relative)
        self._times.meet(relative, max_timestamp)

    def _size_of_first(self, piece: memoryview, asked: int) -> int:
        """The length of a batch of which more was not ``asked`` for, 0 if it is not that: the file may have been cut within it since."""
        try:
            size = read_header(piece).size_bytes
        except CorruptBatchError:
            return 0
        return size if asked < size <= self._end - self._position else 0

    def _finish(self) -> None:
        if self._expected.dense and self._next_offset != self.following:
            self.suspect = self._next_offset
        self.index_is_wrong = self._index.wrong or self._times.wrong or not (self._index.done and self._times.done)


class _Entries:
    """An index as it should be met again: each key once, with its value, in order."""

    def __init__(self, keys: "array[int]", values: "array[int]", lowest: int) -> None:
        self._keys = keys[:]
        self._values = values[:]
        self._at = 0
        self.wrong = False
        while self._at < len(self._keys) and self._keys[self._at] < lowest:
            self._at += 1

    @property
    def done(self) -> bool:
        return self._at == len(self._keys)

    def meet(self, key: int, value: int) -> None:
        if self._at < len(self._keys) and self._keys[self._at] <= key:
            self.wrong = self.wrong or self._keys[self._at] != key or self._values[self._at] != value
            self._at += 1
