"""A log directory's condition, shared by all logs in it: whether it takes data, whether it failed, what must be saved."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from ottla.log.config import FOREVER
from ottla.log.directories.refusals import Refusals
from ottla.log.errors import NO_ROOM, NOT_THE_DISK, StorageError
from ottla.log.names import TopicIdPartition

if TYPE_CHECKING:
    from ottla.log.directories.saved_offsets import SavedOffsets
    from ottla.log.durable_log import DurableLog


class DirectoryState:
    """One of ``log.dirs``. ``writable`` is one attribute, because every append reads it."""

    __slots__ = (
        "condemned",
        "cuts_unsynced",
        "directory_id",
        "failure",
        "flushed",
        "free_bytes",
        "full",
        "gaps_to",
        "gone",
        "high_watermarks",
        "lower_points",
        "on_failure",
        "on_flush_settings",
        "partitions",
        "path",
        "recovery_points",
        "refusals",
        "rolled",
        "start_offsets",
        "watermarks_moved",
        "writable",
    )

    def __init__(self, path: str, on_failure: "Callable[[DirectoryState], None] | None" = None) -> None:
        self.path = path
        self.directory_id = bytes(16)
        self.partitions = 0
        self.writable = True
        self.full = False
        self.free_bytes = -1  # as the last look at the space found it
        self.refusals = Refusals()
        self.failure: OSError | None = None
        self.on_failure = on_failure
        self.on_flush_settings: Callable[[], None] | None = None  # whoever looks at ``flushed`` has to from now on
        self.watermarks_moved = False
        self.rolled: dict[DurableLog, None] = {}  # logs with closed segments that are not on stable storage yet
        self.flushed: dict[DurableLog, None] = {}  # logs with flush.messages or flush.ms
        self.condemned: dict[DurableLog, None] = {}  # logs with files to unlink
        self.cuts_unsynced = (
            False  # perhaps, in files that were found here: until they are, no saved recovery point rises
        )
        self.recovery_points: SavedOffsets | None = None  # None where nobody keeps them
        self.start_offsets: SavedOffsets | None = None
        self.high_watermarks: SavedOffsets | None = None
        self.lower_points: Callable[[Mapping[TopicIdPartition, int]], None] | None = None  # on disk
        self.gaps_to: Callable[[TopicIdPartition], int] | None = None
        self.gone: dict[TopicIdPartition, None] = {}  # logs that went; the checkpoints may still name them

    def refuse(self) -> NoReturn:
        """Raises the StorageError that tells why the directory takes nothing."""
        if self.failure is not None:
            raise StorageError(f"{self.path}: failed: {self.failure}")
        raise StorageError(f"{self.path}: no space left above the floor")

    def failed(self, error: OSError) -> StorageError:
        """Notes an error of the disk; returns what to raise. Without room the directory is full, otherwise it is lost.

        Running out of descriptors or memory is no fault of the directory's.
        """
        if error.errno in NO_ROOM:
            if self.writable:
                self.refusals.note(self.free_bytes)
            self.full, self.writable = True, False
            return StorageError(f"{self.path}: no space left: {error}")
        if self.failure is None and error.errno not in NOT_THE_DISK:
            self.failure, self.writable = error, False
            if self.on_failure is not None:
                self.on_failure(self)
        return StorageError(f"{self.path}: {error}")

    def forget(self, log: "DurableLog") -> None:
        """The log goes from this directory."""
        self.partitions -= 1
        self.rolled.pop(log, None)
        self.flushed.pop(log, None)
        self.condemned.pop(log, None)

    def set_full(self, full: bool) -> None:
        self.full = full
        self.writable = not full and self.failure is None

    def saved_recovery_point(self, key: TopicIdPartition) -> int:
        """The recovery point that the checkpoint file has for sure; unlimited where nobody keeps one."""
        return FOREVER if self.recovery_points is None else self.recovery_points.saved.get(key, 0)

    def lower_recovery_point(self, key: TopicIdPartition, to: int) -> None:
        """Makes sure that a crash does not find more said to be stable than is: of a log that ends earlier than it did, by a cut that a crash
        interrupted or on a disk that lost something, what comes to those offsets is another's. Raises OSError."""
        points = self.recovery_points
        if points is not None and points.highest(key) > to:
            points.replace({**points.latest, key: to})

    def save_start_offset(self, key: TopicIdPartition, offset: int) -> None:
        """Durably: the files go whose names said where the log begins. Raises OSError."""
        starts = self.start_offsets
        if starts is not None and starts.latest.get(key, 0) != offset:
            starts.replace({**starts.latest, key: offset})

    def saved_gaps_offset(self, key: TopicIdPartition) -> int:
        """Below it the log may be compacted, and all of it is stable; -1: nothing is."""
        return -1 if self.gaps_to is None else self.gaps_to(key)

    def before_truncation(self, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Makes sure that a crash after the truncations does not find a recovery point or a log start above these offsets."""
        files = [file for file in (self.recovery_points, self.start_offsets) if file is not None]
        lower = {key: to for key, to in offsets.items() if any(file.highest(key) > to for file in files)}
        if self.gaps_to is not None:
            lower.update({key: to for key, to in offsets.items() if self.gaps_to(key) > to})
        if lower and self.lower_points is not None:
            self.lower_points(lower)
