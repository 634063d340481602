"""All logs of a broker: finding them at start, creating, deleting, and what is written about them at the root of each directory.

Several ``log.dirs`` may serve one broker. Each has its lock, its identity (meta.properties), its checkpoints and its own fate: one
that fails takes its partitions offline and no others. Nothing here waits or runs by itself: a shell calls on its timers.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random

import msgspec

from ottla.log import moves, roots
from ottla.log.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, CleanShutdown, offset_table
from ottla.log.config import LogConfig
from ottla.log.directory import DirectoryState
from ottla.log.errors import StorageError
from ottla.log.files import OPEN_FILES_MAX, OpenFiles
from ottla.log.log import Log
from ottla.log.moves import FutureLog
from ottla.log.names import TopicPartition
from ottla.log.roots import DELETE_SUFFIX, STRAY_SUFFIX, LogDirectoryError
from ottla.log.saved_offsets import SavedOffsets
from ottla.runtime.disk import Disk, Lock
from ottla.runtime.errors import KafkaError
from ottla.runtime.replaced_files import ReplacedFiles
from ottla.runtime.work_later import Later, Work, at_once

_logger = logging.getLogger(__name__)


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes and milliseconds. Below ``free_bytes_floor`` a directory takes no more data; 0 turns that off."""

    cluster_id: str
    node_id: int
    open_files_max: int = OPEN_FILES_MAX
    free_bytes_floor: int = 256 << 20
    file_delete_delay_ms: int = 60_000


class LogManager:
    """The logs of one broker. ``logs`` is for reading; ``on_directory_failed`` is told the directory and what was on it."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        defaults: LogConfig,
        settings: ManagerSettings,
        rng: Random,
        *,
        write_later: Later = at_once,
        remove_later: Later = at_once,
    ) -> None:
        """``write_later`` writes checkpoints, ``remove_later`` unlinks what was condemned: both may take long."""
        self.disk = disk
        self.settings = settings
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, DirectoryState] = {}
        self.roots: list[DirectoryState] = []
        self.on_directory_failed: Callable[[DirectoryState, list[TopicPartition]], None] | None = None
        self._paths = list(directories)
        self._defaults = defaults
        self._rng = rng
        self._files = OpenFiles(disk, settings.open_files_max)
        self._replaced = ReplacedFiles(disk)
        self._write_later = write_later
        self._remove_later = remove_later
        self._locks: list[Lock] = []
        self._condemned: list[tuple[int, str, DirectoryState]] = []  # partition directories: when to remove, path
        self._retention_queue: list[TopicPartition] = []

    # Starting and stopping

    def open_all(
        self, now_ms: int, config_of: Callable[[TopicPartition], LogConfig] | None = None
    ) -> dict[TopicPartition, Log]:
        """Locks and checks every directory and opens every log in it. ``now_ms`` is wall time.

        Raises LogDirectoryError, one line for the user: a directory of another cluster or node, not formatted, in use,
        or none left that works.
        """
        identities = roots.Identities(self.settings.cluster_id, self.settings.node_id)
        for path in self._paths:
            root = DirectoryState(path)
            self.roots.append(root)
            try:
                self._locks.append(roots.lock(self.disk, path))
                root.directory_id = identities.check(self.disk, path)
            except OSError as error:
                self._log_failure(root, error)
        working = [root for root in self.roots if root.failure is None]
        moves.settle(self.disk, [root.path for root in working])
        for root in working:
            try:
                self._open_root(root, now_ms, config_of or (lambda partition: self._defaults))
            except OSError as error:
                self._log_failure(root, error)
            except StorageError:
                pass  # the directory noted its failure already
        for root in self.roots:
            root.on_failure = self._on_failure
        if all(root.failure for root in self.roots):
            raise LogDirectoryError(f"no log directory works: {self.roots[0].failure}")
        return self.logs

    def _log_failure(self, root: DirectoryState, error: OSError) -> None:
        root.failed(error)
        if root.failure is None:  # for want of room; but it could not even be opened
            root.failure = error
        _logger.error("log directory %s failed: %s", root.path, error)

    def _open_root(self, root: DirectoryState, now_ms: int, config_of: Callable[[TopicPartition], LogConfig]) -> None:
        clean = CleanShutdown.take(self.disk, root.path)
        start_offsets, high_watermarks = (
            roots.read_checkpoint(self.disk, root.path, name) for name in (LOG_START_OFFSETS, HIGH_WATERMARKS)
        )
        recovery_points = roots.read_checkpoint(self.disk, root.path, RECOVERY_POINTS)
        root.recovery_points = SavedOffsets(self._replaced, f"{root.path}/{RECOVERY_POINTS}", recovery_points)
        root.start_offsets = SavedOffsets(self._replaced, f"{root.path}/{LOG_START_OFFSETS}", start_offsets)
        root.lower_points = lambda partition, offset: self._lower_points(root, partition, offset)
        found = roots.find(self.disk, root.path)
        for path in found.condemned:
            self._condemned.append((now_ms, path, root))
        for partition, path in found.partitions.items():
            if partition in self.logs:
                other = self.logs[partition].directory
                raise LogDirectoryError(f"{partition} lies in {path} and in {other}: move one of them away")
            log = Log.open(
                self.disk,
                path,
                partition,
                config_of(partition),
                now_ms=now_ms,
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=start_offsets.get(partition, 0),
                high_watermark=high_watermarks.get(partition, 0),
                clean_shutdown=clean,
                files=self._files,
                root=root,
            )
            self._add(log)
        if found.partitions:
            _logger.info("%s: %d logs after a %s stop", root.path, len(found.partitions), "clean" if clean else "hard")

    def close(self, broker_epoch: int = -1) -> None:
        """Makes every log durable, writes the checkpoints, and marks each directory that could do so as cleanly shut."""
        for root in self.roots:
            if root.failure is None:
                try:
                    self._close_root(root, broker_epoch)
                except (OSError, StorageError) as error:
                    _logger.error("%s: not closed cleanly: %s", root.path, error)
        for lock in self._locks:
            lock.release()

    def _close_root(self, root: DirectoryState, broker_epoch: int) -> None:
        logs = self._logs_of(root)
        for log in logs:
            log.close_unsynced()
        self.disk.sync_everything(root.path)
        assert root.recovery_points is not None
        assert root.start_offsets is not None
        root.recovery_points.replace({log.partition: log.log_end_offset for log in logs})
        root.start_offsets.replace(self._start_offsets(root))
        self._high_watermarks(root)()
        CleanShutdown.write(self.disk, root.path, broker_epoch)

    def _add(self, log: Log) -> None:
        self.logs[log.partition] = log
        log.root.partitions += 1

    # Partitions

    def get_or_create(
        self,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: bytes,
        directory_id: bytes | None = None,
        *,
        now_ms: int,
        is_new: bool = True,
    ) -> Log:
        """The partition's log. A new one goes to the directory asked for, or to the one with the fewest partitions.

        A log of another topic that had this name is set aside first. Raises StorageError when the partition's directory, or
        every directory, takes nothing; also for a partition that is not new (``is_new``: nobody counts on its records here)
        while a directory is lost that may hold it: an empty log in its place could pass for the whole.
        """
        log = self.logs.get(partition)
        if log is not None and log.topic_id == topic_id:
            return log
        if log is not None:
            self.set_aside(log)
        elif partition in self.offline:
            self.offline[partition].refuse()
        return self._create(self._choose(directory_id, is_new), partition, config, topic_id, now_ms)

    def _choose(self, directory_id: bytes | None, is_new: bool) -> DirectoryState:
        for root in self.roots:
            if directory_id is not None and root.directory_id == directory_id:
                return root
        lost = [root.path for root in self.roots if root.failure]
        if lost and not is_new:
            raise StorageError(f"it may lie in {lost[0]}, which failed")
        working = [root for root in self.roots if root.writable] or [root for root in self.roots if not root.failure]
        if not working:
            raise StorageError("no log directory works")
        return min(working, key=lambda root: root.partitions)

    def _create(
        self, root: DirectoryState, partition: TopicPartition, config: LogConfig, topic_id: bytes, now_ms: int
    ) -> Log:
        if not root.writable:
            root.refuse()
        path = f"{root.path}/{partition}"
        log = Log.open(self.disk, path, partition, config, now_ms=now_ms, files=self._files, root=root)
        log.set_topic_id(topic_id)
        self._add(log)
        return log

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Removes the partition: its directory gets another name now, and goes with `purge` after the delay.

        ``now_ms`` is wall time. Nothing happens for a partition that is not here. Raises StorageError.
        """
        log = self.logs.get(partition)
        if log is None:
            self.offline.pop(partition, None)
            return
        path = self._rename(log, DELETE_SUFFIX)
        self._condemned.append((now_ms + self.settings.file_delete_delay_ms, path, log.root))

    def set_aside(self, log: Log) -> str:
        """Takes a log that nobody claims out of service and keeps its files under another name, which is returned."""
        path = self._rename(log, STRAY_SUFFIX)
        _logger.warning("%s: stray log set aside as %s", log.partition, path)
        return path

    def strays(self, is_ours: Callable[[TopicPartition, bytes | None], bool]) -> list[Log]:
        """Logs of which ``is_ours(partition, topic id)`` says no: once, when the metadata was read after the start."""
        return [log for log in self.logs.values() if not is_ours(log.partition, log.topic_id)]

    def begin_move(self, log: Log, root: DirectoryState, now_ms: int) -> FutureLog:
        """A copy of the log begins in another directory. Raises StorageError."""
        if not root.writable:
            root.refuse()
        name = roots.retired_name(log.partition, self._rng.randbytes(16).hex(), roots.FUTURE_SUFFIX)
        start = log.log_start_offset
        copy = Log.open(
            self.disk, f"{root.path}/{name}", log.partition, log.config,
            now_ms=now_ms, log_start_offset=start, files=self._files, root=root,
        )  # fmt: skip
        assert log.topic_id is not None
        copy.set_topic_id(log.topic_id)
        root.partitions += 1
        return FutureLog(log, copy)

    def end_move(self, move: FutureLog, now_ms: int) -> None:
        """Gives the copy up: its files go with `purge`. Nothing is raised: it may be for its disk's sake."""
        copy = move.copy
        copy.root.forget(copy)
        self._guarded(copy.root, copy.abandon)
        self._condemned.append((now_ms, copy.directory, copy.root))

    def finish_move(self, move: FutureLog, now_ms: int) -> Log:
        """The copy takes the log's place. Raises StorageError, and then the log is as it was."""
        source, copy = move.source, move.copy
        root, partition = copy.root, source.partition
        target = f"{root.path}/{partition}"
        move.complete()
        try:
            moves.mark(self.disk, source.directory, copy.directory, target)
        except OSError as error:
            raise source.root.failed(error) from error
        try:
            self.disk.rename(copy.directory, target)
            self.disk.sync_directory(root.path)
            log = Log.open(
                self.disk, target, partition, source.config, now_ms=now_ms, log_start_offset=source.log_start_offset,
                high_watermark=source.high_watermark, clean_shutdown=True, files=self._files, root=root,
            )  # fmt: skip
        except (OSError, StorageError) as error:
            with suppress(OSError):
                moves.unmark(self.disk, source.directory)
            raise root.failed(error) if isinstance(error, OSError) else error from error
        log.producers = source.producers  # it also knows producers whose batches are gone
        root.forget(copy)
        self.delete(partition, now_ms)
        self._add(log)
        return log

    def _rename(self, log: Log, suffix: str) -> str:
        log.abandon()
        del self.logs[log.partition]
        root = log.root
        root.forget(log)
        path = f"{root.path}/{roots.retired_name(log.partition, self._rng.randbytes(16).hex(), suffix)}"
        try:
            self.disk.rename(log.directory, path)
        except OSError as error:
            raise root.failed(error) from error
        return path

    def _on_failure(self, root: DirectoryState) -> None:
        lost = [log for log in self.logs.values() if log.root is root]
        for log in lost:
            del self.logs[log.partition]
            self.offline[log.partition] = root
            try:
                log.abandon()
            except OSError:
                continue  # its files are beyond closing
        _logger.error("log directory %s failed, %d partitions are offline: %s", root.path, len(lost), root.failure)
        if self.on_directory_failed is not None:
            self.on_directory_failed(root, [log.partition for log in lost])

    # What a shell calls on its timers

    def delete_old_segments(self, now_ms: int, count_max: int | None = None) -> int:
        """Retention for all logs, or for the next ``count_max`` in turn; returns how many segments were condemned."""
        if not self._retention_queue:
            self._retention_queue = list(reversed(self.logs))
        deleted = 0
        for _ in range(len(self._retention_queue) if count_max is None else min(count_max, len(self._retention_queue))):
            log = self.logs.get(self._retention_queue.pop())
            if log is not None:
                try:
                    deleted += len(log.delete_old_segments(now_ms))
                except KafkaError as error:  # of this log alone, or of a directory that is offline by now
                    _logger.warning("%s: retention: %s", log.partition, error)
        return deleted

    def purge(self, now_ms: int) -> None:
        """Removes, later, condemned files and directories whose delay is over."""
        for root in self.roots:
            condemned = [self.logs[log.partition] for log in root.condemned] if root.failure is None else []
            for path in [path for log in condemned for path in log.take_due(now_ms)]:
                self._remove_later(partial(_unlink, self.disk, path), partial(_note_failure, root))
        due = [entry for entry in self._condemned if entry[0] <= now_ms]
        self._condemned = [entry for entry in self._condemned if entry[0] > now_ms]
        for _, path, root in due:
            if root.failure is None:
                self._remove_later(partial(self.disk.remove_tree, path), partial(_note_failure, root))

    def _guarded(self, root: DirectoryState, action: Callable[[], object]) -> None:
        """Runs ``action``; an error of the disk is the directory's."""
        if root.failure is not None:
            return
        try:
            roots.check_presence(self.disk, root.path)
            action()
        except OSError as error:
            root.failed(error)
        except StorageError as error:
            _logger.warning("%s", error)

    def check_space(self) -> list[DirectoryState]:
        """Looks whether each directory is there and at its free space; returns those that are full, or take data again."""
        changed = []
        for root in self.roots:
            if root.failure is None and self._check_space(root):
                changed.append(root)
        return changed

    def _check_space(self, root: DirectoryState) -> bool:
        floor = self.settings.free_bytes_floor
        try:
            roots.check_presence(self.disk, root.path)
            free = self.disk.free_bytes(root.path)
        except OSError as error:
            root.failed(error)
            return False
        # A little above the floor before it takes data again, or it would flutter with every deleted segment.
        full = free < (floor + floor // 8 if root.full else floor) or (root.full and floor == 0 and free == 0)
        if full == root.full and root.writable is not full:
            return False
        root.set_full(full)
        _logger.warning(
            "%s: %d MB free: %s", root.path, free >> 20, "takes no more data" if full else "takes data again"
        )
        return True

    def due_flushes(self, now_ms: int) -> list[Log]:
        """Logs that ``flush.messages`` or ``flush.ms`` want synced now."""
        flushed = [self.logs[log.partition] for root in self.roots if root.failure is None for log in root.flushed]
        return [log for log in flushed if log.flush_is_due(now_ms)]

    def rolled_logs(self) -> list[Log]:
        """Logs with closed segments that are not synced yet: sync `Log.unsynced`, until they are not here any more."""
        return [self.logs[log.partition] for root in self.roots if root.failure is None for log in root.rolled]

    # Checkpoints

    def checkpoint_recovery_points(self) -> None:
        """Writes ``recovery-point-offset-checkpoint`` and ``log-start-offset-checkpoint`` where they changed, later."""
        for root in self.roots:
            self._guarded(root, lambda root=root: self._save_points(root))  # type: ignore[misc]

    def checkpoint_high_watermarks(self) -> None:
        """Writes ``replication-offset-checkpoint`` where a high watermark moved since the last time, later."""
        for root in self.roots:
            if root.watermarks_moved and root.failure is None:
                root.watermarks_moved = False
                self._write_later(self._high_watermarks(root), partial(self._watermarks_saved, root))

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
        on_done = partial(_note_failure, root)
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
        return [log for log in self.logs.values() if log.root is root]


def _unlink(disk: Disk, path: str) -> None:
    """The whole partition may have been renamed meanwhile: then its files go with its directory."""
    if disk.exists(path):
        with suppress(FileNotFoundError):
            disk.unlink(path)


def _note_failure(root: DirectoryState, error: OSError | None) -> None:
    if error is not None:
        root.failed(error)
