"""A log's names: those of its files, and whose it is. Which of them would survive the machine.

Appending needs neither to be durable; but what is acknowledged must be found again, and by its topic's id. So a name that may be
lost is synced before, or with, the first record that counts (`ottla.log.directories.names_sync`).
"""

from ottla.log.config import LogConfig
from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.names_sync import NamesSync, UnsyncedNames, sync_topic_id, write_topic_id
from ottla.log.names import TopicPartition
from ottla.log.results import SyncTicket
from ottla.log.segments.open_files import OpenFiles
from ottla.log.state import LogState


class NamedLog(LogState):
    """A log's state, and its names on the disk."""

    __slots__ = (
        "_directory_unsynced",
        "_files_behind",
        "_names_unsynced",
        "_names_version",
        "_shared_names",
        "_topic_id_unsynced",
        "moved_from",
        "must_sync",
    )

    def __init__(
        self, files: OpenFiles, root: DirectoryState, directory: str, partition: TopicPartition, config: LogConfig
    ) -> None:
        super().__init__(files, root, directory, partition, config)
        self._names_unsynced = self._directory_unsynced = self._topic_id_unsynced = False
        self._files_behind = False  # made while a shared sync of the names is under way, and not in it
        self._names_version = 0
        self._shared_names: SyncTicket | None = None
        self.moved_from: tuple[bytes, ...] = ()
        """Ids of the directories in which it lay before, since the process began: all that it had there it has here."""
        self.must_sync = config.flush_before_ack
        """Whether an append counts only when it is on stable storage: the topic says so, or the log's own name is not yet."""

    def set_topic_id(self, topic_id: bytes) -> None:
        """Writes ``partition.metadata``. Until it is durable the log is `must_sync`. Raises StorageError."""
        try:
            write_topic_id(self.disk, self.directory, topic_id)
        except OSError as error:
            raise self.root.failed(error) from error
        self.topic_id = topic_id
        self._topic_id_unsynced = True
        self.names_changed()
        self.note_must_sync()

    def note_must_sync(self) -> None:
        self.must_sync = self.config.flush_before_ack or self._topic_id_unsynced

    def unsynced_names(self, shared: NamesSync | None = None) -> SyncTicket:
        """A sync of the log's names; it makes no record stable. ``shared``: one of many logs, for whoever else asks too."""
        sync = shared or NamesSync(self.disk, [self.names_to_sync()])
        ticket = SyncTicket(sync, self.recovery_point, self._generation, self._names_version)
        self._shared_names = ticket if shared else None
        return ticket

    @property
    def names_are_durable(self) -> bool:
        """Whether a power cut leaves the files' names as they are."""
        return not self._names_unsynced

    def names_to_sync(self) -> UnsyncedNames:
        return UnsyncedNames(self.directory, self._topic_id_unsynced, self._directory_unsynced)

    def sync_names(self) -> None:
        """Makes created and removed file names durable."""
        if self._names_unsynced:
            if self._topic_id_unsynced:
                sync_topic_id(self.disk, self.directory)
            self.disk.sync_directory(self.directory)
            if self._directory_unsynced:
                self.disk.sync_directory(self.directory.rpartition("/")[0] or ".")
            self._files_behind = False
            self._names_synced()

    def _names_synced(self) -> None:
        self._names_unsynced = self._directory_unsynced = self._topic_id_unsynced = False
        self._shared_names = None
        self.note_must_sync()
        if self._files_behind:
            self.names_changed()

    def names_changed(self, *, created: bool = False) -> None:
        """A file name changed; ``created``: the directory's own did."""
        self._names_unsynced = True
        self._files_behind = False
        self._names_version += 1
        self._directory_unsynced = self._directory_unsynced or created

    def files_begun(self) -> None:
        """The log got its first files. Whoever waits for its own name and its topic's id does not wait for theirs as well."""
        shared = self._shared_names
        if shared is not None and shared.names_version == self._names_version:
            self._files_behind = True
        else:
            self.names_changed()

    def distrust_names(self) -> None:
        """Takes no name for durable, after a kill: whatever the last process created may be in the kernel's memory only."""
        self._topic_id_unsynced = self.topic_id is not None
        self.names_changed(created=True)
        self.note_must_sync()
