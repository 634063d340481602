"""All logs of a broker: finding them at start, creating, deleting, and what is written about them at the root of each directory.

Several ``log.dirs`` may serve one broker. Each has its lock, its identity (meta.properties), its checkpoints and its own fate: one
that fails takes its partitions offline and no others. Nothing here waits or runs by itself: a shell calls on its timers.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple

import msgspec

from ottla.log.config import LogConfig
from ottla.log.directories import moves, roots
from ottla.log.directories.checkpoints import CleanShutdown
from ottla.log.directories.copies import furthest
from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.removals import Removals
from ottla.log.directories.root_checkpoints import BeforeTruncation, RootCheckpoints
from ottla.log.directories.roots import DELETE_SUFFIX, STRAY_SUFFIX, LogDirectoryError
from ottla.log.directories.space import has_changed
from ottla.log.durable_log import DurableLog
from ottla.log.errors import NOT_THE_DISK, StorageError
from ottla.log.log import Log
from ottla.log.names import METADATA_PARTITION, TopicIdPartition, TopicPartition
from ottla.log.segments.open_files import OPEN_FILES_MAX, OpenFiles
from ottla.runtime.disk import Disk, Lock
from ottla.runtime.errors import KafkaError
from ottla.runtime.work_later import Later, at_once

_logger = logging.getLogger(__name__)


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager is told of its node. Below ``free_bytes_floor`` a directory takes no more data; 0 turns that off."""

    cluster_id: str
    node_id: int
    open_files_max: int = OPEN_FILES_MAX
    free_bytes_floor: int = 256 << 20


class OfflineLog(NamedTuple):
    """What was open in a directory when that failed."""

    root: DirectoryState
    topic_id: bytes | None


class LogManager:
    """The logs of one broker. ``logs`` is for reading."""

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
        on_directory_failed: Callable[[DirectoryState, list[TopicPartition]], None] = lambda root, lost: None,
        before_truncation: BeforeTruncation = lambda offsets: None,
    ) -> None:
        """``write_later`` writes checkpoints, ``remove_later`` unlinks what was condemned: both may take long.
        ``on_directory_failed`` is told the directory and what was on it, once `open_all` is through."""
        self.disk = disk
        self.settings = settings
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, OfflineLog] = {}
        self.roots: list[DirectoryState] = []
        self._on_directory_failed = on_directory_failed
        self._is_open = False
        self._copies: dict[TopicPartition, list[Log]] = {}  # in other directories, until it is known what counts
        self._paths = list(directories)
        self._defaults = defaults
        self._rng = rng
        self.files = OpenFiles(disk, settings.open_files_max)
        self.checkpoints = RootCheckpoints(disk, self.roots, self._every_log, write_later, before_truncation)
        self.removals = Removals(disk, self.roots, self.logs, remove_later)
        self._locks: list[Lock] = []
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
            root = DirectoryState(path, self._on_failure)
            self.roots.append(root)
            try:
                self._locks.append(roots.lock(self.disk, path))
                root.directory_id = identities.check(self.disk, path)
            except OSError as error:
                self._log_failure(root, error)
        working = [root for root in self.roots if root.failure is None]
        failures = moves.settle(self.disk, [root.path for root in working])
        for root in working:
            try:
                if root.path in failures:
                    raise failures[root.path]
                self._open_root(root, now_ms, config_of or (lambda partition: self._defaults))
            except OSError as error:
                self._log_failure(root, error)
            except StorageError as error:
                self._log_failure(
                    root, error.__cause__ if isinstance(error.__cause__, OSError) else OSError(str(error))
                )
        self._is_open = True
        if all(root.failure for root in self.roots):
            raise LogDirectoryError(f"no log directory works: {self.roots[0].failure}")
        return self.logs

    def _log_failure(self, root: DirectoryState, error: OSError) -> None:
        if error.errno in NOT_THE_DISK:  # its records would be offline until somebody starts the node again
            raise LogDirectoryError(
                f"{root.path} cannot be opened, for want of descriptors (ulimit -n) or memory: {error}"
            )
        root.failed(error)
        if root.failure is None:  # for want of room; but it could not even be opened
            root.failure, root.writable = error, False
        self._forget_copies(root)  # opened before it failed
        for log in [log for log in self.logs.values() if log.root is root]:
            del self.logs[log.partition]
            self.offline[log.partition] = OfflineLog(root, log.topic_id)
            log.abandon()
        _logger.error("log directory %s failed: %s", root.path, error)

    def _open_root(self, root: DirectoryState, now_ms: int, config_of: Callable[[TopicPartition], LogConfig]) -> None:
        if CleanShutdown.is_marked(self.disk, root.path):
            self.checkpoints.claim(root)
        clean = CleanShutdown.take(self.disk, root.path)
        saved = self.checkpoints.take_up(root)
        found = roots.find(self.disk, root.path)
        for path in found.condemned:
            self.removals.add(now_ms, path, root)
        topic_ids: dict[bytes | None, bytes | None] = {}  # one object for all partitions of a topic
        for partition, path in found.partitions.items():
            topic_id = roots.read_topic_id(self.disk, path)
            topic_id = topic_ids.setdefault(topic_id, topic_id)
            position = saved.of(partition, topic_id)
            log = Log.open(
                self.disk,
                path,
                partition,
                config_of(partition),
                now_ms=now_ms,
                recovery_point=position.recovery_point,
                log_start_offset=position.log_start_offset,
                high_watermark=position.high_watermark,
                topic_id=topic_id,
                clean_shutdown=clean,
                files=self.files,
                root=root,
            )
            if partition in self.logs:
                _logger.warning("%s lies in %s and in %s", partition, self.logs[partition].directory, path)
                self._copies.setdefault(partition, []).append(log)
                root.partitions += 1
            else:
                self.add(log)
        if found.partitions:
            _logger.info("%s: %d logs after a %s stop", root.path, len(found.partitions), "clean" if clean else "hard")

    def close(self, broker_epoch: int = -1) -> None:
        """Makes every log durable, writes the checkpoints, and marks each directory that could do so as cleanly shut."""
        self.removals.finish_all()
        for root in self.roots:
            if root.failure is None:
                try:
                    self._close_root(root, broker_epoch)
                except (OSError, StorageError) as error:
                    _logger.error("%s: not closed cleanly: %s", root.path, error)
                    self._abandon_all(root)
        self.unlock()

    def _abandon_all(self, root: DirectoryState) -> None:
        for log in self._every_log():
            if log.root is root and not log.abandoned:
                with suppress(OSError):
                    log.abandon()

    def unlock(self) -> None:
        """Another process may have the directories. Twice does nothing."""
        locks, self._locks = self._locks, []
        for lock in locks:
            lock.release()

    def _close_root(self, root: DirectoryState, broker_epoch: int) -> None:
        logs = [log for log in self._every_log() if log.root is root]
        for log in logs:
            log.close_unsynced()
        self.disk.sync_everything(root.path)
        self.checkpoints.save_at_close(root, logs)
        if root.failure is None:  # a sync that was under way may have failed since
            CleanShutdown.write(self.disk, root.path, broker_epoch)

    def add(self, log: Log) -> None:
        """Makes this the partition's log."""
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
        while a directory is lost that may hold it: an empty log in its place, or an old one, could pass for the whole.
        """
        if partition in self._copies:
            self._settle_copies(partition, topic_id, directory_id)
        log = self.logs.get(partition)
        if log is not None and log.topic_id == topic_id:
            if not is_new:
                self._refuse_old(log, directory_id)
            return log
        if log is not None:
            self.set_aside(log)
        elif partition in self.offline:
            self._refuse_offline(partition, topic_id)
        return self._create(self._choose(directory_id, is_new), partition, config, topic_id, now_ms)

    def _settle_copies(self, partition: TopicPartition, topic_id: bytes, directory_id: bytes | None) -> None:
        """The one that counts is the partition's log from here on, the others are kept under other names."""
        logs = self._copies.pop(partition)
        if partition in self.logs:
            logs.append(self.logs.pop(partition))
        found = furthest([log for log in logs if log.topic_id == topic_id], directory_id)
        for log in logs:
            if log is not found:
                try:
                    self.set_aside(log)
                except StorageError as error:
                    _logger.error("%s: %s stays where it is: %s", partition, log.directory, error.message)
        if found is not None:
            self.logs[partition] = found
            self.offline.pop(partition, None)

    def _refuse_offline(self, partition: TopicPartition, topic_id: bytes) -> None:
        """Raises StorageError for a log that is lost; that of an earlier topic, should it come back, is set aside then."""
        lost = self.offline[partition]
        if lost.topic_id == topic_id:
            lost.root.refuse()
        del self.offline[partition]

    def _refuse_old(self, log: Log, directory_id: bytes | None) -> None:
        """Raises StorageError for what a directory that came back holds, while the one that counts is lost."""
        lost = [root.path for root in self.roots if root.failure]
        working = [root.directory_id for root in self.roots if not root.failure]
        if lost and directory_id is not None and directory_id[:15] != bytes(15) and directory_id not in working:
            raise StorageError(f"{log.directory} may be old: the one that counts may lie in {lost[0]}, which failed")

    def _choose(self, directory_id: bytes | None, is_new: bool) -> DirectoryState:
        """Wherever the metadata say that it lies: it may have moved since, and its node died before it could tell."""
        lost = [root.path for root in self.roots if root.failure]
        if lost and not is_new:
            raise StorageError(f"it may lie in {lost[0]}, which failed")
        for root in self.roots:
            if directory_id is not None and root.directory_id == directory_id:
                return root
        working = [root for root in self.roots if root.writable] or [root for root in self.roots if not root.failure]
        if not working:
            raise StorageError("no log directory works")
        return min(working, key=lambda root: root.partitions)

    def _create(
        self, root: DirectoryState, partition: TopicPartition, config: LogConfig, topic_id: bytes, now_ms: int
    ) -> Log:
        if partition.topic == METADATA_PARTITION.topic:
            raise StorageError(f"{partition} is the metadata log's name, and no topic's")
        if not root.writable:
            root.refuse()
        path = f"{root.path}/{partition}"
        try:
            self._vacate(root, partition, path, topic_id)
            self.checkpoints.make_way(root, TopicIdPartition(partition, topic_id))
            log = self._begin(root, partition, path, config, topic_id, now_ms)
        except OSError as error:
            raise root.failed(error) from error
        self.add(log)
        return log

    def _vacate(self, root: DirectoryState, partition: TopicPartition, path: str, topic_id: bytes) -> None:
        """What lies where a log is to be may be of a topic that went, and could not be renamed then.

        Or it is a beginning that failed and could not be removed, which is as good as a new one.
        """
        self.removals.finish(path)
        if not self.disk.exists(path):
            return
        owner = roots.read_topic_id(self.disk, path)
        if owner != topic_id and (owner is not None or roots.has_records(self.disk, path)):
            self.disk.rename(path, self.retired_path(root, partition, STRAY_SUFFIX))
            _logger.warning("%s: what was left of another log is set aside", partition)

    def _begin(
        self,
        root: DirectoryState,
        partition: TopicPartition,
        path: str,
        config: LogConfig,
        topic_id: bytes,
        now_ms: int,
    ) -> Log:
        """A new log is there as a whole or, if something fails, not at all. Raises StorageError."""
        log, new = None, not self.disk.exists(path)
        try:
            log = Log.open(self.disk, path, partition, config, now_ms=now_ms, files=self.files, root=root)
            log.set_topic_id(topic_id)
        except StorageError:
            if log is not None:
                log.abandon()
            if new:
                with suppress(OSError):  # else the next attempt, or the next start, sets it aside
                    self.disk.remove_tree(path)
            raise
        return log

    def make_way(self, root: DirectoryState, key: TopicIdPartition) -> None:
        """Clears a directory of what is written about a log of that key, before one begins: see `RootCheckpoints.make_way`.

        Raises StorageError.
        """
        try:
            self.checkpoints.make_way(root, key)
        except OSError as error:
            raise root.failed(error) from error

    def delete(self, partition: TopicPartition, now_ms: int, topic_id: bytes | None = None) -> None:
        """Removes the partition: its directory gets another name now, and goes after the delay (`Removals`). So do its copies.

        ``now_ms`` is wall time, ``topic_id`` whose logs go, if not any topic's. Nothing happens for a partition that is not here.
        Raises StorageError: then what failed gets the name later.
        """
        self.offline.pop(partition, None)
        logs = [self.logs[partition]] if partition in self.logs else []
        refused: StorageError | None = None
        for log in [*logs, *self._copies.get(partition, ())]:
            if topic_id is None or log.topic_id == topic_id:
                try:
                    self._delete(log, now_ms)
                except StorageError as error:
                    refused = refused or error
        if refused is not None:
            raise refused

    def _delete(self, log: Log, now_ms: int) -> None:
        self._take_out(log)
        path = self.retired_path(log.root, log.partition, DELETE_SUFFIX)
        try:
            self.removals.retire(now_ms + log.config.file_delete_delay_ms, log, path)
        except OSError as error:
            raise log.root.failed(error) from error

    def set_aside(self, log: Log) -> str:
        """Takes a log that nobody claims out of service and keeps its files under another name, which is returned."""
        self._take_out(log)
        path = self.retired_path(log.root, log.partition, STRAY_SUFFIX)
        try:
            self.disk.rename(log.directory, path)
        except OSError as error:
            raise log.root.failed(error) from error
        _logger.warning("%s: stray log set aside as %s", log.partition, path)
        return path

    def strays(self, is_ours: Callable[[TopicPartition, bytes | None], bool]) -> list[Log]:
        """Logs of which ``is_ours(partition, topic id)`` says no: once, when the metadata was read after the start."""
        return [log for log in self._every_log() if not is_ours(log.partition, log.topic_id)]

    def _every_log(self) -> list[Log]:
        return [*self.logs.values(), *(copy for copies in self._copies.values() for copy in copies)]

    def _take_out(self, log: Log) -> None:
        log.abandon()
        if self.logs.get(log.partition) is log:
            del self.logs[log.partition]
        elif log.partition in self._copies:  # a stray: whoever takes the name next must not look for it again
            left = [copy for copy in self._copies.pop(log.partition) if copy is not log]
            self._copies.update({log.partition: left} if left else {})
        log.root.forget(log)
        self.checkpoints.went(log)

    def retired_path(self, root: DirectoryState, partition: TopicPartition, suffix: str) -> str:
        """A new name in the directory, for a partition that is not (or not yet) in service under it."""
        return f"{root.path}/{roots.retired_name(partition, self._rng.randbytes(16).hex(), suffix)}"

    def _on_failure(self, root: DirectoryState) -> None:
        if not self._is_open:
            return  # `_log_failure` follows
        self._forget_copies(root)
        lost = [log for log in self.logs.values() if log.root is root]
        for log in lost:
            del self.logs[log.partition]
            self.offline[log.partition] = OfflineLog(root, log.topic_id)
            try:
                log.abandon()
            except OSError:
                continue  # its files are beyond closing
        _logger.error("log directory %s failed, %d partitions are offline: %s", root.path, len(lost), root.failure)
        self._on_directory_failed(root, [log.partition for log in lost])

    def _forget_copies(self, root: DirectoryState) -> None:
        """What lies in a directory that failed is not chosen."""
        for partition, copies in self._copies.items():
            self._copies[partition] = [copy for copy in copies if copy.root is not root]

    # What a shell calls on its timers

    def delete_old_segments(self, now_ms: int, count_max: int | None = None) -> list[Log]:
        """Retention for all logs, or for the next ``count_max`` in turn; returns those of which segments were condemned."""
        if not self._retention_queue:
            self._retention_queue = list(reversed(self.logs))
        shortened: list[Log] = []
        for _ in range(len(self._retention_queue) if count_max is None else min(count_max, len(self._retention_queue))):
            log = self.logs.get(self._retention_queue.pop())
            if log is not None:
                try:
                    if log.delete_old_segments(now_ms):
                        shortened.append(log)
                except KafkaError as error:  # of this log alone, or of a directory that is offline by now
                    _logger.warning("%s: retention: %s", log.partition, error)
        return shortened

    def check_space(self) -> list[DirectoryState]:
        """Looks whether each directory is there and at its free space; returns those that are full, or take data again."""
        floor = self.settings.free_bytes_floor
        return [root for root in self.roots if root.failure is None and has_changed(self.disk, root, floor)]

    def due_flushes(self, now_ms: int) -> list[Log]:
        """Logs that ``flush.messages`` or ``flush.ms`` want synced now."""
        flushed = [log for root in self.roots if root.failure is None for log in self._in_service(root.flushed)]
        return [log for log in flushed if log.flush_is_due(now_ms)]

    def rolled_logs(self) -> list[Log]:
        """Logs with closed segments that are not synced yet: sync `Log.unsynced`, until they are not here any more."""
        return [log for root in self.roots if root.failure is None for log in self._in_service(root.rolled)]

    def _in_service(self, logs: Iterable[DurableLog]) -> list[Log]:
        """Not the copies of logs that move: a move syncs its own, and ends some time after its log was deleted."""
        return [log for each in logs if (log := self.logs.get(each.partition)) is not None and log is each]
