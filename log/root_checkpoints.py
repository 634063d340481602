"""What is written about all logs of a directory at its root: recovery points, log starts, high watermarks."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ottla.log import roots
from ottla.log.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, offset_table
from ottla.log.directory import DirectoryState
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.saved_offsets import SavedOffsets
from ottla.runtime.disk import Disk
from ottla.runtime.replaced_files import ReplacedFiles
from ottla.runtime.work_later import Later, Work


class ReadPositions(NamedTuple):
    """As a directory's last process saved them."""

    start_offsets: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    recovery_points: dict[TopicPartition, int]


class RootCheckpoints:
    """Of all directories of a broker. ``logs`` are the manager's, as they are at the time."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[DirectoryState],
        logs: Mapping[TopicPartition, Log],
        write_later: Later,
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._logs = logs
        self._write_later = write_later
        self._replaced = ReplacedFiles(disk)

    def take_up(self, root: DirectoryState) -> ReadPositions:
        """Reads the checkpoints and keeps them from here on. OSError passes through."""
        names = (LOG_START_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS)
        read = ReadPositions(*(roots.read_checkpoint(self._disk, root.path, name) for name in names))
        root.recovery_points = SavedOffsets(self._replaced, f"{root.path}/{RECOVERY_POINTS}", read.recovery_points)
        root.start_offsets = SavedOffsets(self._replaced, f"{root.path}/{LOG_START_OFFSETS}", read.start_offsets)
        root.lower_points = partial(self._lower_points, root)
        return read

    def save_points(self) -> None:
        """Writes ``recovery-point-offset-checkpoint`` and ``log-start-offset-checkpoint`` where they changed, later."""
        for root in self._directories:
            roots.guarded(self._disk, root, partial(self._save_points, root))

    def save_high_watermarks(self) -> None:
        """Writes ``replication-offset-checkpoint`` where a high watermark moved since the last time, later."""
        for root in self._directories:
            if root.watermarks_moved and root.failure is None:
                root.watermarks_moved = False
                self._write_later(self._high_watermarks(root), partial(self._watermarks_saved, root))

    def save_at_close(self, root: DirectoryState, logs: Sequence[Log]) -> None:
        """Now, and all of ``logs`` is durable."""
        assert root.recovery_points is not None
        assert root.start_offsets is not None
        root.recovery_points.replace({log.partition: log.log_end_offset for log in logs})
        root.start_offsets.replace(self._start_offsets(root))
        self._high_watermarks(root)()

    def _watermarks_saved(self, root: DirectoryState, error: OSError | None) -> None:
        if error is not None:
            root.watermarks_moved = True
            root.failed(error)

    def _save_points(self, root: DirectoryState) -> None:
        """Nothing while the last ones are being written: the next time will do."""
        points, start_offsets = root.recovery_points, root.start_offsets
        if points is None or start_offsets is None or points.is_under_way or start_offsets.is_under_way:
            return
        now = {}
        for log in self._logs_of(root):
            # Settling costs syncs, so only where the point goes up: below the saved one everything is settled.
            moved = log.recovery_point > points.saved.get(log.partition, 0)
            now[log.partition] = log.settle() if moved else log.recovery_point
        on_done = partial(roots.note_failure, root)
        points.replace_later(now, self._write_later, on_done)
        start_offsets.replace_later(self._start_offsets(root), self._write_later, on_done)

    def _start_offsets(self, root: DirectoryState) -> dict[TopicPartition, int]:
        """Where it is not the first segment's base offset."""
        return {
            log.partition: log.log_start_offset
            for log in self._logs_of(root)
            if log.log_start_offset > log.segments[0].base_offset
        }

    def _lower_points(self, root: DirectoryState, partition: TopicPartition, offset: int) -> None:
        """Before a truncation: one partition's points go down to ``offset``, the others stay as they were saved."""
        points, start_offsets = root.recovery_points, root.start_offsets
        assert points is not None
        assert start_offsets is not None
        points.replace({**points.latest, partition: min(points.latest.get(partition, 0), offset)})
        if start_offsets.highest(partition) > offset:
            start_offsets.replace({**start_offsets.latest, partition: offset})

    def _high_watermarks(self, root: DirectoryState) -> Work:
        offsets = {log.partition: log.high_watermark for log in self._logs_of(root)}
        return self._replaced.prepare(f"{root.path}/{HIGH_WATERMARKS}", lambda: offset_table(offsets))

    def _logs_of(self, root: DirectoryState) -> list[Log]:
        return [log for log in self._logs.values() if log.root is root]
