"""Cutting a log's end off, so that a crash at any moment leaves either more or exactly what was wanted, never a mix."""

from typing import TYPE_CHECKING

from ottla.log import aborted, reopening
from ottla.log.batch import CorruptBatchError, read_header
from ottla.log.config import FOREVER
from ottla.log.errors import DamagedLogError
from ottla.log.producers import snapshot as producer_snapshot
from ottla.log.records import RecordError
from ottla.log.segments.segment import Segment
from ottla.log.segments.soundness import batches_of_producers
from ottla.log.segments.walk import pieces

if TYPE_CHECKING:
    from ottla.log.log import Log


def truncate_to(log: "Log", offset: int, *, sync: bool = True) -> bool:
    """See `Log.truncate_to`. Where nothing at or above the log start stays, nothing does.

    The recovery point goes down first (on disk, if it must): what is appended after the cut is scanned after a crash. Then
    later segments go, the last one first; then the file is cut and synced, so that old bytes never come back behind new ones.
    Without ``sync`` that is still to be done (`DurableLog.finish_cut`), and nothing is appended before.
    """
    if offset >= log.log_end_offset:
        log.epochs.truncate_from_end(log.log_end_offset)  # one begun by us as a leader who then appended nothing
        return False
    if offset <= log.segments[0].base_offset:
        truncate_fully_and_start_at(log, offset)
        return True
    try:
        segment, position, end, damaged = _place_of_cut(log, offset)
        if end < log.log_start_offset:
            truncate_fully_and_start_at(log, min(offset, log.log_start_offset))
            return True
        _lower_recovery_point(log, end)
        _unlink_behind(log, segment)
        log.cut_unsynced = True
        segment.truncate(position, damaged=damaged, sync=False)
        log.unsettled((segment,))
        log.log_end_offset = end
        log.truncated()
        names_went = _forget_behind(log)
        set_roll_time(log)
        if sync:
            log.finish_cut(names_went=names_went)
    except OSError as error:
        raise reopening.ended_half_way(log, error) from error
    return True


def _place_of_cut(log: "Log", offset: int) -> tuple[Segment, int, int, bool]:
    """(segment, position in it, log end offset there, whether there is damage before it).

    Compaction may have left nothing of what precedes the segment: then the log ends where its last batch does. At a segment's
    beginning with nothing before it, no reader could ever come to the end.
    """
    segment = log.segment_of(offset)
    position, end, damaged = _cut_point(segment, offset)
    number = log.segments.index(segment)
    while position == 0 and number > 0:
        number -= 1
        earlier = log.segments[number]
        cut = _cut_point(earlier, offset)
        if cut[1] == segment.base_offset:
            break  # nothing is missing between the two
        if earlier.size or number == 0:
            return earlier, *cut
    return segment, position, end, damaged


def _cut_point(segment: Segment, offset: int) -> tuple[int, int, bool]:
    """(position, log end offset there, whether the segment is damaged before it). Damage itself is cut off: it can be healed."""
    try:
        position, _ = segment.find(offset)
        return position, segment.last_offset_before(position) + 1, False
    except DamagedLogError:
        return *segment.sound_end(offset), True


def truncate_fully_and_start_at(log: "Log", offset: int) -> None:
    """See `Log.truncate_fully_and_start_at`."""
    try:
        _lower_recovery_point(log, offset)
        for segment in reversed(log.segments):
            _unlink(log, segment)
        for snapshot in producer_snapshot.offsets(log.disk, log.directory):
            log.disk.unlink(producer_snapshot.path_of(log.directory, snapshot))
        _start_at(log, offset)
        log.sync_names()
        log.producers.clear()
        log.epochs.clear()
        log.write_epochs()
    except OSError as error:
        raise reopening.ended_half_way(log, error) from error
    log.log_start_offset = log.log_end_offset = log.high_watermark = log.recovery_point = offset
    log.cut_unsynced = False
    log.root.watermarks_moved = True
    log.truncated()


def restart_empty_at(log: "Log", offset: int) -> None:
    """Replaces an empty active segment by one that begins at ``offset``. Raises StorageError."""
    old = log.segments[:-1]
    try:
        _unlink(log, log.active)
        _start_at(log, offset)
    except OSError as error:
        raise reopening.ended_half_way(log, error) from error
    log.set_segments([*old, log.active])


def _start_at(log: "Log", offset: int) -> None:
    segment = Segment(log.files, log.directory, offset, log.config)
    segment.create_files()
    log.names_changed()
    log.set_segments([segment])


def _lower_recovery_point(log: "Log", offset: int) -> None:
    log.root.before_truncation({log.key: offset})
    log.recovery_point = min(log.recovery_point, offset)
    log.log_start_offset = min(log.log_start_offset, offset)


def _unlink_behind(log: "Log", segment: Segment) -> None:
    """Removes the segments behind ``segment``, which becomes the active one."""
    while log.active is not segment:
        _unlink(log, log.active)
        log.set_segments(log.segments[:-1])


def _unlink(log: "Log", segment: Segment) -> None:
    segment.unlink()
    # One by one: after a crash there may be too many segments, but never one missing before another.
    log.disk.sync_directory(log.directory)


def _forget_behind(log: "Log") -> bool:
    """Brings all that is remembered of the log back to its new end; returns whether files were removed for it."""
    end = log.log_end_offset
    log.recovery_point = min(log.recovery_point, end)
    log.set_high_watermark(min(log.high_watermark, end))
    log.epochs.truncate_from_end(end)  # the file may keep them: a scan from the recovery point puts it right
    snapshots = producer_snapshot.offsets(log.disk, log.directory)
    replay_from = log.producers.truncate_to(
        log.disk, log.directory, log_start_offset=log.log_start_offset, log_end_offset=end
    )
    replay_producers(log, replay_from)
    return bool(snapshots) and snapshots[-1] > end


def replay_producers(log: "Log", from_offset: int) -> None:
    """Updates the producer state with the batches from ``from_offset`` to the log end. Stops where the log is damaged."""
    if from_offset >= log.log_end_offset:
        return
    for segment in log.segments[log.segments.index(log.segment_of(from_offset)) :]:
        try:
            start = segment.find(from_offset)[0] if segment.base_offset < from_offset else 0
            for piece in pieces(segment.handle.open(), start, segment.size):
                _replay_piece(log, piece)
        except (CorruptBatchError, DamagedLogError, RecordError):
            continue  # whoever reads there is told; what follows may still be good


def _replay_piece(log: "Log", piece: memoryview) -> None:
    for at in batches_of_producers(piece)[0]:
        completed = log.producers.replay(piece, read_header(piece, at), at)
        if completed is not None:
            aborted.note(log, log.segment_of(completed.last_offset), completed)


def _first_timestamp(segment: Segment) -> int:
    try:
        return next(segment.walk_from(0))[1].max_timestamp
    except DamagedLogError:
        return -1


def set_roll_time(log: "Log", first_ms: int | None = None) -> None:
    """From when on the active segment is too old to take more: ``segment.ms`` after its first batch, less the jitter."""
    segment = log.active
    if not segment.size:
        segment.roll_after_ms = FOREVER
        return
    if first_ms is None:
        first_ms = _first_timestamp(segment)
    if first_ms < 0:
        first_ms = log.disk.modified_ms(segment.path)
    segment.roll_after_ms = first_ms + log.config.segment_ms - log.jitter_ms(segment.base_offset)
