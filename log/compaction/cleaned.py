"""What compaction asks of a log, and how its result comes in. The work itself is `ottla.log.compaction.cleaner`'s, in another process."""

import contextlib

from ottla.log import aborted, gaps, reopening, retention
from ottla.log.compaction.output import CleanedSegment
from ottla.log.compaction.plan import SegmentInfo
from ottla.log.compaction.swap import swap_files
from ottla.log.durable_log import DurableLog
from ottla.log.errors import DamagedLogError
from ottla.log.producers import snapshot as producer_snapshot
from ottla.log.segments.segment import Segment


class CompactedLog(DurableLog):
    """A log as compaction uses it."""

    __slots__ = ()

    @property
    def active_base_offset(self) -> int:
        return self.active.base_offset

    def closed_segments(self) -> list[SegmentInfo]:
        """The segments that may be cleaned, in order: closed, and below the recovery point as it stands on disk.

        Cleaning makes gaps, and a scan after a crash, which begins at the recovery point, takes a gap for a lost end. Raises StorageError.
        """
        if self.half_done:
            return []
        saved = self.root.saved_recovery_point(self.key)
        infos = []
        try:
            for segment, following in zip(self.segments, self.segments[1:], strict=False):
                if following.base_offset > saved:
                    break
                infos.append(_info(segment, following.base_offset))
        except OSError as error:
            raise self.root.failed(error) from error
        return infos

    def ensure_aborted(self) -> None:
        """Makes transaction indexes anew that cannot be right, and writes what waits for room: a worker reads their files. Raises
        StorageError."""
        try:
            for segment in self.segments:
                aborted.ensure(self, segment)
                self.write_aborted(segment)
        except OSError as error:
            raise self.root.failed(error) from error

    def install_cleaned(self, cleaned: CleanedSegment) -> None:
        """Takes the cleaned segment in place of those it was made from, which go as if retention had removed them.

        Raises StorageError.
        """
        if self.half_done:
            reopening.refuse(self)
        replaced = [segment for segment in self.segments if segment.base_offset in cleaned.replaced]
        first = self.segments.index(replaced[0])
        try:
            gaps.allow(self)
        except OSError as error:
            raise self.root.failed(error) from error
        try:
            for segment in replaced:
                segment.close()
            retention.condemn_paths(self, swap_files(self.disk, self.directory, cleaned))
        except OSError as error:
            raise reopening.ended_half_way(self, error) from error
        segment = Segment(self.files, self.directory, cleaned.base_offset, self.config, cleaned.size_bytes)
        self.set_segments([*self.segments[:first], segment, *self.segments[first + len(replaced) :]])
        self.names_changed()
        if len(replaced) > 1:
            self._remove_stray_snapshots()

    def _remove_stray_snapshots(self) -> None:
        try:
            producer_snapshot.remove_strays(self.disk, self.directory, [each.base_offset for each in self.segments])
        except OSError as error:
            self.root.failed(error)  # the log is whole: what is left goes the next time


def _info(segment: Segment, next_offset: int) -> SegmentInfo:
    first_timestamp = largest_timestamp = -1
    with contextlib.suppress(DamagedLogError):  # the cleaner finds the damage itself, and says so
        first = next(segment.walk_from(0), None)
        first_timestamp = first[1].max_timestamp if first is not None else -1
        largest_timestamp = segment.largest_timestamp()
    return SegmentInfo(
        segment.base_offset, next_offset, segment.size, *segment.index_bytes(), first_timestamp, largest_timestamp
    )
