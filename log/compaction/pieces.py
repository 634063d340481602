"""A segment's bytes in large pieces, and the fields of a batch that both passes of compaction go by.

Where batches are small the passes are all headers: each goes over the bytes of a piece in one loop of its own, takes these fields
with one call, and makes objects only of the batches that it has to look into.
"""

from collections.abc import Iterator
from struct import Struct

from ottla.log.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    CorruptBatchError,
    read_header,
)
from ottla.log.compaction.job import CleaningJob, Pace
from ottla.log.compaction.plan import SegmentInfo
from ottla.runtime.disk import Disk

PIECE_BYTES = 1 << 20
LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD
UNLIKE = CONTROL | TRANSACTIONAL | DELETE_HORIZON
"""Batches that need more than a look at their fields."""

# Base offset, length, magic, CRC, attributes, last offset delta, largest timestamp, producer id, count.
FIELDS = Struct(">qi4xbIhi8xqq6xi").unpack_from

assert Struct(">qi4xbIhi8xqq6xi").size == HEADER_BYTES
assert MAGIC == 2


class Pieces:
    """A segment's bytes, as both passes go over them.

    ``for piece in pieces``: bytes that begin with a batch. The loop's body tells in ``used`` how many it went over, and in
    ``next_offset`` the offset after them.

    Both passes have to agree about which batches are of the dirty part, and go by offsets that no CRC vouches for, or none that was
    checked yet. So every batch must be in its place: behind the one before, and before ``end_offset``, the next segment's first.
    """

    def __init__(self, disk: Disk, job: CleaningJob, segment: SegmentInfo, pace: Pace) -> None:
        self._file = disk.open(job.path(segment), writable=False)
        self._pace = pace
        self.next_offset = segment.base_offset
        self.end_offset = segment.next_offset
        self.position = 0
        self.size = self._file.size()
        self.used = 0

    def __iter__(self) -> Iterator[bytes]:
        """Raises CorruptBatchError where a length cannot be, or the last batch is cut off."""
        try:
            want = PIECE_BYTES
            while self.position < self.size:
                piece = bytes(self._file.read_at(min(want, self.size - self.position), self.position))
                self.used = 0
                yield piece
                if self.used:
                    self.position += self.used
                    self._pace(self.used)
                    want = PIECE_BYTES
                else:
                    want = self._size_of_first(piece, want)
        finally:
            self._file.close()

    def _size_of_first(self, piece: bytes, asked: int) -> int:
        """The size of the first batch, which is larger than the piece."""
        size = read_header(piece).size_bytes
        if size <= asked or self.position + size > self.size:
            raise CorruptBatchError(
                f"batch at {self.position} cut off: {self.size - self.position} of {size} bytes", self.position
            )
        return size


def out_of_place(base_offset: int, last_offset: int, next_offset: int, end_offset: int, at: int) -> CorruptBatchError:
    """Its offsets are not what was written."""
    return CorruptBatchError(f"batch {base_offset}..{last_offset} where {next_offset}..{end_offset - 1} remain", at)
