"""Up to which offset each log is clean, in the ``cleaner-offset-checkpoint`` of each log directory.

It must never run ahead of the log it stands for. What a clean part may hold is taken on trust: a tombstone in it goes when its
horizon has passed, because no older value of its key can be there. So what is said of a log is said of its topic
(`ottla.log.directories.owned_offsets`), and goes from the file before the log is cut into its clean part. When the log is deleted, it
counts no more at once and goes from the file with that of all logs deleted with it; before, should the log come back.
Rows that do not say whose they are count for nothing: that costs a cleaning from the start.

Cleaning leaves segments that end before the next one begins. A start that has lost the recovery point takes that for what a power
cut took, and drops what follows. So beside it a second file, ``ottla.cleaning-offset-checkpoint``, says up to where there may be such
segments before there is the first. It is true of a log that was not cleaned too: all of that is below the recovery point.
"""

from collections.abc import Callable, Mapping
from threading import Lock

from ottla.log.directories.checkpoints import CLEANER_OFFSETS, CLEANING_OFFSETS, CheckpointError
from ottla.log.directories.owned_offsets import OwnedOffsets, owned_table, read_owned
from ottla.log.names import NO_TOPIC_ID, TopicIdPartition
from ottla.runtime.disk import Disk


class CleanedOffsets:
    """The checkpoints of all directories. Read and dropped on the loop, written before and after an installation on a thread."""

    def __init__(self, disk: Disk) -> None:
        self._cleaned = _OffsetsFile(disk, CLEANER_OFFSETS)
        self._cleaning = _OffsetsFile(disk, CLEANING_OFFSETS)
        self._files = (self._cleaned, self._cleaning)

    def take_up(self, root: str) -> None:
        """Reads a directory's files. OSError passes through."""
        for file in self._files:
            file.take_up(root)

    def of(self, root: str, key: TopicIdPartition) -> int:
        """The first dirty offset; -1 when nothing is clean."""
        return self._cleaned.of(root, key)

    def gaps_to(self, root: str, key: TopicIdPartition) -> int:
        """Below it segments may end before the next one begins; -1 when none does."""
        return max(file.of(root, key) for file in self._files)

    def foretell(
        self, root: str, key: TopicIdPartition, offset: int, *, unless: Callable[[], bool] = lambda: False
    ) -> None:
        """A cleaning of what is below ``offset`` is about to be installed, durably; ``unless`` the log was forgotten meanwhile. OSError
        passes through."""
        self._cleaning.record(root, key, max(self._cleaning.of(root, key), offset), unless=unless)

    def record(
        self, root: str, key: TopicIdPartition, offset: int, *, unless: Callable[[], bool] = lambda: False
    ) -> None:
        """Everything below ``offset`` is clean, durably; ``unless`` it was forgotten meanwhile. OSError passes through."""
        self._cleaned.record(root, key, offset, unless=unless)

    def forget(self, root: str, ends: Mapping[TopicIdPartition, int]) -> None:
        """Makes nothing of these logs count as clean, durably: they are about to be cut to ``ends``. What lies before keeps its gaps.
        OSError passes through."""
        for key in ends:
            self._cleaned.drop(root, key)
        self._cleaned.write_dropped(root)
        self._cleaning.lower(root, ends)

    def drop(self, root: str, key: TopicIdPartition) -> None:
        """The log is gone. The files may still say otherwise, until `write_dropped`."""
        for file in self._files:
            file.drop(root, key)

    def make_way(self, root: str, key: TopicIdPartition) -> None:
        """A log of that key begins in this directory: nothing of an earlier one counts, durably. OSError passes through."""
        for file in self._files:
            file.make_way(root, key)

    def has_dropped(self, root: str) -> bool:
        """Whether there is anything for `write_dropped`."""
        return any(file.has_dropped(root) for file in self._files)

    def write_dropped(self, root: str) -> None:
        """Writes the files without what was dropped, on any thread. OSError passes through."""
        for file in self._files:
            file.write_dropped(root)


class _OffsetsFile:
    """The checkpoints of one name in all directories. Files are written one at a time, each as the table is by then."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._tables: dict[str, OwnedOffsets] = {}
        self._gone: dict[
            str, dict[TopicIdPartition, None]
        ] = {}  # not in the table any more, or lower; in the file, who knows
        self._going: dict[TopicIdPartition, None] = {}  # being taken out of a file just now
        self._changing = Lock()  # never held while the disk works
        self._writing = Lock()

    def take_up(self, root: str) -> None:
        self._tables.pop(root, None)
        self._table(root)

    def of(self, root: str, key: TopicIdPartition) -> int:
        """-1 when nothing is said."""
        return self._table(root).get(key, -1)

    def record(self, root: str, key: TopicIdPartition, offset: int, *, unless: Callable[[], bool]) -> None:
        with self._changing:
            if unless():
                return
            self._table(root)[key] = offset
        self._write(root)

    def drop(self, root: str, key: TopicIdPartition) -> None:
        with self._changing:
            if self._table(root).pop(key, None) is not None:
                self._gone.setdefault(root, {})[key] = None

    def lower(self, root: str, offsets: Mapping[TopicIdPartition, int]) -> None:
        """No row says more than that, durably. What could not be written stays as it was: the log is not cut then, and has all its gaps."""
        with self._changing:
            table = self._table(root)
            before = {key: table[key] for key, offset in offsets.items() if table.get(key, -1) > offset}
            table.update({key: offsets[key] for key in before})
            if before:
                self._gone.setdefault(root, {}).update(dict.fromkeys(before))
        try:
            self.write_dropped(root)
        except OSError:
            with self._changing:
                table.update({key: max(offset, table.get(key, -1)) for key, offset in before.items() if key in table})
            raise

    def make_way(self, root: str, key: TopicIdPartition) -> None:
        self.drop(root, key)
        if key in self._gone.get(root, ()) or key in self._going:
            self._write(root)

    def has_dropped(self, root: str) -> bool:
        return bool(self._gone.get(root))

    def write_dropped(self, root: str) -> None:
        if self.has_dropped(root):
            self._write(root)

    def _write(self, root: str) -> None:
        with self._writing:
            with self._changing:
                table, gone = dict(self._table(root)), self._gone.pop(root, {})
                self._going = gone
            try:
                self._disk.write_atomically(f"{root}/{self._name}", owned_table(table))
            except OSError:
                with self._changing:
                    self._gone[root] = {**gone, **self._gone.get(root, {})}
                raise
            finally:
                self._going = {}

    def _table(self, root: str) -> OwnedOffsets:
        table = self._tables.get(root)
        if table is None:
            try:
                read = read_owned(self._disk, f"{root}/{self._name}")
            except CheckpointError:
                read = {}  # costs a cleaning from the start, nothing else
            table = {key: offset for key, offset in read.items() if key.topic_id != NO_TOPIC_ID}
            self._tables[root] = table
        return table
