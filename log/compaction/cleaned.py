"""What compaction asks of a log, and how its result comes in. The work itself is `ottla.log.compaction.cleaner`'s, in another process."""

import contextlib
from typing import TYPE_CHECKING

from ottla.log import gaps, reopening, retention
from ottla.log.compaction.output import CleanedSegment
from ottla.log.compaction.plan import SegmentInfo
from ottla.log.compaction.swap import swap_files
from ottla.log.errors import DamagedLogError
from ottla.log.segments.segment import Segment

if TYPE_CHECKING:
    from ottla.log.log import Log


def closed_segments(log: "Log") -> list[SegmentInfo]:
    """The segments that may be cleaned: closed, and below the recovery point as it stands on disk.

    Cleaning makes gaps, and a scan after a crash, which begins at the recovery point, takes a gap for a lost end.
    """
    saved = log.root.saved_recovery_point(log.key)
    infos = []
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        if following.base_offset > saved:
            break
        infos.append(_info(segment, following.base_offset))
    return infos


def _info(segment: Segment, next_offset: int) -> SegmentInfo:
    first_timestamp = largest_timestamp = -1
    with contextlib.suppress(DamagedLogError):  # the cleaner finds the damage itself, and says so
        first = next(segment.walk_from(0), None)
        first_timestamp = first[1].max_timestamp if first is not None else -1
        largest_timestamp = segment.largest_timestamp()
    return SegmentInfo(
        segment.base_offset, next_offset, segment.size, *segment.index_bytes(), first_timestamp, largest_timestamp
    )


def install_cleaned(log: "Log", cleaned: CleanedSegment) -> None:
    """Takes the cleaned segment in place of those it was made from. Raises StorageError."""
    replaced = [segment for segment in log.segments if segment.base_offset in cleaned.replaced]
    first = log.segments.index(replaced[0])
    try:
        gaps.allow(log)
    except OSError as error:
        raise log.root.failed(error) from error
    try:
        for segment in replaced:
            segment.close()
        retention.condemn_paths(log, swap_files(log.disk, log.directory, cleaned))
    except OSError as error:
        raise reopening.ended_half_way(log, error) from error
    segment = Segment(log.files, log.directory, cleaned.base_offset, log.config, cleaned.size_bytes)
    log.set_segments([*log.segments[:first], segment, *log.segments[first + len(replaced) :]])
    log.names_changed()
