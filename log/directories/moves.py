"""Moving a log to another directory: a copy grows beside it, catches up, and takes its place (KIP-113).

The copy lies in ``<topic>-<partition>.<unique>-future``. When it is complete and durable the old directory is marked; from then on a
crash leaves the copy as the log, before it the old one. Nothing is appended between the mark and the exchange. A disk without room for a mark is
left all the same: a crash in the exchange leaves two logs with the same end then, and either is the whole.
"""

import itertools
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.log.directories import roots
from ottla.log.directories.directory import DirectoryState
from ottla.log.errors import NO_ROOM, StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.runtime.disk import Disk

if TYPE_CHECKING:
    from ottla.log.directories.manager import LogManager

_logger = logging.getLogger(__name__)


class FutureLog:
    """A log's copy in another directory, until it has everything."""

    def __init__(self, source: Log, copy: Log) -> None:
        self.source = source
        self.copy = copy
        self._generation = source.generation

    @property
    def lag(self) -> int:
        """Offsets that the copy does not have yet."""
        return self.source.log_end_offset - self.copy.log_end_offset

    @property
    def unsynced_bytes(self) -> int:
        """About how much of the copy is not on stable storage. Raises StorageError."""
        return self.copy.bytes_between(self.copy.recovery_point, self.copy.log_end_offset)

    def copy_some(self, max_bytes: int) -> bool:
        """Copies up to about ``max_bytes``; True when there is nothing more. Raises KafkaError of either directory."""
        source, copy = self.source, self.copy
        source.make_whole()  # else it may end elsewhere, and have other epochs, than what was copied of it
        if source.generation != self._generation:  # it was truncated: what was copied may not be in it any more
            self._generation = source.generation
            copy.truncate_fully_and_start_at(source.log_start_offset)
        if copy.log_end_offset < source.log_start_offset:
            copy.truncate_fully_and_start_at(source.log_start_offset)
        if copy.log_end_offset >= source.log_end_offset:
            return True
        data = source.read(copy.log_end_offset, max_bytes).data
        if not data:
            return True
        copy.append_as_follower(data)
        return False

    def complete(self) -> None:
        """What the batches do not tell; then the copy is closed, durably. Raises StorageError."""
        self.copy.adopt_epochs(self.source.epochs.entries())
        self.copy.producers = self.source.producers  # it also knows producers whose batches are gone
        self.copy.close()


def begin_move(manager: "LogManager", log: Log, root: DirectoryState, now_ms: int) -> FutureLog:
    """A copy of the log begins in another directory. Raises StorageError."""
    if not root.writable:
        root.refuse()
    path = manager.retired_path(root, log.partition, roots.FUTURE_SUFFIX)
    start = log.log_start_offset
    _clear(manager, root, log.partition)
    manager.make_way(root, log.key)  # it may have lain here before
    copy = None
    try:
        copy = Log.open(
            manager.disk, path, log.partition, log.config,
            now_ms=now_ms, log_start_offset=start, files=manager.files, root=root,
        )  # fmt: skip
        assert log.topic_id is not None
        copy.set_topic_id(log.topic_id)
    except StorageError:
        if copy is not None:
            copy.abandon()
        manager.removals.add(now_ms, path, root)
        raise
    root.partitions += 1
    return FutureLog(log, copy)


def _clear(manager: "LogManager", root: DirectoryState, partition: TopicPartition) -> None:
    """What lies where the copy is to go is nobody's: an earlier move, or start, could not rename it. Kept as any stray. Raises StorageError."""
    place = f"{root.path}/{partition}"
    try:
        manager.removals.finish(place)
        if manager.disk.exists(place):
            manager.disk.rename(place, manager.retired_path(root, partition, roots.STRAY_SUFFIX))
            _logger.warning("%s: what was left of an earlier log is set aside", place)
    except OSError as error:
        raise root.failed(error) from error


def end_move(manager: "LogManager", move: FutureLog, now_ms: int) -> None:
    """Gives the copy up: its files go with `LogManager.purge`. Nothing is raised: it may be for its disk's sake."""
    copy = move.copy
    copy.root.forget(copy)
    try:
        copy.abandon()
    except OSError as error:
        copy.root.failed(error)
    manager.removals.add(now_ms, copy.directory, copy.root)


def finish_move(manager: "LogManager", move: FutureLog, now_ms: int) -> Log:
    """The copy takes the log's place. Raises StorageError, and then the log is as it was."""
    disk, source, copy = manager.disk, move.source, move.copy
    root, partition = copy.root, source.partition
    target = f"{root.path}/{partition}"
    move.complete()
    try:
        # Or what was deleted comes back with a crash, and all is scanned. From what compaction left no scan knows where an epoch began.
        manager.checkpoints.note_whole(copy, source.log_start_offset)
    except OSError as error:
        raise root.failed(error) from error
    is_marked = _mark(disk, move, target)
    try:
        disk.rename(copy.directory, target)
        disk.sync_directory(root.path)
        log = Log.open(
            disk, target, partition, source.config, now_ms=now_ms, log_start_offset=source.log_start_offset,
            high_watermark=source.high_watermark, clean_shutdown=True, files=manager.files, root=root,
        )  # fmt: skip
    except (OSError, StorageError) as error:
        _take_back(disk, move, target)
        raise root.failed(error) if isinstance(error, OSError) else error from error
    log.producers = source.producers  # the very same: others hold on to it
    log.adopt_epochs(source.epochs.entries())  # an epoch without a record is in memory only
    log.moved_from = tuple(dict.fromkeys((*source.moved_from, source.root.directory_id)))
    root.forget(copy)
    try:
        manager.delete(partition, now_ms)
    except StorageError as error:
        _logger.warning("%s stays for now; the next start would know by its mark: %s", source.directory, error.message)
    if not is_marked:
        _make_leaving_durable(disk, source)
    manager.add(log)
    return log


def _mark(disk: Disk, move: FutureLog, target: str) -> bool:
    """False: the log's disk has no room for a mark, and has to be left all the same. Raises StorageError."""
    source = move.source
    try:
        mark(disk, source.directory, move.copy.directory, target)
    except OSError as error:
        _take_back(disk, move, target)  # it may have its name already: then the next start would take the copy
        failure = source.root.failed(error)
        if error.errno in NO_ROOM:
            return False
        raise failure from error
    return True


def _make_leaving_durable(disk: Disk, source: Log) -> None:
    """Or a power cut brings back a log without a mark, which by then may be longer than the one that counts."""
    try:
        disk.sync_directory(source.root.path)
    except OSError as error:
        source.root.failed(error)


def _take_back(disk: Disk, move: FutureLog, target: str) -> None:
    """The log stays what it was. Raises StorageError where that cannot be said: then nothing more may be appended to it, for the next start
    takes the copy."""
    source, copy = move.source, move.copy
    source.names_changed()  # before a record is stable the mark's end is, should it find no descriptor for its sync now
    try:
        unmark(disk, source.directory)
    except OSError as error:
        raise source.root.failed(error) from error
    with suppress(OSError):  # else it is in the way until the next move, or start
        if disk.exists(target):
            disk.rename(target, copy.directory)


def mark(disk: Disk, source: str, copy: str, target: str) -> None:
    """Decides the move: from here on the copy is the log. OSError passes through."""
    disk.write_atomically(f"{source}/{roots.MOVED}", f"{copy}\n{target}\n".encode())


def is_marked(disk: Disk, source: str) -> bool:
    return disk.exists(f"{source}/{roots.MOVED}")


def unmark(disk: Disk, source: str) -> None:
    """OSError passes through."""
    if is_marked(disk, source):
        disk.unlink(f"{source}/{roots.MOVED}")
        disk.sync_directory(source)


def settle(disk: Disk, directories: Sequence[str]) -> dict[str, OSError]:
    """Ends, at a start, the moves that a crash interrupted behind the mark. Copies without one are `roots.find`'s to condemn, marks that are
    left `Log.open`'s to remove. Returns which directories failed at that: each costs what lies in it, not the start."""
    partitions: dict[TopicPartition, list[str]] = {}
    failures: dict[str, OSError] = {}
    moving = False
    for root in directories:
        try:
            names = disk.list_directory(root)
            moving = moving or any(name.endswith(roots.FUTURE_SUFFIX) for name in names)
            for name in names:
                partition = roots.partition_of(name)
                if partition is not None:
                    partitions.setdefault(partition, []).append(f"{root}/{name}")
        except OSError:
            continue  # whoever opens it is told
    for paths in partitions.values():
        if moving or len(paths) > 1:
            for path in paths:
                try:
                    _settle_one(disk, path, directories)
                except OSError as error:
                    failures.setdefault(_root_of(error, path, directories), error)
    return failures


def _root_of(error: OSError, path: str, directories: Sequence[str]) -> str:
    """Which of them it was: a move has two."""
    found = next((root for root in directories if str(error.filename).startswith(f"{root}/")), None)
    return found or path.rpartition("/")[0]


def _settle_one(disk: Disk, source: str, directories: Sequence[str]) -> None:
    if not is_marked(disk, source):
        return
    told = disk.read_bytes(f"{source}/{roots.MOVED}").decode("utf-8", "replace").splitlines()
    if len(told) != 2:  # rot: the log and its copy are equal still, or the copy is the further one
        unmark(disk, source)
        return
    copy, target = told
    root = target.rpartition("/")[0]
    if root in directories and disk.exists(copy):
        disk.rename(copy, target)
        disk.sync_directory(root)
    if root not in directories or not disk.exists(target):
        unmark(disk, source)  # its disk is gone, and this is as good as it was
        return
    _logger.info("%s was moved to %s", source, target)
    names = (f"{source}.{number:032x}{roots.DELETE_SUFFIX}" for number in itertools.count())
    disk.rename(source, next(name for name in names if not disk.exists(name)))  # the last one may not be removed yet
