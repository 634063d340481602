"""What a log may forget: by age, by size, below its start (kraft.md 4.6).

Deletion has two steps. The files get another name at once, and are unlinked ``file.delete.delay.ms`` later: whoever still reads
from one reads on, and then finds that the log begins later.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.log import append, reopening
from ottla.log.config import LogConfig
from ottla.log.producers import snapshot as producer_snapshot

if TYPE_CHECKING:
    from ottla.log.log import Log

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
    ``cleanup.policy`` has ``delete``. Negative limits are none.
    """
    by_policy = "delete" in config.cleanup_policy
    excess = total_bytes - config.retention_bytes if by_policy and config.retention_bytes >= 0 else 0
    by_age = by_policy and config.retention_ms >= 0
    count = 0
    for segment in segments:
        if segment.end_offset > high_watermark:
            break
        too_many = excess >= segment.size_bytes > 0
        too_old = by_age and now_ms - segment.largest_timestamp > config.retention_ms
        if not (segment.end_offset <= log_start_offset or too_many or too_old):
            break
        excess -= segment.size_bytes
        count += 1
    return count


def delete_old_segments(log: "Log", now_ms: int) -> list[int]:
    """See `Log.delete_old_segments`."""
    try:
        count = plan(
            _facts(log),
            log.config,
            total_bytes=log.size_bytes,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            now_ms=now_ms,
        )
        if count == len(log.segments):
            append.roll(log, log.log_end_offset)  # the active segment is never deleted: it becomes a closed one first
    except OSError as error:
        raise log.root.failed(error) from error
    try:
        return _condemn(log, count) if count else []
    except OSError as error:
        raise reopening.ended_half_way(log, error) from error


def _facts(log: "Log") -> Iterator[SegmentFacts]:
    for segment in log.segments:
        if segment is log.active and not segment.size:
            return
        largest = segment.largest_timestamp()
        if largest < 0:
            largest = log.disk.modified_ms(segment.path)
        yield SegmentFacts(log.next_base_offset(segment), segment.size, largest)


def _condemn(log: "Log", count: int) -> list[int]:
    """Renames the files of the ``count`` oldest segments, oldest first, so that a crash leaves no hole."""
    gone, kept = log.segments[:count], log.segments[count:]
    log.advance_log_start(max(kept[0].base_offset, log.log_start_offset))
    log.set_segments(kept)
    for segment in gone:
        condemn_paths(log, segment.rename_deleted())
    for offset in producer_snapshot.offsets(log.disk, log.directory)[:-1]:
        if offset < kept[0].base_offset:
            log.disk.unlink(producer_snapshot.path_of(log.directory, offset))
    log.names_changed()
    return [segment.base_offset for segment in gone]


def condemn_paths(log: "Log", paths: list[str]) -> None:
    """These files, renamed, are unlinked by `purge`: ``file.delete.delay.ms`` after it first sees them."""
    log.condemned.extend((NOT_SEEN, path) for path in paths)
    log.root.condemned[log] = None


def purge(log: "Log", now_ms: int) -> int:
    """See `Log.purge`."""
    try:
        for path in take_due(log, now_ms):
            if log.disk.exists(path):
                log.disk.unlink(path)
    except OSError as error:
        raise log.root.failed(error) from error
    return len(log.condemned)


def take_due(log: "Log", now_ms: int) -> list[str]:
    """See `Log.take_due`."""
    delay_ms = log.config.file_delete_delay_ms
    dated = [(now_ms + delay_ms if due_ms == NOT_SEEN else due_ms, path) for due_ms, path in log.condemned]
    log.condemned = [(due_ms, path) for due_ms, path in dated if due_ms > now_ms]
    if not log.condemned:
        log.root.condemned.pop(log, None)
    return [path for due_ms, path in dated if due_ms <= now_ms]
