"""What is deleted gets another name, or leaves its log, at once, and is removed when its delay is over: whoever reads it may go on."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from ottla.log.directories import roots
from ottla.log.directories.directory import DirectoryState
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.runtime.disk import Disk
from ottla.runtime.work_later import Later


class Removals:
    """Directories of partitions, and files of segments, that are to be removed."""

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
        self._condemned: list[tuple[int, str, DirectoryState]] = []  # partitions' directories: when to remove, path

    def add(self, due_ms: int, path: str, root: DirectoryState) -> None:
        """The directory of a partition goes with the `purge` after ``due_ms``."""
        self._condemned.append((due_ms, path, root))

    def purge(self, now_ms: int) -> None:
        """Removes, later, condemned files and directories whose delay is over."""
        for root in self._directories:
            condemned = [self._logs[log.partition] for log in root.condemned] if root.failure is None else []
            for path in [path for log in condemned for path in log.take_due(now_ms)]:
                self._remove_later(partial(_unlink, self._disk, path), partial(roots.note_failure, root))
        due = [entry for entry in self._condemned if entry[0] <= now_ms]
        self._condemned = [entry for entry in self._condemned if entry[0] > now_ms]
        for _, path, root in due:
            if root.failure is None:
                self._remove_later(partial(_remove, self._disk, path), partial(roots.note_failure, root))


def _remove(disk: Disk, path: str) -> None:
    """It may never have come to be: what failed to begin is condemned too."""
    if disk.exists(path):
        disk.remove_tree(path)


def _unlink(disk: Disk, path: str) -> None:
    """The whole partition may have been renamed meanwhile: then its files go with its directory."""
    if disk.exists(path):
        with suppress(FileNotFoundError):
            disk.unlink(path)
