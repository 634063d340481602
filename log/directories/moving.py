"""A log's move to another directory, as the manager has it: begun, given up, or finished. What a copy is says `moves`."""

from contextlib import suppress

from ottla.log.directories import moves, roots
from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.manager import LogManager
from ottla.log.directories.moves import FutureLog
from ottla.log.errors import StorageError
from ottla.log.log import Log


def begin_move(manager: LogManager, log: Log, root: DirectoryState, now_ms: int) -> FutureLog:
    """A copy of the log begins in another directory. Raises StorageError."""
    if not root.writable:
        root.refuse()
    path = manager.retired_path(root, log.partition, roots.FUTURE_SUFFIX)
    start = log.log_start_offset
    manager.make_way(root, log.key)  # it may have lain here before
    copy = Log.open(
        manager.disk, path, log.partition, log.config,
        now_ms=now_ms, log_start_offset=start, files=manager.files, root=root,
    )  # fmt: skip
    assert log.topic_id is not None
    copy.set_topic_id(log.topic_id)
    root.partitions += 1
    return FutureLog(log, copy)


def end_move(manager: LogManager, move: FutureLog, now_ms: int) -> None:
    """Gives the copy up: its files go with `LogManager.purge`. Nothing is raised: it may be for its disk's sake."""
    copy = move.copy
    copy.root.forget(copy)
    roots.guarded(manager.disk, copy.root, copy.abandon)
    manager.condemn(now_ms, copy.directory, copy.root)


def finish_move(manager: LogManager, move: FutureLog, now_ms: int) -> Log:
    """The copy takes the log's place. Raises StorageError, and then the log is as it was."""
    disk, source, copy = manager.disk, move.source, move.copy
    root, partition = copy.root, source.partition
    target = f"{root.path}/{partition}"
    move.complete()
    try:
        moves.mark(disk, source.directory, copy.directory, target)
    except OSError as error:
        raise source.root.failed(error) from error
    try:
        disk.rename(copy.directory, target)
        disk.sync_directory(root.path)
        log = Log.open(
            disk, target, partition, source.config, now_ms=now_ms, log_start_offset=source.log_start_offset,
            high_watermark=source.high_watermark, clean_shutdown=True, files=manager.files, root=root,
        )  # fmt: skip
    except (OSError, StorageError) as error:
        with suppress(OSError):
            moves.unmark(disk, source.directory)
        raise root.failed(error) if isinstance(error, OSError) else error from error
    log.producers = source.producers  # it also knows producers whose batches are gone
    root.forget(copy)
    manager.delete(partition, now_ms)
    manager.add(log)
    return log
