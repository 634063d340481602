"""How much of a log would survive the machine.

Appending writes to the kernel; the recovery point says below which offset everything is on stable storage. What a scan from
there would find again (indexes, producers, epochs) is made durable only before the recovery point is saved: `settle`.
"""

from ottla.log.config import FOREVER, LogConfig
from ottla.log.directories.checkpoints import write_epochs
from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.names_sync import EverythingSync
from ottla.log.errors import StorageError
from ottla.log.named_log import NamedLog
from ottla.log.names import TopicPartition
from ottla.log.producers import snapshot as producer_snapshot
from ottla.log.results import SyncTicket
from ottla.log.segments.open_files import CachedFile, OpenFiles
from ottla.log.segments.segment import Segment
from ottla.runtime.disk import File


class DurableLog(NamedLog):
    """A log's state, and what of it is on stable storage."""

    __slots__ = (
        "_aborts_unsynced",
        "_pinned",
        "_unsettled",
        "abandoned",
        "cut_unsynced",
        "unflushed_since_ms",
    )

    def __init__(
        self, files: OpenFiles, root: DirectoryState, directory: str, partition: TopicPartition, config: LogConfig
    ) -> None:
        super().__init__(files, root, directory, partition, config)
        self.unflushed_since_ms = -1
        self._aborts_unsynced: tuple[Segment, ...] = ()
        self._unsettled: tuple[Segment, ...] = ()
        self.abandoned = False  # closed or renamed: errors of its files tell nothing of the disk
        self.cut_unsynced = False
        """Whether the end was cut off and may come back with a power cut: then nothing may be behind it."""
        self._pinned: tuple[CachedFile, ...] = ()

    # Epochs and transactions

    def write_epochs(self) -> None:
        """Writes the leader-epoch checkpoint if it changed, durably. The scan after a crash finds later epochs in the batches."""
        if self.epochs.changed:
            write_epochs(self.disk, self.directory, self.epochs.entries())
            self.epochs.changed = False

    def aborts_changed(self, segment: Segment) -> None:
        """The segment's transaction index has to be synced."""
        if segment not in self._aborts_unsynced:
            self._aborts_unsynced += (segment,)

    def write_aborted(self, segment: Segment) -> None:
        """Brings the segment's transaction index up to what is known; one whose file comes to be only now has a name to sync. OSError
        passes through."""
        index = segment.transactions()
        if index.lacks_file:
            self.names_changed()
        index.write()

    # Syncing

    def begin_segment(self) -> None:
        """Makes the files of a log that never had any: a partition that nobody writes to has none. Raises StorageError."""
        try:
            self.active.create_files()
        except OSError as error:
            raise self.root.failed(error) from error
        self.files_begun()
        self.root.watermarks_moved = True  # it is 0, and from here on there is something that is not below it

    @property
    def active_file(self) -> File:
        """The file to sync: after its `sync`, everything appended before this call is on stable storage."""
        if not self.active.is_begun:
            self.begin_segment()
        self._settle_rolled()
        self._pin(self.active.handle)
        file = self.active.handle.file
        assert file is not None
        return file

    def unsynced(self) -> SyncTicket | None:
        """What to sync next, oldest first; None when everything is stable. Tell `mark_synced` when it is done.

        Raises StorageError.
        """
        if self.recovery_point >= self.log_end_offset or self.half_done:
            return None
        if self._names_unsynced:
            shared = self._shared_names
            return shared if shared and shared.names_version == self._names_version else self.unsynced_names()
        segment = self.segment_of(self.recovery_point)
        end_offset = self.log_end_offset if segment is self.active else self._following(segment).base_offset
        try:
            self._pin(segment.handle)
        except OSError as error:
            raise self.root.failed(error) from error
        file = segment.handle.file
        assert file is not None
        return SyncTicket(file, end_offset, self._generation)

    def mark_synced(self, synced: SyncTicket | int) -> None:
        """Everything below the offset is stable. A ticket from before a truncation counts for nothing; an int must not be one."""
        if isinstance(synced, SyncTicket):
            if synced.names_version == self._names_version:
                self._names_synced()
            if synced.generation != self._generation:
                return
            synced = synced.end_offset
        if synced > self.recovery_point:
            self.recovery_point = min(synced, self.log_end_offset)
            self.unflushed_since_ms = -1
            if self.recovery_point >= self.active.base_offset:
                self.root.rolled.pop(self, None)
                if self.recovery_point >= self.log_end_offset:
                    self._unpin()

    def note_flush_settings(self) -> None:
        """Has the timer look at this log, if ``flush.messages`` or ``flush.ms`` is set."""
        if self.config.flush_messages < FOREVER or self.config.flush_ms < FOREVER:
            self.root.flushed[self] = None
            if self.root.on_flush_settings is not None:
                self.root.on_flush_settings()
        else:
            self.root.flushed.pop(self, None)

    def flush_is_due(self, now_ms: int) -> bool:
        """Whether ``flush.messages`` or ``flush.ms`` asks for a sync. Called on a timer for logs that set them."""
        unflushed = self.log_end_offset - self.recovery_point
        if unflushed <= 0:
            return False
        if self.unflushed_since_ms < 0:
            self.unflushed_since_ms = now_ms
        config = self.config
        return unflushed >= config.flush_messages or now_ms - self.unflushed_since_ms >= config.flush_ms

    def flush(self) -> None:
        """Makes everything durable: data, names, epochs. Milliseconds. Raises StorageError."""
        try:
            self._flush(self.log_end_offset)
        except OSError as error:
            raise self.root.failed(error) from error

    def _flush(self, end_offset: int) -> None:
        """Syncs the segments that hold anything of [recovery point, ``end_offset``)."""
        self.finish_cut()
        if self.recovery_point < end_offset:
            for segment in self.segments[self.segments.index(self.segment_of(self.recovery_point)) :]:
                if segment.base_offset < end_offset:
                    segment.write_indexes()
                    segment.sync()
        self.sync_names()
        self.mark_synced(end_offset)
        self.settle()

    def floor_of(self, offset: int) -> int:
        """No truncation to ``offset`` leaves the log's end below this, unless it leaves nothing."""
        first = self.segments[0].base_offset
        return min(offset if offset <= first else self.segment_of(offset).base_offset, self.log_end_offset)

    def cut_sync(self) -> tuple[EverythingSync, int]:
        """What makes a cut stable, its own and others' of this directory; and what to tell `cut_synced` afterwards."""
        return EverythingSync(self.disk, self.root.path), self._generation

    def cut_synced(self, generation: int) -> None:
        """The sync is through. It was not for a cut that was made since."""
        if generation == self._generation:
            self.cut_unsynced = False

    def finish_cut(self) -> None:
        """Makes a cut stable, if one is not. Raises StorageError."""
        if not self.cut_unsynced:
            return
        self.require_whole()
        try:
            if self.active.is_begun:  # else a beginning anew failed behind the cut, and no file is left
                self.active.handle.open().sync()
            # Or a snapshot of what was cut off comes back with a crash: also one that went before.
            self.disk.sync_directory(self.directory)
        except OSError as error:
            raise self.root.failed(error) from error
        self.cut_unsynced = False

    def settle(self) -> int:
        """Makes durable what a scan from the recovery point on would not find again; returns the recovery point to save."""
        for segment in self._in_service(self._aborts_unsynced):
            self.write_aborted(segment)
            segment.transactions().sync()
        self.sync_names()
        self._aborts_unsynced = ()
        self.write_epochs()
        for segment in self._in_service(self._unsettled):
            if segment is not self.active or segment.indexes_cut:
                segment.sync_indexes()
        self._unsettled = ()
        return self.recovery_point

    def unsettled(self, segments: tuple[Segment, ...]) -> None:
        """These segments' indexes were written or cut, and not synced."""
        self._unsettled += segments

    def _in_service(self, segments: tuple[Segment, ...]) -> list[Segment]:
        """The others went meanwhile: what they have in memory is nobody's, and their names may be others' by now."""
        return [segment for segment in segments if segment in self.segments]

    def _settle_rolled(self) -> None:
        if self._names_unsynced:
            self.sync_names()
        if self.recovery_point < self.active.base_offset:
            self._flush(self.active.base_offset)

    def _pin(self, handle: CachedFile) -> None:
        # The one before stays open too: a sync of it may still be waiting its turn.
        if not self._pinned or self._pinned[-1] is not handle:
            handle.pin()
            for old in self._pinned[:-1]:
                old.unpin()
            self._pinned = (*self._pinned[-1:], handle)

    def _unpin(self) -> None:
        for handle in self._pinned:
            handle.unpin()
        self._pinned = ()

    # Closing

    def let_go(self) -> None:
        """Closes the files of all segments: they are about to be read anew.

        What is pinned stays so until another is. A sync of it may be waiting its turn, and would find a closed file: that looks as if
        the disk had failed.
        """
        for segment in self.segments:
            segment.close()
        self._unsettled = self._aborts_unsynced = ()

    def close(self) -> None:
        """Makes everything durable, so that the next start finds a clean log. Raises StorageError."""
        try:
            self.require_whole()
            if self.active.grew:
                self.active.finish()
                self.active.sync_indexes()
            self._flush(self.log_end_offset)
            self._snapshot_producers()
        except OSError as error:
            raise self.root.failed(error) from error
        finally:
            self.abandon()

    def close_unsynced(self) -> None:
        """`close` but for the syncs: whoever closes many syncs the whole file system after them. Raises StorageError."""
        try:
            self.require_whole()
            if self.active.grew:
                self.active.finish()
            for segment in self._in_service((*self._unsettled, self.active)):
                segment.write_indexes(may_wait=False)  # else a clean start took what is there for the whole
            for segment in self._in_service(self._aborts_unsynced):
                segment.transactions().write()
            self._snapshot_producers()
            if self.epochs.changed and self.active.is_begun:  # epochs without a record begin anew with the next leader
                write_epochs(self.disk, self.directory, self.epochs.entries(), durable=False)
        except OSError as error:
            raise self.root.failed(error) from error
        finally:
            self.abandon()

    def require_whole(self) -> None:
        """Raises StorageError for a log that has to be read anew."""
        if self.half_done:
            raise StorageError(f"{self.partition}: an operation ended half-way")

    def _snapshot_producers(self) -> None:
        if not self.active.is_begun:
            return  # nobody ever wrote here
        if self.log_end_offset not in producer_snapshot.offsets(self.disk, self.directory):
            # Without a sync: should it be torn, the next start replays the batches.
            self.producers.take_snapshot(self.disk, self.directory, self.log_end_offset, durable=False)

    def abandon(self) -> None:
        """Closes the files and leaves everything else as it is: the directory failed, or the partition goes."""
        self.abandoned = True
        self._unpin()
        for segment in self.segments:
            segment.close()
