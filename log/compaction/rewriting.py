"""The second pass of compaction: reads the log from its start, group by group, and copies what survives.

A batch of which all survives is copied as it is, one of which nothing survives is dropped without being looked into, and only the
others are taken apart.
"""

from ottla.log.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    BatchHeader,
    check_crc,
    read_header,
)
from ottla.log.compaction.job import CleaningJob, Pace
from ottla.log.compaction.mapping import DirtySection
from ottla.log.compaction.output import CleanedSegment, SegmentWriter
from ottla.log.compaction.pieces import FIELDS, LENGTH_MIN, UNLIKE, Pieces, out_of_place
from ottla.log.compaction.plan import SegmentInfo
from ottla.log.compaction.transactions import TransactionTracker
from ottla.log.compaction.walk import DEAD, TOMBSTONE, fates_by_key, surviving_bytes
from ottla.log.compression import NONE, compress
from ottla.log.config import FOREVER
from ottla.log.records import assemble_batch, decode_records, encode_records, read_end_marker, records_block
from ottla.log.segments.transactions import AbortedTransaction
from ottla.runtime.disk import Buffer, Disk
from ottla.runtime.errors import KafkaError

_WITHOUT_TOMBSTONES = bytes.maketrans(bytes([TOMBSTONE]), bytes([DEAD]))


class Rewriting:
    """The pass itself. ``read_bytes`` counts what was gone over."""

    def __init__(
        self,
        disk: Disk,
        job: CleaningJob,
        section: DirtySection,
        unreadable: dict[int, int],
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

    def rewrite(self, group: list[SegmentInfo], last: int) -> CleanedSegment:
        """One cleaned segment of several, durable. Raises CorruptBatchError.

        ``last`` is the base offset of the segment whose last batch stays, emptied perhaps: it leads a reader to the end of what
        was cleaned, where nothing else may follow yet.
        """
        base_offset = group[0].base_offset
        writer = SegmentWriter(self._disk, self._job.directory, base_offset, self._job.index_interval_bytes)
        try:
            for segment in group:
                pieces = Pieces(self._disk, self._job, segment, self._pace)
                for piece in pieces:
                    end = pieces.size - pieces.position if segment.base_offset == last else -1
                    pieces.used = self._copy_batches(piece, pieces, end, writer)
                    self.read_bytes += pieces.used
            writer.finish(self._transactions.take_still_needed())
        except BaseException:
            writer.abandon()
            raise
        replaced = tuple(segment.base_offset for segment in group)
        return CleanedSegment(base_offset, replaced, writer.size_bytes, writer.largest_timestamp)

    def _copy_batches(self, piece: bytes, pieces: Pieces, log_end: int, writer: SegmentWriter) -> int:
        """How many bytes of whole batches there were. The batch that ends at ``log_end`` is the last one of all.

        What the first pass has checked is not checked again: a batch that is copied whole takes its CRC along. It has checked
        those of the dirty part: all are in their places, so the offsets tell which these are.
        """
        _, fates, first_offset, end_offset = self._section
        last_records = self._job.last_records
        next_offset, segment_end = pieces.next_offset, pieces.end_offset
        view, end, at = memoryview(piece), len(piece), 0
        while end - at >= HEADER_BYTES:
            base_offset, length, magic, _, attributes, delta, max_timestamp, producer_id, count = FIELDS(piece, at)
            following = at + LOG_OVERHEAD + length
            if length < LENGTH_MIN or magic != 2:
                read_header(piece, at)  # raises, and says why
            if following > end:
                break
            last_offset = base_offset + delta
            if not next_offset <= base_offset <= last_offset < segment_end:
                raise out_of_place(base_offset, last_offset, next_offset, segment_end, at)
            next_offset = last_offset + 1
            ordinal = -1
            if last_offset >= first_offset and base_offset < end_offset:
                ordinal = self._ordinal
                self._ordinal += self._unreadable.get(base_offset, count) if self._unreadable else count
                if not attributes & UNLIKE and count and base_offset not in self._unreadable:
                    fate = fates[ordinal : ordinal + count]
                    dead = fate.count(DEAD)
                    whole = not dead and TOMBSTONE not in fate
                    if whole:
                        writer.append(view[at:following], last_offset, max_timestamp)
                    if whole or (dead == count and following != log_end and producer_id not in last_records):
                        at = following
                        continue
            header = read_header(piece, at)
            kept = self._cleaned(header, view[at:following], ordinal, is_last=following == log_end)
            if kept is not None:
                writer.append(kept, last_offset, read_header(kept).max_timestamp)
            at = following
        pieces.next_offset = next_offset
        return at

    def _cleaned(self, header: BatchHeader, batch: memoryview, ordinal: int, *, is_last: bool) -> Buffer | None:
        """What stays of a batch: itself, a smaller one, an empty one, nothing. ``ordinal``: of its first record, -1 outside of
        the dirty part, where nobody has checked the CRC yet."""
        if ordinal < 0:
            check_crc(batch, header)
        if header.is_control:
            kept = self._cleaned_control(header, batch)
        else:
            kept = None if self._transactions.is_aborted(header) else self._cleaned_data(header, batch, ordinal)
        if kept is None and (is_last or self._is_last_of_producer(header)):
            return batch if header.records_count == 0 else _emptied(header)
        return kept

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
            block = bytes(records_block(batch, header, self._job.inflated_bytes_max))
            fates = fates_by_key(block, header.records_count, self._section.keys)
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
        records = decode_records(batch, header, self._job.inflated_bytes_max)
        alive = [record for record, fate in zip(records, fates, strict=True) if fate != DEAD]
        # As a base timestamp it is an int64, and so are the records' distances from it: for ever is as late as these allow.
        latest = FOREVER + min(0, *(record.timestamp for record in alive))
        horizon = min(self._job.now_ms + self._job.delete_retention_ms, latest)
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
