"""The record batch, version 2: the unit that is appended, replicated, read and checked.

Layout (big endian; Kafka's DefaultRecordBatch): base offset and leader epoch lie outside the CRC, so a leader stamps them
in the buffer it received, and the same bytes go to disk, to followers and to consumers.

    0 baseOffset int64        17 crc uint32             43 producerId int64
    8 batchLength int32       21 attributes int16       51 producerEpoch int16
   12 leaderEpoch int32       23 lastOffsetDelta int32  53 baseSequence int32
   16 magic int8 = 2          27 baseTimestamp int64    57 recordsCount int32
                              35 maxTimestamp int64     61 records
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ottla.runtime.disk import Buffer
from ottla.runtime.errors import ErrorCode, KafkaError

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
LOG_OVERHEAD = 12  # base offset and length: what precedes the bytes that batchLength counts
CRC_START = 21
MAGIC = 2
MAGIC_AT = 16

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_LENGTH_AND_COUNT = Struct(">8xi45xi").unpack_from

assert HEADER.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """A batch's header, unpacked once. Field order is the wire's."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK


class CorruptBatchError(KafkaError):
    """Bytes that are not a whole, sound batch. ``position`` is where in the buffer or file the batch began."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)
        self.position = position


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Unpacks the header at ``position``. Raises CorruptBatchError when it is cut off or its length cannot be."""
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptBatchError(f"batch header cut off: {len(buffer) - position} of {HEADER_BYTES} bytes", position)
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.batch_length < HEADER_BYTES - LOG_OVERHEAD:
        raise CorruptBatchError(f"impossible batch length {header.batch_length}", position)
    if header.magic != MAGIC:
        raise CorruptBatchError(f"batch version {header.magic} where 2 was expected", position)
    return header


def check_crc(buffer: Buffer, header: BatchHeader, position: int = 0) -> None:
    """Raises CorruptBatchError unless the CRC-32C over attributes..end matches. About 40 us a megabyte."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptBatchError(f"batch cut off: {len(buffer) - position} of {header.size_bytes} bytes", position)
    found = crc32c(memoryview(buffer)[position + CRC_START : end])
    if found != header.crc:
        raise CorruptBatchError(
            f"CRC of batch at offset {header.base_offset} is {found:08x}, header says {header.crc:08x}", position
        )


def headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch in the buffer; a partial batch at the end is passed over in silence.

    Raises CorruptBatchError where a header cannot be.
    """
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        following = position + header.size_bytes
        if following > end:
            return
        yield position, header
        position = following


def holds_records(batches: bytes) -> bool:
    """Whether there is a record in whole batches: compaction leaves some without. True of no batches at all."""
    at, end = 0, len(batches)
    while at < end:
        length, count = _LENGTH_AND_COUNT(batches, at)
        if count:
            return True
        at += LOG_OVERHEAD + length
    return not end
