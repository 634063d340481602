"""The ``.snapshot`` file: what a log knows of its producers at an offset, as Kafka 4 writes it.

int16 version = 1, uint32 CRC-32C of all that follows, int32 count, then for each producer
producerId int64, epoch int16, lastSequence int32, lastOffset int64, offsetDelta int32, timestamp int64,
coordinatorEpoch int32, currentTransactionFirstOffset int64 (-1: none)
"""

from collections.abc import Container, Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ottla.log.producers.entry import CachedBatch, ProducerEntry, add_to_sequence
from ottla.runtime.disk import Disk
from ottla.runtime.errors import ErrorCode, KafkaError

SUFFIX = ".snapshot"
VERSION = 1

_PREFIX = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


class SnapshotError(KafkaError):
    """A snapshot file that is not whole, or of a version that is not known."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class SnapshotRow(NamedTuple):
    """One producer as the file has it; -1 where there is no last batch or no open transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def path_of(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{SUFFIX}"


def offsets(disk: Disk, directory: str) -> list[int]:
    """The offsets of the directory's snapshots, rising."""
    stems = (name.removesuffix(SUFFIX) for name in disk.list_directory(directory) if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def remove_strays(disk: Disk, directory: str, base_offsets: Container[int]) -> None:
    """Removes snapshots where no segment begins, but for the latest: nobody begins with them any more. OSError passes through."""
    for offset in offsets(disk, directory)[:-1]:
        if offset not in base_offsets:
            disk.unlink(path_of(directory, offset))


def encode(entries: Mapping[int, ProducerEntry]) -> bytes:
    return encode_rows(_row(producer_id, entry) for producer_id, entry in sorted(entries.items()))


def encode_rows(rows: Iterable[SnapshotRow]) -> bytes:
    packed = [_ENTRY.pack(*row) for row in rows]
    body = b"".join([_COUNT.pack(len(packed)), *packed])
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode_rows(data: bytes) -> list[SnapshotRow]:
    """Raises SnapshotError."""
    start = _PREFIX.size + _COUNT.size
    if len(data) < start:
        raise SnapshotError(f"producer snapshot cut off: {len(data)} bytes")
    version, crc = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise SnapshotError(f"producer snapshot of version {version}, known is {VERSION}")
    if crc32c(data[_PREFIX.size :]) != crc:
        raise SnapshotError("producer snapshot's CRC does not match")
    (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    if start + count * _ENTRY.size != len(data):
        raise SnapshotError(f"producer snapshot of {count} entries has {len(data)} bytes")
    return [SnapshotRow._make(fields) for fields in _ENTRY.iter_unpack(data[start:])]


def decode(data: bytes) -> dict[int, ProducerEntry]:
    """Raises SnapshotError."""
    return {row.producer_id: _entry(row) for row in decode_rows(data)}


def _row(producer_id: int, entry: ProducerEntry) -> SnapshotRow:
    last_sequence, last_offset, delta = -1, -1, 0
    if entry.batches:
        last = entry.batches[-1]
        last_sequence, last_offset, delta = last.last_sequence, last.last_offset, last.last_offset - last.first_offset
    return SnapshotRow(
        producer_id,
        entry.epoch,
        last_sequence,
        last_offset,
        delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def _entry(row: SnapshotRow) -> ProducerEntry:
    entry = ProducerEntry(row.epoch, row.coordinator_epoch, row.timestamp, row.transaction_first_offset)
    if row.last_offset >= 0:
        first_sequence = add_to_sequence(row.last_sequence, -row.offset_delta)
        batch = CachedBatch(
            first_sequence, row.last_sequence, row.last_offset - row.offset_delta, row.last_offset, row.timestamp
        )
        entry.add(row.epoch, batch)
        entry.seen_offset = row.last_offset  # who wrote nothing since is as idle as it was
    return entry
