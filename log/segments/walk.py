"""Stepping from batch header to batch header in a file, reading little besides: how a position is found."""

from collections.abc import Iterator

from ottla.log.batch import HEADER, HEADER_BYTES, MAGIC, BatchHeader, CorruptBatchError, read_header
from ottla.log.segments.soundness import batches_of_producers
from ottla.runtime.disk import File

PIECE_BYTES = 4 << 20
CHUNK_BYTES = 8192  # two index intervals: a walk from an index entry is one read

_UNPACK = HEADER.unpack_from
_MAKE = BatchHeader._make


def pieces(file: File, position: int, end: int) -> Iterator[memoryview]:
    """The bytes from the batch at ``position`` to ``end``, in pieces that begin with a batch and hold whole ones, unchecked.

    Raises CorruptBatchError where a length cannot be, or the last batch is cut off.
    """
    want = PIECE_BYTES
    while position < end:
        asked = min(want, end - position)
        piece = memoryview(file.read_at(asked, position))
        size = batches_of_producers(piece)[1]
        if size:
            yield piece[:size]
            position, want = position + size, PIECE_BYTES
            continue
        want = read_header(piece).size_bytes
        if want <= asked or position + want > end:  # always more than before, though the file itself ends in it
            raise CorruptBatchError(f"batch of {want} bytes, {end - position} remain", position)


def walk(file: File, position: int, end: int, lowest_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch of [position, end). Raises CorruptBatchError where there can be none.

    The first batch must begin at ``lowest_offset`` or later, each next one behind the one before: the base offset lies
    outside the CRC, so its damage shows only here.
    """
    chunk, chunk_at = b"", position
    while position < end:
        at = position - chunk_at
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_at, at = file.read_at(min(CHUNK_BYTES, end - position), position), position, 0
            if len(chunk) < HEADER_BYTES:
                raise CorruptBatchError(f"batch header cut off: {len(chunk)} of {HEADER_BYTES} bytes", position)
        header = _MAKE(_UNPACK(chunk, at))
        following = position + header.batch_length + 12
        if header.magic != MAGIC or header.batch_length < HEADER_BYTES - 12 or following > end:
            raise CorruptBatchError(f"no batch: version {header.magic}, length {header.batch_length}", position)
        if header.base_offset < lowest_offset or header.last_offset_delta < 0:
            message = f"batch {header.base_offset}..{header.last_offset} where {lowest_offset} or more was expected"
            raise CorruptBatchError(message, position)
        yield position, header
        lowest_offset = header.base_offset + header.last_offset_delta + 1
        position = following
