"""What is deleted gets another name, or leaves its log, at once, and is removed when its delay is over: whoever reads it may go on."""

import errno
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from ottla.log.directories import moves, roots
from ottla.log.directories.checkpoints import PARTITION_METADATA
from ottla.log.directories.directory import DirectoryState
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.runtime.disk import Disk
from ottla.runtime.work_later import Later

_BUSY = (errno.EBUSY, errno.ENOTEMPTY)
"""What is in use cannot be removed yet: no fault of the disk's."""


class Removals:
    """Directories of partitions, and files of segments, that are to be removed. What fails is tried again with each `purge`."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[DirectoryState],
        logs: Mapping[TopicPartition, Log],
        remove_later: Later,
    ) -> None:
        """``directories`` and ``logs``: the manager's own, as they are when somebody asks."""
        self._disk = disk
        self._directories = directories
        self._logs = logs
        self._remove_later = remove_later
        self._condemned: list[tuple[int, str, DirectoryState]] = []  # when to remove, path
        self._unnamed: dict[str, tuple[int, str, DirectoryState]] = {}
        """What could not get its other name: by its path, when to remove it and as what."""

    def add(self, due_ms: int, path: str, root: DirectoryState) -> None:
        """The directory of a partition goes with the `purge` after ``due_ms``."""
        self._condemned.append((due_ms, path, root))

    def retire(self, due_ms: int, log: Log, path: str) -> None:
        """The directory of a log that is out of service is called ``path`` from now on, and goes as with `add`.

        OSError passes through: then it loses its topic's id, by which the next start would know it, and the rest is tried again.
        """
        directory = log.directory
        self._unnamed[directory] = (due_ms, path, log.root)
        try:
            self.finish(directory)
        except OSError:
            if not moves.is_marked(self._disk, directory):  # else the next start knows
                with suppress(OSError):
                    self._disk.unlink(f"{directory}/{PARTITION_METADATA}")
            raise

    def finish(self, directory: str) -> None:
        """Makes way for who takes the name, if a log that is retired has it still. OSError passes through."""
        if directory in self._unnamed:
            due_ms, path, root = self._unnamed[directory]
            if self._disk.exists(directory):
                self._disk.rename(directory, path)
            del self._unnamed[directory]
            self.add(due_ms, path, root)

    def finish_all(self) -> None:
        """`finish` for all that could not get another name."""
        for directory, (_, _, root) in list(self._unnamed.items()):
            roots.guarded(self._disk, root, partial(self.finish, directory))

    def purge(self, now_ms: int) -> None:
        """Removes, later, condemned files and directories whose delay is over."""
        self.finish_all()
        for root in self._directories:
            condemned = [self._logs[log.partition] for log in root.condemned] if root.failure is None else []
            self._condemned += [(now_ms, path, root) for log in condemned for path in log.take_due(now_ms)]
        due = [entry for entry in self._condemned if entry[0] <= now_ms]
        self._condemned = [entry for entry in self._condemned if entry[0] > now_ms]
        for entry in due:
            if entry[2].failure is None:
                self._remove_later(partial(_remove, self._disk, entry[1]), partial(self._removed, entry))

    def _removed(self, entry: tuple[int, str, DirectoryState], error: OSError | None) -> None:
        if error is not None:
            if error.errno not in _BUSY:
                entry[2].failed(error)
            self._condemned.append(entry)


def _remove(disk: Disk, path: str) -> None:
    """It may never have come to be: what failed to begin is condemned too. Or a file's partition has another name by now, with which it goes."""
    if disk.is_directory(path):
        disk.remove_tree(path)
    elif disk.exists(path):
        with suppress(FileNotFoundError):
            disk.unlink(path)
