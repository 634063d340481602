"""What lies in a log's files, row by row, for people: Ottla's directories and Apache Kafka's alike.

Rows are small structs that any table or JSON printer takes. Nothing is written and no lock is needed, but the node that
owns the directory should be stopped. A file that breaks off yields a `Damage` row where it does, and ends.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ottla.log.batch import DELETE_HORIZON, HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, CorruptBatchError, check_crc
from ottla.log.compression import NAMES
from ottla.log.directories import checkpoints
from ottla.log.directories.owned_offsets import read_owned
from ottla.log.producers import snapshot as producer_snapshot
from ottla.log.producers.entry import add_to_sequence
from ottla.log.records import DECOMPRESSED_BYTES_MAX, ControlType, Record, control_type_of, decode_records
from ottla.log.segments import transactions
from ottla.log.segments.layout import (
    INDEX_ENTRY,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_ENTRY,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from ottla.log.segments.scan import scan_batches
from ottla.runtime.disk import Disk
from ottla.runtime.errors import KafkaError
from ottla.runtime.identifiers import id_to_text

Decode = Callable[[Record], Any]
"""Makes a record of a known topic readable; what it returns stands in `RecordRow.decoded`."""


class Row(msgspec.Struct, frozen=True, tag_field="row", tag=lambda name: name.removesuffix("Row").lower()):
    """Anything that a file holds. ``row`` says what when it becomes JSON."""


class Damage(Row, frozen=True):
    """Where and why a file cannot be read further. ``position`` in bytes."""

    path: str
    position: int
    reason: str


class BatchRow(Row, frozen=True, kw_only=True):
    """A batch's header. Times in milliseconds since 1970; ``delete_horizon`` only where compaction set one."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    count: int
    leader_epoch: int
    codec: str
    time_type: str
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    transactional: bool
    control: bool
    delete_horizon: int | None
    crc: int
    valid: bool


class RecordRow(Row, frozen=True, kw_only=True):
    """A record. ``control`` names a control record's type; ``decoded`` is what the caller's decoder made of it."""

    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    control: str | None = None
    decoded: Any = None


class OffsetIndexRow(Row, frozen=True):
    """An entry of an offset index: ``offset`` is the last of the batch at ``position``."""

    offset: int
    position: int


class TimeIndexRow(Row, frozen=True):
    """An entry of a time index: up to ``offset`` no record is later than ``timestamp``."""

    timestamp: int
    offset: int


class TransactionRow(Row, frozen=True):
    """An aborted transaction; ``last_offset`` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerRow(Row, frozen=True):
    """A producer as a snapshot knows it; -1 where there is no last batch or no open transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


class EpochRow(Row, frozen=True):
    """A leader epoch, and where it began."""

    epoch: int
    start_offset: int


class CheckpointRow(Row, frozen=True):
    """A row of an offset checkpoint. ``topic_id``: whose the offset is; empty where the file does not say."""

    topic: str
    partition: int
    offset: int
    topic_id: str = ""


class PropertyRow(Row, frozen=True):
    """A line of meta.properties or partition.metadata."""

    name: str
    value: str


def dump_file(disk: Disk, path: str, *, records: bool = False, decode: Decode | None = None) -> Iterator[Row]:
    """The rows of one file, by its name. Raises ValueError for a name that is none of a log's; OSError passes through."""
    name = path.rpartition("/")[2]
    stem = name.removesuffix(".deleted").removesuffix(".swap").removesuffix(".cleaned")
    if stem.endswith(LOG_SUFFIX) or stem.endswith(".checkpoint"):
        return dump_segment(disk, path, records=records, decode=decode)
    for suffix, dump in _BY_SUFFIX.items():
        if stem.endswith(suffix):
            return _guarded(dump(disk, path), path)
    raise ValueError(f"{path}: not a file of a log ({', '.join([LOG_SUFFIX, *_BY_SUFFIX])})")


def dump_segment(disk: Disk, path: str, *, records: bool = False, decode: Decode | None = None) -> Iterator[Row]:
    """A segment's batches, each followed by its records if wanted (``decode`` may make them readable)."""
    file = disk.open(path, writable=False)
    try:
        for position, header, batch in scan_batches(file):
            row = batch_row(position, header, batch)
            yield row
            if records and row.valid:
                yield from _record_rows(path, position, header, batch, decode)
    except CorruptBatchError as error:
        yield Damage(path, error.position, error.message)
    finally:
        file.close()


def batch_row(position: int, header: BatchHeader, batch: memoryview) -> BatchRow:
    has_sequence = header.base_sequence >= 0
    return BatchRow(
        position=position,
        size=header.size_bytes,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        count=header.records_count,
        leader_epoch=header.leader_epoch,
        codec=NAMES[header.compression] if header.compression < len(NAMES) else str(header.compression),
        time_type="LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime",
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=add_to_sequence(header.base_sequence, header.last_offset_delta) if has_sequence else -1,
        transactional=header.is_transactional,
        control=header.is_control,
        delete_horizon=header.base_timestamp if header.attributes & DELETE_HORIZON else None,
        crc=header.crc,
        valid=_crc_matches(batch, header),
    )


def _crc_matches(batch: memoryview, header: BatchHeader) -> bool:
    try:
        check_crc(batch, header)
    except CorruptBatchError:
        return False
    return True


def _record_rows(
    path: str, position: int, header: BatchHeader, batch: memoryview, decode: Decode | None
) -> Iterator[Row]:
    try:
        records = decode_records(batch, header, DECOMPRESSED_BYTES_MAX)
    except KafkaError as error:
        yield Damage(path, position + HEADER_BYTES, error.message)
        return
    for record in records:
        control = _control_name(record) if header.is_control else None
        yield RecordRow(
            offset=record.offset,
            timestamp=record.timestamp,
            sequence=-1
            if header.base_sequence < 0
            else add_to_sequence(header.base_sequence, record.offset - header.base_offset),
            key=record.key,
            value=record.value,
            headers=record.headers,
            control=control,
            decoded=_decoded(record, decode) if decode is not None and control is None else None,
        )


def _decoded(record: Record, decode: Decode) -> Any:
    try:
        return decode(record)
    except (ValueError, LookupError, KafkaError) as error:
        return {"error": str(error)}  # one unreadable record must not hide the others


def _control_name(record: Record) -> str:
    try:
        return ControlType(control_type_of(record.key)).name
    except (ValueError, KafkaError):
        return "UNKNOWN"


def base_offset_of(path: str) -> int:
    """The offset that a segment's file name begins with. Raises ValueError."""
    return int(path.rpartition("/")[2].partition(".")[0])


def index_entries(disk: Disk, path: str) -> list[tuple[int, int]]:
    """(absolute offset, position) of an offset index. The zeros behind the last entry of an unclosed one are left out."""
    base = base_offset_of(path)
    data = _whole_entries(disk.read_bytes(path), INDEX_ENTRY.size)
    entries = [(base + relative, position) for relative, position in INDEX_ENTRY.iter_unpack(data)]
    return _without_zeros(entries, (base, 0))


def time_index_entries(disk: Disk, path: str) -> list[tuple[int, int]]:
    """(timestamp, absolute offset) of a time index, without the zeros of an unclosed one."""
    base = base_offset_of(path)
    data = _whole_entries(disk.read_bytes(path), TIME_INDEX_ENTRY.size)
    entries = [(timestamp, base + relative) for timestamp, relative in TIME_INDEX_ENTRY.iter_unpack(data)]
    return _without_zeros(entries, (0, base))


def _whole_entries(data: bytes, entry_bytes: int) -> bytes:
    return data[: len(data) - len(data) % entry_bytes]


def _without_zeros(entries: list[tuple[int, int]], zero: tuple[int, int]) -> list[tuple[int, int]]:
    """A file preallocated and mapped, as Kafka's active indexes are, ends in zeros when its process was killed."""
    count = len(entries)
    while count and entries[count - 1] == zero:
        count -= 1
    return entries[:count]


def _dump_index(disk: Disk, path: str) -> Iterator[Row]:
    return (OffsetIndexRow(*entry) for entry in index_entries(disk, path))


def _dump_time_index(disk: Disk, path: str) -> Iterator[Row]:
    return (TimeIndexRow(*entry) for entry in time_index_entries(disk, path))


def _dump_transactions(disk: Disk, path: str) -> Iterator[Row]:
    yield from (TransactionRow(*entry) for entry in transactions.decode(disk.read_bytes(path), path))


def _dump_snapshot(disk: Disk, path: str) -> Iterator[Row]:
    yield from (ProducerRow(*row) for row in producer_snapshot.decode_rows(disk.read_bytes(path)))


def _dump_epochs(disk: Disk, path: str) -> Iterator[Row]:
    yield from (EpochRow(*entry) for entry in checkpoints.read_epochs(disk, path.rpartition("/")[0] or "."))


def _dump_offsets(disk: Disk, path: str) -> Iterator[Row]:
    for ((topic, partition), topic_id), offset in sorted(read_owned(disk, path).items()):
        yield CheckpointRow(topic, partition, offset, id_to_text(topic_id))


def _dump_lines(disk: Disk, path: str) -> Iterator[Row]:
    for line in disk.read_bytes(path).decode("utf-8", "replace").splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.replace(": ", "=", 1).partition("=")
            yield PropertyRow(name, value)


def _guarded(rows: Iterator[Row], path: str) -> Iterator[Row]:
    try:
        yield from rows
    except (KafkaError, checkpoints.CheckpointError) as error:
        yield Damage(path, 0, str(error))


_BY_SUFFIX: dict[str, Callable[[Disk, str], Iterator[Row]]] = {
    INDEX_SUFFIX: _dump_index,
    TIME_INDEX_SUFFIX: _dump_time_index,
    TRANSACTION_INDEX_SUFFIX: _dump_transactions,
    producer_snapshot.SUFFIX: _dump_snapshot,
    checkpoints.LEADER_EPOCHS: _dump_epochs,
    "-offset-checkpoint": _dump_offsets,
    checkpoints.META_PROPERTIES: _dump_lines,
    checkpoints.PARTITION_METADATA: _dump_lines,
}
