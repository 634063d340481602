"""Compaction of one log: of every key the last record stays, at its offset. Builds ``.cleaned`` files; replaces nothing.

Two passes (Kafka's Cleaner, kraft.md 4.7). The first reads the dirty part and notes the last occurrence of each key. The
second reads the log from its start and copies what survives: a batch of which all survives is copied as it is, one of which
nothing survives is dropped without being looked into, and only the others are taken apart.
Runs in a worker process (`ottla.log.cleaner_worker`), or in place in the simulation. A batch whose CRC is wrong stops it.
"""

from collections.abc import Callable, Iterator
from itertools import chain

import msgspec

from ottla.log import transactions
from ottla.log.batch import COMPRESSION_MASK, DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader, check_crc, read_header
from ottla.log.cleaner_map import DEAD, TOMBSTONE, DirtySection, KeyMap
from ottla.log.cleaner_output import CLEANED_SUFFIX, CleanedSegment, SegmentWriter
from ottla.log.cleaner_plan import SegmentInfo, group_segments
from ottla.log.cleaner_transactions import TransactionTracker
from ottla.log.cleaner_walk import fates_by_key, note_keys, surviving_bytes
from ottla.log.compression import NONE, compress
from ottla.log.dump import LOG_SUFFIX
from ottla.log.records import (
    DECOMPRESSED_BYTES_MAX,
    assemble_batch,
    decode_records,
    encode_records,
    read_end_marker,
    records_block,
)
from ottla.log.scan import scan_batches
from ottla.log.transactions import AbortedTransaction
from ottla.runtime.disk import Buffer, Disk
from ottla.runtime.errors import KafkaError

Pace = Callable[[int], None]
"""Told the bytes read or written since the last call: it may wait (throttle), or raise to stop the cleaning."""

_WITHOUT_TOMBSTONES = bytes.maketrans(bytes([TOMBSTONE]), bytes([DEAD]))
_PACE_BYTES = 1 << 20


class CleaningJob(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a cleaning needs to know. ``segments``: all closed ones from the log's start to ``first_uncleanable``.

    ``last_records``: producer id -> (last data offset or -1, epoch), see `ProducerStateManager.last_records`.
    """

    directory: str
    segments: list[SegmentInfo]
    first_dirty: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    last_records: dict[int, tuple[int, int]] = {}
    inflated_bytes_max: int = DECOMPRESSED_BYTES_MAX


class CleaningResult(msgspec.Struct, frozen=True, kw_only=True):
    """Cleaned up to ``end_offset`` (the next ``first_dirty``); nothing may be replaced when it is the old one."""

    end_offset: int
    cleaned: list[CleanedSegment]
    read_bytes: int
    written_bytes: int


def clean(disk: Disk, job: CleaningJob, pace: Pace = lambda _: None) -> CleaningResult:
    """Builds the cleaned segments, durable. Raises CorruptBatchError where a source is damaged; OSError passes through."""
    remove_cleaned(disk, job.directory)
    aborted = _aborted_transactions(disk, job.directory)
    section, unreadable = _Mapping(disk, job, aborted, pace).section()
    rewriting = _Rewriting(disk, job, section, unreadable, aborted, pace)
    cleaned: list[CleanedSegment] = []
    if section.end_offset > job.first_dirty:
        sources = [segment for segment in job.segments if segment.base_offset < section.end_offset]
        groups = group_segments(sources, job.segment_bytes, job.segment_index_bytes)
        cleaned = [rewriting.rewrite(group) for group in groups]
    disk.sync_directory(job.directory)
    return CleaningResult(
        end_offset=section.end_offset,
        cleaned=cleaned,
        read_bytes=rewriting.read_bytes,
        written_bytes=sum(part.size_bytes for part in cleaned),
    )


def remove_cleaned(disk: Disk, directory: str) -> None:
    """Removes what an earlier, unfinished cleaning left."""
    for name in disk.list_directory(directory):
        if name.endswith(CLEANED_SUFFIX):
            disk.unlink(f"{directory}/{name}")


def _aborted_transactions(disk: Disk, directory: str) -> list[AbortedTransaction]:
    """Of all segments, the active one too: a transaction's marker may lie far behind its data."""
    found: list[AbortedTransaction] = []
    for name in disk.list_directory(directory):
        if name.endswith(transactions.SUFFIX):
            path = f"{directory}/{name}"
            found.extend(transactions.decode(disk.read_bytes(path), path))
    return found


def _batches(disk: Disk, path: str, pace: Pace) -> Iterator[tuple[BatchHeader, memoryview]]:
    """A segment's batches, their CRCs checked. Raises CorruptBatchError."""
    file = disk.open(path, writable=False)
    try:
        unpaced = 0
        for _, header, batch in scan_batches(file):
            check_crc(batch, header)
            unpaced += len(batch)
            if unpaced >= _PACE_BYTES:
                pace(unpaced)
                unpaced = 0
            yield header, batch
        pace(unpaced)
    finally:
        file.close()


class _Mapping:
    """The first pass."""

    def __init__(self, disk: Disk, job: CleaningJob, aborted: list[AbortedTransaction], pace: Pace) -> None:
        self._disk = disk
        self._job = job
        self._pace = pace
        self._map = KeyMap(job.dedupe_buffer_bytes)
        # A transaction that ended before the dirty part would otherwise seem to go on in it.
        self._transactions = TransactionTracker(entry for entry in aborted if entry.last_offset >= job.first_dirty)
        self._unreadable: set[int] = set()

    def section(self) -> tuple[DirtySection, set[int]]:
        """The map, and the base offsets of batches whose records cannot be read: they are kept as they are."""
        first_dirty = self._job.first_dirty
        end_offset = first_dirty
        for segment in self._job.segments:
            if segment.next_offset <= first_dirty:
                continue
            for header, batch in _batches(self._disk, _path(self._job.directory, segment), self._pace):
                if header.last_offset < first_dirty:
                    continue
                if not self._map.has_room_for(header.records_count):
                    return self._map.section(first_dirty, header.base_offset), self._unreadable
                self._note(header, batch)
            end_offset = segment.next_offset
        return self._map.section(first_dirty, end_offset), self._unreadable

    def _note(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            marker = read_end_marker(batch, header)
            if marker is not None:
                self._transactions.marker_is_empty(header, committed=marker.committed)
        elif not self._transactions.is_aborted(header):
            try:
                note_keys(
                    bytes(records_block(batch, header, self._job.inflated_bytes_max)), header.records_count, self._map
                )
            except KafkaError:
                self._unreadable.add(header.base_offset)
        self._map.skip(header.records_count)


class _Rewriting:
    """The second pass, group by group."""

    def __init__(
        self,
        disk: Disk,
        job: CleaningJob,
        section: DirtySection,
        unreadable: set[int],
        aborted: list[AbortedTransaction],
        pace: Pace,
    ) -> None:
        self._disk = disk
        self._job = job
        self._section = section
        self._unreadable = unreadable
        self._transactions = TransactionTracker(aborted)
        self._pace = pace
        self._ordinal = 0
        self.read_bytes = 0

    def rewrite(self, group: list[SegmentInfo]) -> CleanedSegment:
        base_offset = group[0].base_offset
        writer = SegmentWriter(self._disk, self._job.directory, base_offset, self._job.index_interval_bytes)
        try:
            sources = (_batches(self._disk, _path(self._job.directory, segment), self._pace) for segment in group)
            for header, batch, is_last in _with_last(chain.from_iterable(sources)):
                self.read_bytes += len(batch)
                kept = self._cleaned(header, batch, is_last=is_last)
                if kept is batch:
                    writer.append(kept, header.last_offset, header.max_timestamp)
                elif kept is not None:
                    writer.append(kept, header.last_offset, read_header(kept).max_timestamp)
            writer.finish(self._transactions.take_still_needed())
        except BaseException:
            writer.abandon()
            raise
        replaced = tuple(segment.base_offset for segment in group)
        return CleanedSegment(base_offset, replaced, writer.size_bytes, writer.largest_timestamp)

    def _cleaned(self, header: BatchHeader, batch: memoryview, *, is_last: bool) -> Buffer | None:
        """What stays of a batch: itself, a smaller one, an empty one, nothing."""
        ordinal = self._next_ordinal(header)
        if header.is_control:
            kept = self._cleaned_control(header, batch)
        else:
            kept = None if self._transactions.is_aborted(header) else self._cleaned_data(header, batch, ordinal)
        if kept is None and (is_last or self._is_last_of_producer(header)):
            return batch if header.records_count == 0 else _emptied(header)
        return kept

    def _next_ordinal(self, header: BatchHeader) -> int:
        """The ordinal of the batch's first record in the dirty part, counted as the first pass did; -1 outside of it."""
        if header.last_offset < self._section.first_offset or header.base_offset >= self._section.end_offset:
            return -1
        ordinal = self._ordinal
        self._ordinal += header.records_count
        return ordinal

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether a producer that is still known would be forgotten with this batch: its last sequence or its epoch."""
        last = self._job.last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        last_offset, epoch = last
        return (
            header.last_offset == last_offset
            if last_offset >= 0
            else header.is_control and header.producer_epoch == epoch
        )

    def _cleaned_control(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        if header.records_count == 0:
            return None
        marker = read_end_marker(batch, header)
        if marker is None:
            return batch
        empty = self._transactions.marker_is_empty(header, committed=marker.committed)
        if not empty:
            return batch
        if not header.attributes & DELETE_HORIZON:
            return self._with_horizon(header, batch, bytes([TOMBSTONE]) * header.records_count)
        return None if header.base_timestamp <= self._job.now_ms else batch

    def _cleaned_data(self, header: BatchHeader, batch: memoryview, ordinal: int) -> Buffer | None:
        if header.base_offset >= self._section.end_offset or header.base_offset in self._unreadable:
            return batch
        if header.records_count == 0:
            return None
        try:
            return self._filtered(header, batch, self._fates(header, batch, ordinal))
        except KafkaError:
            return batch  # sound by its CRC, but its records are none: a client's doing, and not ours to lose

    def _fates(self, header: BatchHeader, batch: memoryview, ordinal: int) -> bytes | bytearray:
        if ordinal >= 0:
            fates: bytes | bytearray = self._section.fates[ordinal : ordinal + header.records_count]
        else:
            fates = fates_by_key(
                bytes(records_block(batch, header, self._job.inflated_bytes_max)),
                header.records_count,
                self._section.keys,
            )
        if header.attributes & DELETE_HORIZON and header.base_timestamp <= self._job.now_ms:
            return fates.translate(_WITHOUT_TOMBSTONES)
        return fates

    def _filtered(self, header: BatchHeader, batch: memoryview, fates: bytes | bytearray) -> Buffer | None:
        alive = header.records_count - fates.count(DEAD)
        if alive == 0:
            return None
        if TOMBSTONE in fates and not header.attributes & DELETE_HORIZON:
            return self._with_horizon(header, batch, fates)
        if alive == header.records_count:
            return batch
        block = bytes(records_block(batch, header, self._job.inflated_bytes_max))
        runs, largest_delta = surviving_bytes(block, fates)
        max_timestamp = (
            header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp + largest_delta
        )
        return _assembled(header._replace(records_count=alive, max_timestamp=max_timestamp), b"".join(runs))

    def _with_horizon(self, header: BatchHeader, batch: memoryview, fates: bytes | bytearray) -> Buffer:
        """The surviving records with the time from which its tombstones may go, which takes the base timestamp's place."""
        horizon = self._job.now_ms + self._job.delete_retention_ms
        records = decode_records(batch, header, self._job.inflated_bytes_max)
        alive = [record for record, fate in zip(records, fates, strict=True) if fate != DEAD]
        max_timestamp = (
            header.max_timestamp if header.attributes & LOG_APPEND_TIME else max(record.timestamp for record in alive)
        )
        header = header._replace(
            attributes=header.attributes | DELETE_HORIZON,
            base_timestamp=horizon,
            max_timestamp=max_timestamp,
            records_count=len(alive),
        )
        return _assembled(header, encode_records(alive, header.base_offset, horizon))


def _assembled(header: BatchHeader, block: Buffer) -> bytearray:
    return assemble_batch(header, block if header.compression == NONE else compress(header.compression, block))


def _emptied(header: BatchHeader) -> bytearray:
    """A batch without records that still says up to which offset, sequence and epoch there was one."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
    return assemble_batch(
        header._replace(attributes=attributes, base_timestamp=header.max_timestamp, records_count=0), b""
    )


def _with_last(batches: Iterator[tuple[BatchHeader, memoryview]]) -> Iterator[tuple[BatchHeader, memoryview, bool]]:
    """The same, each with whether it is the last one."""
    previous = next(batches, None)
    for following in batches:
        assert previous is not None
        yield (*previous, False)
        previous = following
    if previous is not None:
        yield (*previous, True)


def _path(directory: str, segment: SegmentInfo) -> str:
    return f"{directory}/{segment.base_offset:020d}{LOG_SUFFIX}"
