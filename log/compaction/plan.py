"""What to compact, and in which pieces. Pure: sizes, offsets and times in, a decision out.

Source: Kafka's LogCleanerManager and Cleaner (kraft.md 4.7). A log has a clean part (compacted before, up to the cleaner
checkpoint), a dirty part, and behind that what must not be touched yet: what is open, young, or being written.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from ottla.log.config import FOREVER, LogConfig
from ottla.log.segments.layout import RELATIVE_OFFSET_MAX

GROUP_BYTES_MAX = 3 << 29
"""Rewriting can make batches larger by a little; positions must stay below 2 GiB."""

Key = TypeVar("Key")


class SegmentInfo(msgspec.Struct, frozen=True):
    """A closed segment. Sizes in bytes, times in milliseconds (-1 unknown); ``next_offset`` is where the next one begins."""

    base_offset: int
    next_offset: int
    size_bytes: int
    index_bytes: int = 0
    time_index_bytes: int = 0
    first_timestamp: int = -1
    largest_timestamp: int = -1


class LogFacts(NamedTuple):
    """A compacted log as the planner sees it. ``segments`` are all but the active one, in order."""

    segments: Sequence[SegmentInfo]
    active_base_offset: int
    log_start_offset: int
    last_stable_offset: int
    config: LogConfig


class DirtyRange(NamedTuple):
    """What of a log may be cleaned: offsets from ``first_dirty`` up to ``first_uncleanable``.

    ``ratio`` is their share of all clean and dirty bytes.
    """

    first_dirty: int
    first_uncleanable: int
    dirty_bytes: int
    ratio: float
    overdue: bool

    def is_due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > config.min_cleanable_dirty_ratio)


def dirty_range(log: LogFacts, checkpoint: int | None, now_ms: int) -> DirtyRange:
    """What of a log could be cleaned now. A checkpoint outside the log counts as none: it is all dirty."""
    first_dirty = checkpoint
    if first_dirty is None or not log.log_start_offset <= first_dirty <= log.active_base_offset:
        first_dirty = log.log_start_offset
    dirty = [segment for segment in log.segments if segment.next_offset > first_dirty]
    cleanable = list(_cleanable(dirty, log, now_ms))
    first_uncleanable = cleanable[-1].next_offset if cleanable else first_dirty
    dirty_bytes = sum(segment.size_bytes for segment in cleanable)
    clean_bytes = sum(segment.size_bytes for segment in log.segments if segment.next_offset <= first_dirty)
    ratio = dirty_bytes / (clean_bytes + dirty_bytes) if dirty_bytes else 0.0
    return DirtyRange(first_dirty, first_uncleanable, dirty_bytes, ratio, _overdue(cleanable, log.config, now_ms))


def _cleanable(dirty: Sequence[SegmentInfo], log: LogFacts, now_ms: int) -> Iterable[SegmentInfo]:
    """Whole segments only: one that an open transaction, or too young a record, reaches into waits with all behind it."""
    lag = log.config.min_compaction_lag_ms
    for segment in dirty:
        if segment.next_offset > min(log.last_stable_offset, log.active_base_offset):
            return
        if lag > 0 and segment.largest_timestamp > now_ms - lag:
            return
        yield segment


def _overdue(cleanable: Sequence[SegmentInfo], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms >= FOREVER:
        return False
    times = (
        segment.first_timestamp if segment.first_timestamp >= 0 else segment.largest_timestamp for segment in cleanable
    )
    oldest = min((time for time in times if time >= 0), default=now_ms)
    return now_ms - oldest > config.max_compaction_lag_ms


def choose(due: Iterable[tuple[Key, DirtyRange, LogConfig]]) -> Key | None:
    """The log to clean next: of those that are due the dirtiest; the first of equals. None when none is due."""
    best: Key | None = None
    best_ratio = -1.0
    for key, dirty, config in due:
        if dirty.is_due(config) and dirty.ratio > best_ratio:
            best, best_ratio = key, dirty.ratio
    return best


def group_segments(segments: Sequence[SegmentInfo], segment_bytes: int, index_bytes: int) -> list[list[SegmentInfo]]:
    """Neighbours that fit into one segment together, by their sizes before cleaning; every segment is in one group."""
    groups: list[list[SegmentInfo]] = []
    size = index_size = time_index_size = 0
    for segment in segments:
        size += segment.size_bytes
        index_size += segment.index_bytes
        time_index_size += segment.time_index_bytes
        fits = (
            groups
            and size <= min(segment_bytes, GROUP_BYTES_MAX)
            and max(index_size, time_index_size) <= index_bytes
            and segment.next_offset - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, index_size, time_index_size = segment.size_bytes, segment.index_bytes, segment.time_index_bytes
    return groups
