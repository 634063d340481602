"""What a worker is told, and what it answers."""

from collections.abc import Callable

import msgspec

from ottla.log.compaction.output import CleanedSegment
from ottla.log.compaction.plan import SegmentInfo
from ottla.log.records import DECOMPRESSED_BYTES_MAX
from ottla.log.segments.layout import LOG_SUFFIX, stem

Pace = Callable[[int], None]
"""Told the bytes read since the last call: it may wait (throttle), or raise to stop the cleaning."""


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

    def path(self, segment: SegmentInfo) -> str:
        """Its batches."""
        return stem(self.directory, segment.base_offset) + LOG_SUFFIX


class CleaningResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a cleaning came to: cleaned up to ``end_offset`` (the next ``first_dirty``).

    Nothing may be replaced when it is the old one.
    """

    end_offset: int
    cleaned: list[CleanedSegment]
    read_bytes: int
    written_bytes: int
