"""The records inside a batch: decoding, encoding, and the control records that mark a transaction's end.

Only what must look inside uses this: compacted topics, coordinators, the metadata log, dump, tests. The hot path stays with
`ottla.log.batch`, which reads headers. Record layout (all varints zig-zag): length, attributes int8, timestamp delta,
offset delta, key length (-1 none), key, value length (-1 none), value, header count, headers of key and value likewise.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from ottla.log.batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
)
from ottla.log.compression import NONE, compress, decompress
from ottla.runtime.disk import Buffer
from ottla.runtime.errors import ErrorCode, KafkaError

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""What one batch may inflate to when nobody says otherwise."""

RECORD_BYTES_MIN = 7
"""No record is smaller, whatever it lacks."""

_CRC = Struct(">I")
_CONTROL_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")

_MARKER_RECORD = Struct(">4sBhhBhiB")
"""The record of an end marker: `_MARKER_HEAD`, then its key, the value behind its size, and no headers."""
_MARKER_HEAD = (b"\x20\0\0\0", 8)
"""Its length, attributes and the deltas of time and offset, which are 0; the key's size."""
_MARKER_VALUE_SIZE = 12

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record. ``offset`` is absolute, ``timestamp`` in milliseconds since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlType(IntEnum):
    """What a control record says (kraft.md 1.9)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_ENDS = (ControlType.ABORT, ControlType.COMMIT)


class EndMarker(NamedTuple):
    """The end of a transaction, as its control record says it."""

    committed: bool
    coordinator_epoch: int


class RecordError(KafkaError):
    """Records that are not what their batch says; ``batch_index`` is the record's place in the batch, -1 when it has none."""

    def __init__(self, message: str, batch_index: int = -1, code: ErrorCode = ErrorCode.INVALID_RECORD) -> None:
        super().__init__(code, message)
        self.batch_index = batch_index


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """(value, position after it) of a zig-zag varint of up to 64 bits. Raises RecordError when cut off or too long."""
    value = shift = 0
    try:
        while True:
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position
            shift += 7
            if shift > 63:
                raise RecordError(f"varint longer than 10 bytes at {position}")
    except IndexError:
        raise RecordError("varint cut off") from None


def append_varint(out: bytearray, value: int) -> None:
    """Appends ``value`` (int64) as a zig-zag varint."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def records_block(
    batch: Buffer, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BYTES_MAX, position: int = 0
) -> Buffer:
    """The bytes of the batch's records, decompressed: a view into ``batch`` where they are not compressed.

    Raises KafkaError where they cannot be decompressed or inflate beyond ``limit_bytes``.
    """
    block = memoryview(batch)[position + HEADER_BYTES : position + header.size_bytes]
    return block if header.compression == NONE else decompress(header.compression, block, limit_bytes)


def decode_records(
    batch: Buffer, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BYTES_MAX, position: int = 0
) -> list[Record]:
    """All records of the batch at ``position``. Raises KafkaError (INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE)."""
    block = bytes(records_block(batch, header, limit_bytes, position))
    if header.records_count * 7 > len(block):  # the smallest record has 7 bytes; checked before anything is made
        _bad(f"{header.records_count} records cannot be in {len(block)} bytes")
    records: list[Record] = []
    at = 0
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    for index in range(header.records_count):
        record, at = _decode_record(block, at, header, index)
        records.append(record if append_time is None else record._replace(timestamp=append_time))
    if at != len(block):
        _bad(f"{len(block) - at} bytes after the last record")
    return records


def _decode_record(block: bytes, at: int, header: BatchHeader, index: int) -> tuple[Record, int]:
    length, at = read_varint(block, at)
    end = at + length
    if length < 6 or end > len(block):
        _bad(f"record of {length} bytes, {len(block) - at} remain", index)
    timestamp_delta, at = read_varint(block, at + 1)
    offset_delta, at = read_varint(block, at)
    key, at = _read_bytes(block, at, end, index)
    value, at = _read_bytes(block, at, end, index)
    if at < end and block[at] == 0:
        headers: Headers = ()
        at += 1
    else:
        headers, at = _decode_headers(block, at, end, index)
    if at != end:
        _bad(f"record's fields end at {at}, its length says {end}", index)
    return Record(header.base_offset + offset_delta, header.base_timestamp + timestamp_delta, key, value, headers), at


def _decode_headers(block: bytes, at: int, end: int, index: int) -> tuple[Headers, int]:
    count, at = read_varint(block, at)
    if not 0 <= count <= (end - at) // 2:
        _bad(f"{count} headers cannot be in {end - at} bytes", index)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, at = _read_bytes(block, at, end, index)
        if key is None:
            _bad("header without a key", index)
        value, at = _read_bytes(block, at, end, index)
        try:
            headers.append((key.decode("utf-8"), value))
        except UnicodeDecodeError:
            _bad("header key is not UTF-8", index)
    return tuple(headers), at


def _read_bytes(block: bytes, at: int, end: int, index: int) -> tuple[bytes | None, int]:
    length, at = read_varint(block, at)
    if length == -1:
        return None, at
    if length < 0 or at + length > end:
        _bad(f"field of {length} bytes, {end - at} remain", index)
    return block[at : at + length], at + length


def _bad(message: str, batch_index: int = -1) -> NoReturn:
    raise RecordError(message, batch_index)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: int = NONE,
    log_append_time: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    control: bool = False,
    transactional: bool = False,
) -> bytearray:
    """One whole batch of at least one record, CRC included. Records' offsets are absolute: ``base_offset`` plus their delta."""
    base_timestamp = records[0].timestamp
    block = encode_records(records, base_offset, base_timestamp)
    attributes = compression | LOG_APPEND_TIME * log_append_time | TRANSACTIONAL * transactional | CONTROL * control
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return assemble_batch(header, block if compression == NONE else compress(compression, block))


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytearray:
    """The bytes of a batch's records, as they are before compression."""
    block = bytearray()
    for record in records:
        _append_record(block, record, record.offset - base_offset, record.timestamp - base_timestamp)
    return block


def assemble_batch(header: BatchHeader, block: Buffer) -> bytearray:
    """A batch of ``header`` and the (compressed) bytes of its records; length and CRC are computed."""
    header = header._replace(batch_length=HEADER_BYTES - LOG_OVERHEAD + len(block), crc=0)
    batch = bytearray(HEADER_BYTES + len(block))
    HEADER.pack_into(batch, 0, *header)
    batch[HEADER_BYTES:] = block
    reseal(batch)
    return batch


def reseal(batch: bytearray | memoryview) -> int:
    """Computes the CRC of exactly one batch anew, writes it into its place and returns it."""
    crc = crc32c(memoryview(batch)[CRC_START:])
    _CRC.pack_into(batch, CRC_START - _CRC.size, crc)
    return crc


def _append_record(out: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    body = bytearray(1)  # attributes, always 0
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    append_varint(body, len(record.headers))
    for key, value in record.headers:
        _append_bytes(body, key.encode("utf-8"))
        _append_bytes(body, value)
    append_varint(out, len(body))
    out += body


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # -1
    else:
        append_varint(out, len(data))
        out += data


def value_batch(
    values: Iterable[bytes], *, base_offset: int, leader_epoch: int, timestamp: int, control: bool = False
) -> bytearray:
    """A batch of keyless records at one time: how the metadata log is written."""
    records = [Record(base_offset + delta, timestamp, None, value) for delta, value in enumerate(values)]
    return encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, control=control)


def control_key(control_type: int) -> bytes:
    return _CONTROL_KEY.pack(0, control_type)


def control_type_of(key: bytes | None) -> int:
    """The type in a control record's key; unknown types are for the caller to skip. Raises RecordError for a malformed key."""
    if key is None or len(key) < _CONTROL_KEY.size:
        _bad("control record without a type")
    version, control_type = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        _bad(f"control record of version {version}")
    return int(control_type)


def end_marker_batch(
    marker: EndMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a producer's transaction in a partition. All are alike, and one is written for each partition of each
    transaction: `encode_batch` makes the same bytes (a test), and takes three times as long."""
    batch = bytearray(HEADER_BYTES + _MARKER_RECORD.size)
    control_type = ControlType.COMMIT if marker.committed else ControlType.ABORT
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,  # CRC
        TRANSACTIONAL | CONTROL,
        0,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        -1,
        1,
    )
    _MARKER_RECORD.pack_into(
        batch, HEADER_BYTES, *_MARKER_HEAD, 0, control_type, _MARKER_VALUE_SIZE, 0, marker.coordinator_epoch, 0
    )
    reseal(batch)
    return batch


def read_end_marker(batch: Buffer, header: BatchHeader, position: int = 0) -> EndMarker | None:
    """The marker of a control batch; None for other control records or an emptied batch. Raises RecordError."""
    if header.records_count == 0:
        return None
    if header.size_bytes == HEADER_BYTES + _MARKER_RECORD.size and header.records_count == 1:
        # As `end_marker_batch` makes them, and Kafka: mostly there is nothing to be decoded.
        head, size, version, control_type, value_size, _, epoch, headers = _MARKER_RECORD.unpack_from(
            batch, position + HEADER_BYTES
        )
        if (
            (head, size, value_size, headers) == (*_MARKER_HEAD, _MARKER_VALUE_SIZE, 0)
            and version >= 0
            and control_type in _ENDS
            and header.compression == NONE
        ):
            return EndMarker(control_type == ControlType.COMMIT, epoch)
    record = decode_records(batch, header, position=position)[0]
    control_type = control_type_of(record.key)
    if control_type not in _ENDS:
        return None
    if record.value is None or len(record.value) < _END_MARKER.size:
        _bad("end marker cut off", 0)
    _, coordinator_epoch = _END_MARKER.unpack_from(record.value)
    return EndMarker(control_type == ControlType.COMMIT, coordinator_epoch)
