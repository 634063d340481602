"""AlterReplicaLogDirs at work: copies logs to other directories in slices, one after the other, and exchanges them.

A slice is small, so that requests have their turn between two. What was copied is synced on a thread before the exchange, which
itself takes the milliseconds of a few small syncs.
"""

import logging
from collections.abc import Callable
from functools import partial

from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.manager import LogManager
from ottla.log.directories.moves import FutureLog, begin_move, end_move, finish_move
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.results import SyncTicket
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.sync_later import SyncLater
from ottla.runtime.timers import LoopTimers, Timer

SLICE_BYTES = 512 << 10
PAUSE_MS = 2
UNSYNCED_BYTES_MAX = 8 << 20
"""What an exchange may have to sync: some ten milliseconds."""

logger = logging.getLogger(__name__)


class DirectoryMoves:
    """The moves under way, by partition. ``before_exchange`` is told of the partition, ``on_moved`` the old and the new log.
    ``is_going``: whether a log waits to be deleted."""

    def __init__(
        self,
        manager: LogManager,
        is_going: Callable[[TopicPartition], bool],
        timers: LoopTimers,
        wall_ms: Callable[[], int],
        before_exchange: Callable[[TopicPartition], None],
        on_moved: Callable[[Log, Log], None],
        bytes_per_second_max: int,
    ) -> None:
        self.under_way: dict[TopicPartition, FutureLog] = {}
        self._manager = manager
        self._is_going = is_going
        self._timers = timers
        self._wall_ms = wall_ms
        self._before_exchange = before_exchange
        self._on_moved = on_moved
        self._pause_ms = _pause_ms(bytes_per_second_max)
        self._sync_later = SyncLater()
        self._synced: dict[FutureLog, None] = {}
        self._syncing: dict[FutureLog, None] = {}
        self._ticking: Timer | None = None
        self._closed = False

    def set_speed(self, bytes_per_second_max: int) -> None:
        """``replica.alter.log.dirs.io.max.bytes.per.second`` changed: the pause under way is one of the new length."""
        self._pause_ms = _pause_ms(bytes_per_second_max)
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
            self._tick_soon()

    def request(self, partition: TopicPartition, path: str) -> ErrorCode:
        """Begins a move to the directory of that path; to where the log is already, it gives one up that is under way."""
        root = next((each for each in self._manager.roots if each.path == path), None)
        if root is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        log = self._manager.logs.get(partition)
        if root.failure is not None or partition in self._manager.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if log is None or self._is_going(partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        move = self.under_way.get(partition)
        if move is not None and move.copy.root is root:
            return ErrorCode.NONE
        if move is not None:
            self._end(move)
        if log.root is root:
            return ErrorCode.NONE
        try:
            self.under_way[partition] = begin_move(self._manager, log, root, self._wall_ms())
        except KafkaError as error:
            return error.code
        self._tick_soon()
        return ErrorCode.NONE

    def give_up(self, partition: TopicPartition) -> None:
        """Its log goes, or cannot be read any more. The next one of that name is another's, and moves when somebody asks for it."""
        move = self.under_way.get(partition)
        if move is not None:
            self._end(move)

    def directory_failed(self, root: DirectoryState) -> None:
        """No move goes there any more; who wants one asks again when the directory is mended."""
        for move in [each for each in self.under_way.values() if each.copy.root is root]:
            logger.warning("Moving %s to %s: the directory failed", move.source.partition, root.path)
            self._end(move)

    def close(self) -> None:
        """What is not finished is given up: the next start removes it."""
        self._closed = True
        for move in list(self.under_way.values()):
            self._end(move)
        self._sync_later.close()

    def _tick_soon(self) -> None:
        if self._ticking is None and not self._closed and self.under_way:
            self._ticking = self._timers.call_later_ms(self._pause_ms, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        if self._closed or not self.under_way:
            return
        move = next(iter(self.under_way.values()))
        try:
            waits = self._advance(move)
        except Exception as error:  # noqa: BLE001 - told in `_fail`
            self._fail(move, error)
            waits = False
        if not waits:
            self._tick_soon()

    def _advance(self, move: FutureLog) -> bool:
        """Goes a step. Answers whether the next one comes with the end of a sync. Raises KafkaError."""
        if move in self._syncing:
            return True  # another move was asked for meanwhile
        if move.source.abandoned:
            self._end(move)
        elif move.copy_some(SLICE_BYTES):
            if move in self._synced and move.unsynced_bytes <= UNSYNCED_BYTES_MAX:
                self._exchange(move)
                return False
            self._synced[move] = None
            return self._sync(move)
        return False

    def _sync(self, move: FutureLog) -> bool:
        ticket = move.copy.unsynced()
        if ticket is not None:
            self._syncing[move] = None
            self._sync_later.sync(ticket.file, partial(self._was_synced, move, ticket))
        return ticket is not None

    def _was_synced(self, move: FutureLog, ticket: SyncTicket, error: OSError | None) -> None:
        self._syncing.pop(move, None)
        if self._closed or move.copy.abandoned:
            self._tick_soon()
            return
        if error is not None:
            self._fail(move, move.copy.root.failed(error))
        else:
            move.copy.mark_synced(ticket)
            try:
                if self._sync(move):  # its next segment
                    return
            except StorageError as problem:
                self._fail(move, problem)
        self._tick_soon()

    def _exchange(self, move: FutureLog) -> None:
        old, partition = move.source, move.source.partition
        self._before_exchange(partition)
        new = finish_move(self._manager, move, self._wall_ms())
        self._forget(move)
        logger.info("Moved %s from %s to %s", partition, old.root.path, new.root.path)
        self._on_moved(old, new)

    def _fail(self, move: FutureLog, error: Exception) -> None:
        surprise = None if isinstance(error, KafkaError | OSError) else error
        partition, root = move.source.partition, move.copy.root
        logger.warning("Moving %s to %s is given up: %s", partition, root.path, error, exc_info=surprise)
        self._end(move)

    def _end(self, move: FutureLog) -> None:
        if self.under_way.get(move.source.partition) is not move:
            return  # what failed in it was a directory, and that has ended it
        self._forget(move)
        end_move(self._manager, move, self._wall_ms())

    def _forget(self, move: FutureLog) -> None:
        self._synced.pop(move, None)
        self.under_way.pop(move.source.partition, None)


def _pause_ms(bytes_per_second_max: int) -> int:
    return max(PAUSE_MS, SLICE_BYTES * 1000 // max(bytes_per_second_max, 1))
