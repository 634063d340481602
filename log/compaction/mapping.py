"""The first pass of compaction: the last occurrence of each key in the dirty part of a log, in bounded memory.

Kafka keeps a 16-byte hash of each key; a Python dict of the keys themselves costs about 160 bytes an entry but is exact,
three times faster to fill, and never takes two keys for one. Only keys longer than 32 bytes are replaced (`walk.map_key`).

What is kept with a key is its record's *ordinal*: its number among all records read in the dirty part. So the second pass
over the same batches knows which records survive without reading their keys again.
"""

from typing import NamedTuple

from crc32c import crc32c

from ottla.log.batch import COMPRESSION_MASK, CRC_START, HEADER_BYTES, LOG_OVERHEAD, BatchHeader, check_crc, read_header
from ottla.log.compaction.job import CleaningJob, Pace
from ottla.log.compaction.pieces import FIELDS, LENGTH_MIN, UNLIKE, Pieces, out_of_place
from ottla.log.compaction.transactions import TransactionTracker
from ottla.log.compaction.walk import ALIVE, TOMBSTONE, note_keys
from ottla.log.records import DECOMPRESSED_BYTES_MAX, RECORD_BYTES_MIN, read_end_marker, records_block
from ottla.log.segments.transactions import AbortedTransaction
from ottla.runtime.disk import Disk
from ottla.runtime.errors import KafkaError

ENTRY_BYTES = 160
_UNLIKE = UNLIKE | COMPRESSION_MASK
_COUNT_MAX = DECOMPRESSED_BYTES_MAX // RECORD_BYTES_MIN  # what claims more is not read, and needs no room


class DirtySection(NamedTuple):
    """What the first pass found: the keys, each record's fate by ordinal, and where the map ends (exclusive offset)."""

    keys: dict[bytes, int]
    fates: bytes
    first_offset: int
    end_offset: int


class KeyMap:
    """Each key with its last occurrence.

    Filled batch by batch; `full` is asked before each. Memory is bounded by ``buffer_bytes`` (about).
    """

    def __init__(self, buffer_bytes: int) -> None:
        self.capacity = max(buffer_bytes // ENTRY_BYTES, 1)
        self.keys: dict[bytes, int] = {}
        self.tombstones: list[int] = []
        self.ordinal = 0  # of the next record; moved on behind each batch, whether its keys were noted or not

    def has_room_for(self, count: int) -> bool:
        """Whether ``count`` more keys fit. One batch always fits an empty map: otherwise nothing would ever be cleaned."""
        return not self.keys or len(self.keys) + count <= self.capacity

    def section(self, first_offset: int, end_offset: int) -> DirtySection:
        fates = bytearray(self.ordinal)
        for ordinal in self.keys.values():
            fates[ordinal] = ALIVE
        for ordinal in self.tombstones:
            if fates[ordinal]:
                fates[ordinal] = TOMBSTONE
        return DirtySection(self.keys, bytes(fates), first_offset, end_offset)


class Mapping:
    """The pass itself: fills a map until the dirty part ends, or the map is full."""

    def __init__(self, disk: Disk, job: CleaningJob, aborted: list[AbortedTransaction], pace: Pace) -> None:
        self._disk = disk
        self._job = job
        self._pace = pace
        self._map = KeyMap(job.dedupe_buffer_bytes)
        # A transaction that ended before the dirty part would otherwise seem to go on in it.
        self._transactions = TransactionTracker(entry for entry in aborted if entry.last_offset >= job.first_dirty)
        self._unreadable: dict[int, int] = {}
        self._full_at = -1

    def section(self) -> tuple[DirtySection, dict[int, int]]:
        """The map, and the base offsets of batches whose records cannot be read: they are kept as they are. With each, how many
        ordinals it has.

        Raises CorruptBatchError.
        """
        first_dirty = self._job.first_dirty
        end_offset = first_dirty
        for segment in self._job.segments:
            if segment.next_offset <= first_dirty:
                continue
            pieces = Pieces(self._disk, self._job, segment, self._pace)
            for piece in pieces:
                pieces.used = self._note_batches(piece, pieces)
                if self._full_at >= 0:
                    return self._map.section(first_dirty, self._full_at), self._unreadable
            end_offset = segment.next_offset
        return self._map.section(first_dirty, end_offset), self._unreadable

    def _note_batches(self, piece: bytes, pieces: Pieces) -> int:
        """How many bytes of whole batches there were. Stops where the map is full."""
        keymap, first_dirty = self._map, self._job.first_dirty
        next_offset, segment_end = pieces.next_offset, pieces.end_offset
        view, end, at = memoryview(piece), len(piece), 0
        while end - at >= HEADER_BYTES:
            base_offset, length, magic, crc, attributes, delta, _, _, count = FIELDS(piece, at)
            following = at + LOG_OVERHEAD + length
            if length < LENGTH_MIN or magic != 2:
                read_header(piece, at)  # raises, and says why
            if following > end:
                break
            if crc32c(view[at + CRC_START : following]) != crc:
                check_crc(piece, read_header(piece, at), at)  # raises, and says more
            last_offset = base_offset + delta
            if not next_offset <= base_offset <= last_offset < segment_end:
                raise out_of_place(base_offset, last_offset, next_offset, segment_end, at)
            next_offset = last_offset + 1
            if last_offset >= first_dirty:
                if count <= _COUNT_MAX and not keymap.has_room_for(count):
                    self._full_at = base_offset
                    break
                if attributes & _UNLIKE:
                    count = self._note(read_header(piece, at), view[at:following])
                else:
                    try:
                        note_keys(piece, count, keymap, at + HEADER_BYTES, following)
                    except KafkaError:
                        count = self._note_unreadable(base_offset, count, following - at - HEADER_BYTES)
                keymap.ordinal += count
            at = following
        pieces.next_offset = next_offset
        return at

    def _note(self, header: BatchHeader, batch: memoryview) -> int:
        """How many ordinals the batch has."""
        count, block = header.records_count, b""
        if header.is_control:
            marker = read_end_marker(batch, header)
            if marker is not None:
                self._transactions.marker_is_empty(header, committed=marker.committed)
        elif not self._transactions.is_aborted(header):
            try:
                block = bytes(records_block(batch, header, self._job.inflated_bytes_max))
                note_keys(block, count, self._map, 0, len(block))
            except KafkaError:
                return self._note_unreadable(header.base_offset, count, len(block))
        return count

    def _note_unreadable(self, base_offset: int, count: int, size: int) -> int:
        # Some of its keys may be in the map already, with ordinals below its count; a count that cannot be has none there.
        ordinals = count if 0 <= count * RECORD_BYTES_MIN <= size else 0
        self._unreadable[base_offset] = ordinals
        return ordinals
