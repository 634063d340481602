"""What a log may forget: by age, by size, below its start (kraft.md 4.6).

Deletion has two steps. The files get another name at once, and are unlinked ``file.delete.delay.ms`` later: whoever still reads
from one reads on, and then finds that the log begins later.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.log import reopening
from ottla.log.append import LeaderLog
from ottla.log.config import LogConfig
from ottla.log.durable_log import DurableLog
from ottla.log.producers import snapshot as producer_snapshot

NOT_SEEN = -1


class SegmentFacts(NamedTuple):
    """A segment as retention sees it; ``end_offset`` is where the next one begins."""

    end_offset: int
    size_bytes: int
    largest_timestamp: int


def plan(
    segments: Iterable[SegmentFacts],
    config: LogConfig,
    *,
    total_bytes: int,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many of the oldest segments may go. Pure; looks no further than the first that stays.

    Only what lies below the high watermark goes. Below the log start it always does; by age and by size only where
    ``cleanup.policy`` has ``delete``. Negative limits are none. A segment of which compaction left nothing holds up nothing: it goes
    with the next one that goes.
    """
    by_policy = "delete" in config.cleanup_policy
    excess = total_bytes - config.retention_bytes if by_policy and config.retention_bytes >= 0 else 0
    by_age = by_policy and config.retention_ms >= 0
    count = 0
    for number, segment in enumerate(segments, start=1):
        if segment.end_offset > high_watermark:
            break
        below_start = segment.end_offset <= log_start_offset
        if not segment.size_bytes and not below_start:
            continue
        too_many = excess >= segment.size_bytes > 0
        too_old = by_age and now_ms - segment.largest_timestamp > config.retention_ms
        if not (below_start or too_many or too_old):
            break
        excess -= segment.size_bytes
        count = number
    return count


class RetainedLog(LeaderLog):
    """A log that forgets."""

    __slots__ = ()

    def delete_old_segments(self, now_ms: int) -> list[int]:
        """Condemns segments that are too old, too many or below the log start; returns their base offsets.

        ``now_ms`` is wall time. The files are unlinked by `purge` after ``file.delete.delay.ms``. Raises StorageError.
        """
        if self.half_done:
            reopening.refuse(self)
        if not self.active.is_begun:
            return []
        try:
            count = plan(
                _facts(self),
                self.config,
                total_bytes=self.size_bytes,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
            )
            if count == len(self.segments):
                self._roll_at(self.log_end_offset)  # the active segment is never deleted: it becomes a closed one first
        except OSError as error:
            raise self.root.failed(error) from error
        try:
            return _condemn(self, count) if count else []
        except OSError as error:
            raise reopening.ended_half_way(self, error) from error

    def purge(self, now_ms: int) -> int:
        """Unlinks condemned files whose time has come; returns how many wait. Raises StorageError: what is left waits once more."""
        due = self.take_due(now_ms)
        try:
            while due:
                if self.disk.exists(due[0]):
                    self.disk.unlink(due[0])
                del due[0]
        except OSError as error:
            condemn_paths(self, due)
            raise self.root.failed(error) from error
        return len(self.condemned)

    def take_due(self, now_ms: int) -> list[str]:
        """The condemned files whose time has come, for the caller to unlink."""
        delay_ms = self.config.file_delete_delay_ms
        dated = [(now_ms + delay_ms if due_ms == NOT_SEEN else due_ms, path) for due_ms, path in self.condemned]
        self.condemned = [(due_ms, path) for due_ms, path in dated if due_ms > now_ms]
        if not self.condemned:
            self.root.condemned.pop(self, None)
        return [path for due_ms, path in dated if due_ms <= now_ms]


def _facts(log: DurableLog) -> Iterator[SegmentFacts]:
    for segment in log.segments:
        if segment is log.active and not segment.size:
            return
        largest = segment.largest_timestamp()
        if largest < 0:
            largest = log.disk.modified_ms(segment.path)
        yield SegmentFacts(log.next_base_offset(segment), segment.size, largest)


def _condemn(log: DurableLog, count: int) -> list[int]:
    """Renames the files of the ``count`` oldest segments, oldest first, so that a crash leaves no hole."""
    gone, kept = log.segments[:count], log.segments[count:]
    log.advance_log_start(max(kept[0].base_offset, log.log_start_offset))
    log.set_segments(kept)
    log.names_changed()  # whatever comes of it
    for segment in gone:
        condemn_paths(log, segment.rename_deleted())
    for offset in producer_snapshot.offsets(log.disk, log.directory)[:-1]:
        if offset < kept[0].base_offset:
            log.disk.unlink(producer_snapshot.path_of(log.directory, offset))
    return [segment.base_offset for segment in gone]


def condemn_paths(log: DurableLog, paths: list[str]) -> None:
    """These files, renamed, are unlinked by `purge`: ``file.delete.delay.ms`` after it first sees them."""
    log.condemned = [*log.condemned, *((NOT_SEEN, path) for path in paths)]
    log.root.condemned[log] = None
