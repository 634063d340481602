"""Records as a coordinator knows them, a key and a value and nothing else: thousands a second are written, and read again when another
takes over.

`ottla.log.records` is the reference, at more than twice the cost: tests hold both to the same bytes, and to the same records.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.log.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD, MAGIC, BatchHeader
from ottla.log.compression import NONE, compress
from ottla.log.records import RECORD_BYTES_MIN, RecordError, append_varint, read_varint, records_block, reseal
from ottla.runtime.disk import Buffer

KeyValue = tuple[bytes | None, bytes | None, *tuple[Any, ...]]
"""What stands behind the two is not written."""


def _zigzag(number: int) -> bytes:
    out = bytearray()
    append_varint(out, number)
    return bytes(out)


_VARINTS = tuple(map(_zigzag, range(2048)))
_NULL = _zigzag(-1)


COMPRESSED_BYTES_MAX = 256 << 10
"""Records of more bytes are not compressed: that would take milliseconds, in which nobody else is served."""


def encode_pairs(pairs: Iterable[KeyValue], timestamp: int, codec: int = NONE) -> bytearray:
    """One whole batch of at least one record, its offsets from 0 on, CRC included. It is compressed where that makes it smaller."""
    batch = bytearray(HEADER_BYTES)
    count = 0
    for pair in pairs:
        batch += _record(count, pair[0], pair[1])
        count += 1
    attributes = NONE
    if codec != NONE and len(batch) - HEADER_BYTES <= COMPRESSED_BYTES_MAX:
        block = compress(codec, memoryview(batch)[HEADER_BYTES:])
        if HEADER_BYTES + len(block) < len(batch):
            batch, attributes = bytearray(HEADER_BYTES) + block, codec
    # base offset, length, leader epoch, magic, CRC, attributes, last offset delta, times, producer id, epoch, sequence, count
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LOG_OVERHEAD,
        -1,
        MAGIC,
        0,
        attributes,
        count - 1,
        timestamp,
        timestamp,
        -1,
        -1,
        -1,
        count,
    )
    reseal(batch)
    return batch


def _record(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """Behind its length: attributes, timestamp delta, offset delta, key, value, no headers."""
    body = b"".join((b"\0\0", _varint(offset_delta), *_field(key), *_field(value), b"\0"))
    return _varint(len(body)) + body


def _field(data: bytes | None) -> tuple[bytes, bytes]:
    return (_NULL, b"") if data is None else (_varint(len(data)), data)


def _varint(number: int) -> bytes:
    return _VARINTS[number] if number < len(_VARINTS) else _zigzag(number)


def read_pairs(
    batch: Buffer, header: BatchHeader, position: int = 0
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of each record of the batch at ``position``, whatever else it has; one by one, for a batch may be large.

    Raises KafkaError as `decode_records`, perhaps after some.
    """
    block = bytes(records_block(batch, header, position=position))
    base_offset, at, limit = header.base_offset, 0, len(block)
    try:
        for index in range(header.records_count):
            size, at = _number(block, at)
            end = at + size
            if size < RECORD_BYTES_MIN - 1 or end > limit:
                raise RecordError(f"record of {size} bytes, {limit - at} remain", index)
            at += 2  # attributes, and of the timestamp at least a byte
            if block[at - 1] > 127:
                _, at = read_varint(block, at - 1)
            delta, at = _number(block, at)
            # Inlined: a call for each number would take as long as all the rest.
            byte = block[at]
            length, at = ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 128 else read_varint(block, at)
            key = block[at : (at := at + length)] if length >= 0 else None
            shortest = length
            byte = block[at]
            length, at = ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 128 else read_varint(block, at)
            value = block[at : (at := at + length)] if length >= 0 else None
            if at >= end or min(length, shortest) < -1:  # there is the count of headers still
                raise RecordError(f"record's fields end at {at}, its length says {end}", index)
            yield base_offset + delta, key, value
            at = end
    except IndexError:
        raise RecordError("record cut off") from None
    if at != limit:
        raise RecordError(f"{limit - at} bytes after the last record")


def _number(block: bytes, at: int) -> tuple[int, int]:
    byte = block[at]
    return ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 128 else read_varint(block, at)
