"""Cutting a log's end off, so that a crash at any moment leaves either more or exactly what was wanted, never a mix."""

from ottla.log import aborted, reopening, replay
from ottla.log.durable_log import DurableLog
from ottla.log.errors import DamagedLogError
from ottla.log.producers import snapshot as producer_snapshot
from ottla.log.segments.segment import Segment


class CuttableLog(DurableLog):
    """A log as those use it who let another's history count."""

    __slots__ = ()

    def truncate_to(self, offset: int, *, sync: bool = True) -> bool:
        """Cuts off every batch that holds ``offset`` or lies behind it, durably; False when nothing lies there.

        Epochs that began at or behind the end then go in either case (Kafka's UnifiedLog.truncateTo). Where nothing at or above
        the log start stays, nothing does, but for the first segment's name, which says where the log begins. Without ``sync`` the
        caller sees to that (`cut_sync`, `finish_cut`) before anything is appended. Raises StorageError.
        """
        if self.half_done:
            reopening.refuse(self)
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)  # one begun by us as a leader who then appended nothing
            return False
        if offset < self.segments[0].base_offset:
            begin_anew_at(self, offset)
        else:
            _cut_at(self, offset, sync=sync)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything; the log is empty and begins at ``offset``. Raises StorageError."""
        if self.half_done:
            reopening.refuse(self)
        begin_anew_at(self, offset)


def _cut_at(log: DurableLog, offset: int, *, sync: bool) -> None:
    """The recovery point goes down first (on disk, if it must): what is appended after the cut is scanned after a crash.

    Then later segments go, the last one first; then the file is cut and synced, so that old bytes never come back behind new ones.
    """
    try:
        segment, position, end, damaged = _place_of_cut(log, offset)
        if end < log.log_start_offset:
            begin_anew_at(log, min(offset, log.log_start_offset))
            return
        _lower_recovery_point(log, end)
        _unlink_behind(log, segment)
        log.cut_unsynced = True
        segment.truncate(position, damaged=damaged, sync=False)
        log.unsettled((segment,))
        if segment.transactions().has_file:
            log.aborts_changed(segment)
        log.log_end_offset = end
        log.truncated()
        _forget_behind(log)
        log.set_roll_time()
        if sync:
            log.finish_cut()
    except OSError as error:
        raise reopening.ended_half_way(log, error) from error


def _place_of_cut(log: DurableLog, offset: int) -> tuple[Segment, int, int, bool]:
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


def begin_anew_at(log: DurableLog, offset: int) -> None:
    """Drops everything; the log is empty and begins at ``offset``. Raises StorageError.

    Of a cut the offset is written down first: a crash must not leave a log that ends below it, for what is committed does not. Who begins
    behind the log's end has something else to catch up with, and is in no ISR.
    """
    try:
        _lower_recovery_point(log, offset)
        if offset <= log.log_end_offset:
            log.root.save_start_offset(log.key, offset)
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


def restart_empty_at(log: DurableLog, offset: int) -> None:
    """Replaces an empty active segment by one that begins at ``offset``. Raises StorageError."""
    old = log.segments[:-1]
    try:
        for snapshot in producer_snapshot.offsets(log.disk, log.directory):
            if snapshot > log.log_end_offset:  # of a roll over a gap that others' batches may fill now
                log.disk.unlink(producer_snapshot.path_of(log.directory, snapshot))
        _unlink(log, log.active)
        _start_at(log, offset)
    except OSError as error:
        raise reopening.ended_half_way(log, error) from error
    log.set_segments([*old, log.active])


def _start_at(log: DurableLog, offset: int) -> None:
    segment = Segment(log.files, log.directory, offset, log.config)
    segment.create_files()
    log.names_changed()
    log.set_segments([segment])


def _lower_recovery_point(log: DurableLog, offset: int) -> None:
    log.root.before_truncation({log.key: offset})
    log.recovery_point = min(log.recovery_point, offset)
    log.log_start_offset = min(log.log_start_offset, offset)


def _unlink_behind(log: DurableLog, segment: Segment) -> None:
    """Removes the segments behind ``segment``, which becomes the active one."""
    while log.active is not segment:
        _unlink(log, log.active)
        log.set_segments(log.segments[:-1])
    segment.configure(log.config)  # it was closed, perhaps under others


def _unlink(log: DurableLog, segment: Segment) -> None:
    segment.unlink()
    # One by one: after a crash there may be too many segments, but never one missing before another.
    log.disk.sync_directory(log.directory)


def _forget_behind(log: DurableLog) -> None:
    """Brings all that is remembered of the log back to its new end."""
    end = log.log_end_offset
    log.recovery_point = min(log.recovery_point, end)
    log.set_high_watermark(min(log.high_watermark, end))
    log.epochs.truncate_from_end(end)  # the file may keep them: a scan from the recovery point puts it right
    replay_from = load_producers(log)
    replay_producers(log, replay_from)
    log.producers.on_high_watermark(log.high_watermark)  # it may have stayed where it was, above what ended
    replay.restore_unreplicated(log, replay_from, log.high_watermark)


def load_producers(log: DurableLog) -> int:
    """Takes what the newest snapshot has of the log's producers; returns the offset to replay from.

    That may lie below the log start: a marker that DeleteRecords passed ends a transaction that the snapshot has open.
    """
    replay_from = log.producers.load(
        log.disk, log.directory, first_offset=log.segments[0].base_offset, log_end_offset=log.log_end_offset
    )
    if log.producers.first_unstable_offset is not None:
        replay.look_for_open(log, log.producers, replay_from)
    return replay_from


def replay_producers(log: DurableLog, from_offset: int) -> None:
    """Updates the producer state with the batches from ``from_offset`` to the log end. Leaves out what is damaged."""
    for segment, completed in replay.completed(log, log.producers, from_offset, log.log_end_offset):
        aborted.note(log, segment, completed)
