"""What is written about all logs of a directory at its root: recovery points, log starts, high watermarks, what is clean.

All of it stands for one log of one topic, and must not outlive that log. What is said of another topic's log nobody believes
(`ottla.log.directories.owned_offsets`). A partition that went and comes back to the same directory is of the same topic: so what the files
may say of a log is gone from them, durably, before another one begins under its name (`make_way`). Until then its rows wait
for the next write, of which a shell asks for one after any number of deletions (`drop_gone`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ottla.log.compaction.offsets import CleanedOffsets
from ottla.log.directories import roots
from ottla.log.directories.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.owned_offsets import OwnedOffsets, claim
from ottla.log.directories.saved_offsets import SavedOffsets
from ottla.log.log import Log
from ottla.log.names import TopicIdPartition, TopicPartition
from ottla.runtime.disk import Disk
from ottla.runtime.replaced_files import ReplacedFiles
from ottla.runtime.work_later import Later

BeforeTruncation = Callable[[Mapping[TopicIdPartition, int]], None]
"""Told to which offsets logs are about to be cut, where that is below what is saved of them."""


class Position(NamedTuple):
    """What is known of one log."""

    log_start_offset: int = 0
    high_watermark: int = 0
    recovery_point: int = 0


class ReadPositions(NamedTuple):
    """Positions as a directory's last process saved them."""

    start_offsets: OwnedOffsets
    high_watermarks: OwnedOffsets
    recovery_points: OwnedOffsets

    def of(self, partition: TopicPartition, topic_id: bytes | None) -> Position:
        """What was said of this topic's log: nothing of what was said of another topic of that name, or of who knows which."""
        if topic_id is None:
            return Position()
        key = TopicIdPartition(partition, topic_id)
        return Position(*(offsets.get(key, 0) for offsets in self))


_FILES = (LOG_START_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS)


class RootCheckpoints:
    """The checkpoints of all directories of a broker. ``every_log``: the manager's, with the copies of which nobody knows yet which counts.

    A file is written as a whole, so a log that is left out of it has lost what it said, and with it deleted records come back.
    """

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[DirectoryState],
        every_log: Callable[[], Iterable[Log]],
        write_later: Later,
        before_truncation: BeforeTruncation,
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._every_log = every_log
        self._write_later = write_later
        self._before_truncation = before_truncation
        self._replaced = ReplacedFiles(disk)
        self._syncing_cuts: set[DirectoryState] = set()
        self.cleaned = CleanedOffsets(disk)

    def claim(self, root: DirectoryState) -> None:
        """Says whose an older node's offsets are: after its clean stop, before the mark is taken, they are of the logs that lie there."""
        for name in _FILES:
            claim(self._disk, f"{root.path}/{name}", partial(roots.topic_ids, self._disk, root.path))

    def take_up(self, root: DirectoryState) -> ReadPositions:
        """Reads the checkpoints and keeps them from here on. OSError passes through."""
        read = ReadPositions(*(roots.read_checkpoint(self._disk, root.path, name) for name in _FILES))
        root.recovery_points = SavedOffsets(self._replaced, f"{root.path}/{RECOVERY_POINTS}", read.recovery_points)
        root.start_offsets = SavedOffsets(self._replaced, f"{root.path}/{LOG_START_OFFSETS}", read.start_offsets)
        root.high_watermarks = SavedOffsets(self._replaced, f"{root.path}/{HIGH_WATERMARKS}", read.high_watermarks)
        self.cleaned.take_up(root.path)
        root.gaps_to = partial(self.cleaned.gaps_to, root.path)
        root.lower_points = partial(self._lower_points, root)
        return read

    def save_points(self) -> None:
        """Writes ``recovery-point-offset-checkpoint`` and ``log-start-offset-checkpoint`` where they changed, later."""
        for root in self._directories:
            roots.guarded(self._disk, root, partial(self._save_points, root))

    def save_high_watermarks(self) -> None:
        """Writes ``replication-offset-checkpoint`` where a high watermark moved since the last time, later.

        Nothing while the last ones are being written: of two that wait `make_way` would know the later one only.
        """
        for root in self._directories:
            file = root.high_watermarks
            if root.watermarks_moved and root.failure is None and file is not None and not file.is_under_way:
                root.watermarks_moved = False
                offsets = _high_watermarks(self._logs_of(root))
                file.replace_later(offsets, self._write_later, partial(self._watermarks_saved, root))

    def make_way(self, root: DirectoryState, key: TopicIdPartition) -> None:
        """A log begins in this directory: of an earlier one, of which this is another replica, nothing may be left.

        Writes only where something may be, which a `drop_gone` after the deletion has mostly seen to. OSError passes through.
        """
        if any(file.highest(key) >= 0 for file in _kept(root)):
            gone = {**root.gone, key: None}
            for file in _kept(root):
                file.replace(_without(file.latest, gone))
            root.gone.clear()
        root.gone.pop(key, None)  # what is said of it from here on stays
        self.cleaned.make_way(root.path, key)

    def note_whole(self, log: Log, start_offset: int) -> None:
        """Says durably of a log that is not in service yet that all of it is stable, and where it begins if the names of its files do not.

        OSError passes through.
        """
        points, starts = log.root.recovery_points, log.root.start_offsets
        if starts is not None and start_offset > log.segments[0].base_offset:
            starts.replace({**starts.latest, log.key: start_offset})
        if points is not None and log.recovery_point:
            points.replace({**points.latest, log.key: log.recovery_point})

    def went(self, log: Log) -> None:
        """The log is not in its directory any more, under its name."""
        log.root.gone[log.key] = None
        log.root.watermarks_moved = True  # else its own stays written down for as long as no other moves
        self.cleaned.drop(log.root.path, log.key)

    def drop_gone(self) -> bool:
        """Has the rows of logs that went removed, later. False: a write was under way, and this must be asked again."""
        working = [root for root in self._directories if root.gone and root.failure is None]
        left = [root for root in working if not self._drop_gone(root)]
        return not left

    def _drop_gone(self, root: DirectoryState) -> bool:
        if any(file.is_under_way for file in _kept(root)):
            return False
        gone, root.gone = root.gone, {}
        on_done = partial(roots.note_failure, root)
        for file in _kept(root):
            file.replace_later(_without(file.latest, gone), self._write_later, on_done)
        if self.cleaned.has_dropped(root.path):
            self._write_later(partial(self.cleaned.write_dropped, root.path), on_done)
        return True

    def save_at_close(self, root: DirectoryState, logs: Sequence[Log]) -> None:
        """Writes all files now; all of ``logs`` is durable."""
        assert root.recovery_points is not None
        assert root.start_offsets is not None
        assert root.high_watermarks is not None
        root.recovery_points.replace({log.key: log.log_end_offset for log in logs if log.log_end_offset})
        root.start_offsets.replace(_start_offsets(logs))
        self.cleaned.write_dropped(root.path)
        root.high_watermarks.replace(_high_watermarks(logs))

    def _watermarks_saved(self, root: DirectoryState, error: OSError | None) -> None:
        if error is not None:
            root.watermarks_moved = True
            root.failed(error)

    def _save_points(self, root: DirectoryState) -> None:
        """Writes points and starts, later. Nothing while the last ones are being written: the next time will do."""
        points, start_offsets = root.recovery_points, root.start_offsets
        if points is None or start_offsets is None or points.is_under_way or start_offsets.is_under_way:
            return
        now, logs, may_rise = {}, self._logs_of(root), self._cuts_are_synced(root)
        for log in logs:
            point, saved = log.recovery_point, points.saved.get(log.key, 0)
            if point > saved:  # only there: settling costs syncs, and below the saved one everything is settled
                point = log.settle() if may_rise else saved
            if point:
                now[log.key] = point
        on_done = partial(roots.note_failure, root)
        points.replace_later(now, self._write_later, on_done)
        start_offsets.replace_later(_start_offsets(logs), self._write_later, on_done)

    def _cuts_are_synced(self, root: DirectoryState) -> bool:
        """Whether what earlier lives cut stays cut. If nobody knows, the whole file system is synced, later: of each log it would take
        two syncs."""
        if root.cuts_unsynced and root not in self._syncing_cuts:
            root.cuts_unsynced = False  # of what is cut from here on the next sync is to know
            self._syncing_cuts.add(root)
            self._write_later(partial(self._disk.sync_everything, root.path), partial(self._cuts_synced, root))
        return root not in self._syncing_cuts and not root.cuts_unsynced

    def _cuts_synced(self, root: DirectoryState, error: OSError | None) -> None:
        self._syncing_cuts.discard(root)
        if error is not None:
            root.cuts_unsynced = True
            root.failed(error)

    def _lower_points(self, root: DirectoryState, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Lowers what is saved, before truncations.

        These logs' points go down to their offsets, the others stay as they were saved.
        Nothing of these logs is clean any more: what is lay below the saved recovery point.
        """
        self._before_truncation(offsets)
        points, start_offsets = root.recovery_points, root.start_offsets
        assert points is not None
        assert start_offsets is not None
        points.replace({**points.latest, **{key: min(points.latest.get(key, 0), to) for key, to in offsets.items()}})
        lower = {key: to for key, to in offsets.items() if start_offsets.highest(key) > to}
        if lower:
            start_offsets.replace({**start_offsets.latest, **lower})
        # Last: if this goes and the cut does not come, a start that has lost the recovery point drops all behind the first gap.
        self.cleaned.forget(root.path, offsets)

    def _logs_of(self, root: DirectoryState) -> list[Log]:
        return [log for log in self._every_log() if log.root is root]


def _without(offsets: OwnedOffsets, gone: Mapping[TopicIdPartition, None]) -> OwnedOffsets:
    return {key: offset for key, offset in offsets.items() if key not in gone}


def _kept(root: DirectoryState) -> list[SavedOffsets]:
    return [file for file in (root.recovery_points, root.start_offsets, root.high_watermarks) if file is not None]


def _high_watermarks(logs: Sequence[Log]) -> OwnedOffsets:
    # Where there is no row, who reads the files without a node takes all that is in the log.
    return {log.key: log.high_watermark for log in logs if log.high_watermark or log.active.is_begun}


def _start_offsets(logs: Sequence[Log]) -> OwnedOffsets:
    """The log starts that no name on the disk says for sure."""
    return {log.key: log.log_start_offset for log in logs if log.log_start_offset > _named_start(log)}


def _named_start(log: Log) -> int:
    """Where the log begins by the names of its files: those that went may come back with a power cut until their directory is synced,
    which of a log that nobody writes to nobody does."""
    return log.segments[0].base_offset if log.names_are_durable and not log.half_done else 0
