"""Making file names and topic ids durable, away from whoever waits for nothing else.

Appending needs neither; but a power cut that keeps a log's records and not its topic id leaves a log that nobody recognises. So
the first acknowledgement of a new log waits for this.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.log.directories.checkpoints import PARTITION_METADATA
from ottla.runtime.disk import Disk
from ottla.runtime.identifiers import id_to_text

ALL_AT_ONCE = 16
"""From so many directories on, one sync of the file system costs less than one of each."""


class UnsyncedNames(NamedTuple):
    """One log's directory, and what of it may not be durable: the names in it always."""

    directory: str
    topic_id: bool
    created: bool


class EverythingSync(NamedTuple):
    """What `SyncLater` syncs for many at once: the file system that holds ``path``. Equal ones share a round."""

    disk: Disk
    path: str

    def sync(self) -> None:
        """OSError passes through."""
        self.disk.sync_everything(self.path)


class NamesSync:
    """What `SyncLater` syncs: reads nothing of the logs, so any thread may run it."""

    def __init__(self, disk: Disk, names: Sequence[UnsyncedNames]) -> None:
        self._disk = disk
        self._names = names

    def sync(self) -> None:
        """OSError passes through. A directory that was renamed or removed meanwhile needs nothing any more."""
        if len(self._names) >= ALL_AT_ONCE:
            self._disk.sync_everything(_parent(self._names[0].directory))
            return
        for each in self._names:
            try:
                self._sync_one(each)
            except FileNotFoundError:
                continue

    def _sync_one(self, names: UnsyncedNames) -> None:
        if names.topic_id:
            sync_topic_id(self._disk, names.directory)
        self._disk.sync_directory(names.directory)
        if names.created:
            self._disk.sync_directory(_parent(names.directory))


def _parent(directory: str) -> str:
    return directory.rpartition("/")[0] or "."


def write_topic_id(disk: Disk, directory: str, topic_id: bytes) -> None:
    """Writes ``partition.metadata`` without waiting for the disk: creating 10,000 partitions must not cost 20,000 syncs.

    It is synced with the first data that is. A torn one is from a crash before that, and its directory is taken for a stray.
    OSError passes through.
    """
    file = disk.open(f"{directory}/{PARTITION_METADATA}", create=True)
    try:
        file.truncate(0)
        file.write_at([f"version: 0\ntopic_id: {id_to_text(topic_id)}".encode("ascii")], 0)
    finally:
        file.close()


def sync_topic_id(disk: Disk, directory: str) -> None:
    """OSError passes through."""
    file = disk.open(f"{directory}/{PARTITION_METADATA}")
    try:
        file.sync()
    finally:
        file.close()
