"""Reading a segment file from front to back, batch by batch, in large pieces: recovery, compaction, dump."""

from collections.abc import Iterator

from ottla.log.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD, MAGIC, BatchHeader, CorruptBatchError, read_header
from ottla.runtime.disk import File

CHUNK_BYTES = 4 * 1024 * 1024

# A scan is all headers where batches are small: what `read_header` does, without its calls.
_UNPACK = HEADER.unpack_from
_NEW = tuple.__new__
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD


def scan_batches(
    file: File, start: int = 0, end: int | None = None, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position in the file, header, exactly the batch's bytes) of each batch from ``start`` on; CRCs are not checked.

    Holds one piece of ``chunk_bytes``, or one batch when that is larger; views stay valid as long as they are kept.
    Raises CorruptBatchError, with the position in the file, where a header cannot be or the last batch is cut off.
    """
    end = file.size() if end is None else end
    position = start
    while position < end:
        chunk = memoryview(file.read_at(min(chunk_bytes, end - position), position))
        at = 0
        while len(chunk) - at >= HEADER_BYTES:
            header = _NEW(BatchHeader, _UNPACK(chunk, at))
            length = header.batch_length
            if length < _LENGTH_MIN or header.magic != MAGIC:
                _header_at(chunk, at, position)  # raises, and says why
            following = at + length + LOG_OVERHEAD
            if following > len(chunk):
                break
            yield position + at, header, chunk[at:following]
            at = following
        if at == 0:
            yield from _large_batch(file, chunk, position, end)
            at = read_header(chunk).size_bytes
        position += at


def _large_batch(
    file: File, chunk: memoryview, position: int, end: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """The batch that a whole piece did not hold."""
    size = _header_at(chunk, 0, position).size_bytes
    if position + size > end:
        raise CorruptBatchError(f"batch at {position} cut off: {end - position} of {size} bytes", position)
    batch = memoryview(file.read_at(size, position))
    if len(batch) < size:
        raise CorruptBatchError(f"batch at {position} cut off: {len(batch)} of {size} bytes", position)
    yield position, read_header(batch), batch


def _header_at(chunk: memoryview, at: int, position: int) -> BatchHeader:
    try:
        return read_header(chunk, at)
    except CorruptBatchError as error:
        raise CorruptBatchError(f"at {position + at}: {error.message}", position + at) from None
