"""A partition's log: what is appended, read, cut and kept.

No clock and no event loop: times are given, I/O goes through the disk that is given, and one thread uses a log at a time.
Appending writes synchronously; what is on stable storage is another question (`recovery_point`, `unsynced`, `flush`).
"""

from struct import Struct
from zlib import crc32

from ottla.log import append, cleaned, producer_snapshot, read, recovery, retention, times, truncation
from ottla.log.batch import BatchHeader
from ottla.log.checkpoints import write_epochs
from ottla.log.cleaner_output import CleanedSegment
from ottla.log.cleaner_plan import SegmentInfo
from ottla.log.config import FOREVER, LogConfig
from ottla.log.directory import DirectoryState
from ottla.log.epochs import EpochEntries, LeaderEpochCache
from ottla.log.files import CachedFile, OpenFiles
from ottla.log.names import TopicPartition
from ottla.log.producer_state import CompletedTransaction, Duplicate, Origin, ProducerStateManager
from ottla.log.results import AppendInfo, LogRead, LogSlice, TimestampAndOffset
from ottla.log.segment import Segment
from ottla.log.topic_id import sync_topic_id, write_topic_id
from ottla.log.transactions import AbortedTransaction
from ottla.log.validation import validate_client_batch
from ottla.runtime.disk import Buffer, Disk, File
from ottla.runtime.errors import ErrorCode, KafkaError

# Base offset, batch length and leader epoch: what the leader decides lies together and is stamped in one go.
_STAMP = Struct(">qii").pack_into


class SyncTicket:
    """A sync to be made: when ``file`` was synced, everything below ``end_offset`` is stable; then `Log.mark_synced`."""

    __slots__ = ("end_offset", "file", "generation")

    def __init__(self, file: File, end_offset: int, generation: int) -> None:
        self.file = file
        self.end_offset = end_offset
        self.generation = generation


class Log:
    """One partition's log. Offsets are absolute; ``log_end_offset`` is what the next record will get."""

    __slots__ = (
        "_aborts_unsynced",
        "_directory_unsynced",
        "_epochs_changed",
        "_generation",
        "_names_unsynced",
        "_old_bytes",
        "_pinned",
        "_topic_id_unsynced",
        "_unsettled",
        "active",
        "condemned",
        "config",
        "directory",
        "disk",
        "epochs",
        "files",
        "gaps_allowed",
        "gaps_marked",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "places",
        "producers",
        "recovery_point",
        "root",
        "segments",
        "topic_id",
        "unflushed_since_ms",
    )

    def __init__(
        self, files: OpenFiles, root: DirectoryState, directory: str, partition: TopicPartition, config: LogConfig
    ) -> None:
        """An empty shell: `open` fills it."""
        self.files = files
        self.disk = files.disk
        self.root = root
        self.directory = directory
        self.partition = partition
        self.config = config
        self.topic_id: bytes | None = None
        self.segments: list[Segment] = []
        self.active: Segment
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.recovery_point = 0
        self.set_epochs(())
        self.producers = ProducerStateManager()
        self.gaps_allowed = config.compacted
        self.gaps_marked = False  # on disk
        self.places: dict[int, int] = {}  # offset -> position in its segment, where recent reads ended
        self.condemned: list[tuple[int, str]] = []  # (when to unlink, path)
        self.unflushed_since_ms = -1
        self._old_bytes = 0  # of all segments but the active one
        self._aborts_unsynced: tuple[Segment, ...] = ()
        self._unsettled: tuple[Segment, ...] = ()
        self._epochs_changed = False
        self._names_unsynced = self._directory_unsynced = self._topic_id_unsynced = False
        self._generation = 0
        self._pinned: tuple[CachedFile, ...] = ()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        clean_shutdown: bool = False,
        topic_id: bytes | None = None,
        files: OpenFiles | None = None,
        root: DirectoryState | None = None,
    ) -> "Log":
        """Opens the log in ``directory``, or creates it, and recovers it: what may be torn is read and cut at the first bad byte.

        Everything below ``recovery_point`` is taken as sound, everything at all after a clean shutdown. What was only
        read and not synced stays above ``log.recovery_point``: `flush` makes it durable. Raises StorageError.
        """
        log = cls(files or OpenFiles(disk), root or DirectoryState(directory), directory, partition, config)
        try:
            recovery.recover(log, recovery_point, log_start_offset, now_ms, clean=clean_shutdown, topic_id=topic_id)
        except OSError as error:
            raise log.root.failed(error) from error
        log.set_high_watermark(high_watermark)
        return log

    # What it is

    @property
    def last_epoch(self) -> int:
        return self.epochs.latest_epoch

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open: how far read_committed consumers see."""
        first_unstable = self.producers.first_unstable_offset
        high_watermark = self.high_watermark
        return high_watermark if first_unstable is None or first_unstable > high_watermark else first_unstable

    @property
    def size_bytes(self) -> int:
        return self._old_bytes + self.active.size

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers it; (-1, -1) when the epoch is unknown (kraft.md 4.9)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def configure(self, config: LogConfig) -> None:
        """Changed topic settings: they hold from the next append on."""
        self.config = config
        self.gaps_allowed = self.gaps_allowed or config.compacted
        self.active.configure(config)
        truncation.set_roll_time(self)

    def set_topic_id(self, topic_id: bytes) -> None:
        """Writes ``partition.metadata``. It becomes durable with the first sync of the log. Raises StorageError."""
        try:
            write_topic_id(self.disk, self.directory, topic_id)
        except OSError as error:
            raise self.root.failed(error) from error
        self.topic_id = topic_id
        self._topic_id_unsynced = True
        self.names_changed()

    # Appending

    def append_as_leader(
        self,
        view: memoryview | bytearray,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        *,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Appends exactly one batch, stamped in place with its offset and epoch; ``view`` is not kept.

        ``origin`` COORDINATOR is for batches that the broker made itself: markers, offsets, transaction states. A repeated
        batch is answered with its earlier offsets. Raises KafkaError: what `validate_client_batch` and the producer state
        refuse, RECORD_LIST_TOO_LARGE, FENCED_LEADER_EPOCH, and StorageError when the directory takes nothing.
        """
        if not self.root.writable:
            self.root.refuse()
        if origin is not Origin.CLIENT:
            return append.append_own(self, view, leader_epoch, now_ms, origin, transaction_version)
        config = self.config
        header = validate_client_batch(view, config, now_ms)
        if header.producer_id >= 0:
            duplicate = self.producers.check(header)
            if duplicate is not None:
                return self.answer_duplicate(duplicate, header)
        if config.compression_type != "producer":
            view, header = append.recompressed(view, header, config)
        return self.append_checked(view, header, leader_epoch, now_ms)

    def append_checked(
        self, view: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """The second half of `append_as_leader`, for a batch that passed its checks (and was recompressed on a thread)."""
        offset = self.log_end_offset
        size = len(view)
        if leader_epoch != self.epochs.latest_epoch:
            append.begin_epoch(self, leader_epoch)
        _STAMP(view, 0, offset, header.batch_length, leader_epoch)
        last_offset = offset + header.last_offset_delta
        max_timestamp = header.max_timestamp
        segment = self.active
        time = max_timestamp if max_timestamp >= 0 else now_ms
        if (
            segment.size + size > segment.size_limit
            or time > segment.roll_after_ms
            or last_offset > segment.offset_limit
        ):
            segment = append.make_room(self, size, last_offset, time)
        try:
            segment.append(view, last_offset, max_timestamp)
        except OSError as error:
            raise self.root.failed(error) from error
        self.log_end_offset = last_offset + 1
        if segment.size == size:
            truncation.set_roll_time(self, time)
        if header.producer_id >= 0:
            self.producers.update(header, offset)
        append_time = max_timestamp if header.attributes & 0x08 else -1  # LOG_APPEND_TIME
        return AppendInfo(offset, last_offset, max_timestamp, append_time, self.log_start_offset, False, size)

    def answer_duplicate(self, duplicate: Duplicate, header: BatchHeader) -> AppendInfo:
        append_time = duplicate.timestamp if header.attributes & 0x08 else -1
        return AppendInfo(
            duplicate.first_offset,
            duplicate.last_offset,
            duplicate.timestamp,
            append_time,
            self.log_start_offset,
            True,
            0,
        )

    def append_as_follower(self, view: Buffer, leader_epoch: int | None = None) -> AppendInfo:
        """Appends batches that have their offsets, at or behind the log end; a partial one at the end is left out.

        Batches of an epoch above ``leader_epoch`` are left out with all that follow (None: none are). Raises
        CorruptBatchError, KafkaError (OFFSET_OUT_OF_RANGE) when offsets go back, StorageError.
        """
        if not self.root.writable:
            self.root.refuse()
        return append.append_as_follower(self, view, leader_epoch)

    def roll(self) -> None:
        """Closes the active segment and begins another at the log end. An empty active segment stays."""
        if self.active.size:
            append.roll(self, self.log_end_offset)

    def note_completed(self, transaction: CompletedTransaction) -> None:
        """Puts a transaction whose marker is in the log into the index of aborted ones."""
        if transaction.aborted:
            segment = self.segment_of(transaction.last_offset)
            entries = segment.transactions().entries()
            if not entries or entries[-1].last_offset < transaction.last_offset:
                producer_id, first, last, _, last_stable = transaction
                segment.transactions().append(AbortedTransaction(producer_id, first, last, last_stable))
                if segment not in self._aborts_unsynced:
                    self._aborts_unsynced += (segment,)

    # Reading

    def read(self, offset: int, max_bytes: int, limit_offset: int = FOREVER, *, minimum_one: bool = True) -> LogRead:
        """Up to ``max_bytes`` of whole batches from the one that holds ``offset`` on, all below ``limit_offset``.

        With ``minimum_one`` the first batch comes even if it is larger. Raises KafkaError (OFFSET_OUT_OF_RANGE) outside
        [log start, log end], DamagedLogError for bytes that are not what was written, StorageError.
        """
        return read.read(self, offset, max_bytes, limit_offset, minimum_one)

    def locate(self, offset: int, max_bytes: int, limit_offset: int = FOREVER, *, minimum_one: bool = True) -> LogSlice:
        """`read` without reading: where the bytes lie, for sendfile or a thread. Raises as `read`."""
        return read.locate(self, offset, max_bytes, limit_offset, minimum_one)

    def bytes_between(self, start_offset: int, end_offset: int) -> int:
        """About how many bytes lie between two offsets: exact at batch boundaries that were read or indexed of late."""
        return read.bytes_between(self, start_offset, end_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [start, end): what a read_committed consumer must skip."""
        return read.aborted_transactions(self, start_offset, end_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record at or after ``timestamp`` (ListOffsets); None when there is none. Raises DamagedLogError."""
        return times.offset_for_timestamp(self, timestamp)

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """The record with the largest timestamp, the first of them; None for a log without times."""
        return times.max_timestamp_offset(self)

    def segment_of(self, offset: int) -> Segment:
        """The segment that holds ``offset``, or would."""
        active = self.active
        return active if offset >= active.base_offset else read.segment_before(self.segments, offset)

    # Moving its ends

    def set_high_watermark(self, offset: int) -> None:
        """Moves the high watermark, clamped to the log. Whether it may go back is the caller's rule."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset < self.log_start_offset:
            offset = self.log_start_offset
        if offset != self.high_watermark:
            self.high_watermark = offset
            self.root.watermarks_moved = True
            if self.producers.first_unstable_offset is not None:
                self.producers.on_high_watermark(offset)

    def advance_log_start(self, offset: int) -> None:
        """DeleteRecords: what lies below ``offset`` is gone for readers; segments go with the next deletion.

        Raises KafkaError (OFFSET_OUT_OF_RANGE) beyond the high watermark. An offset below the log start changes nothing.
        """
        if offset > self.high_watermark:
            message = f"{self.partition}: log start {offset} would pass the high watermark {self.high_watermark}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def truncate_to(self, offset: int) -> bool:
        """Cuts off every batch that holds ``offset`` or lies behind it, durably; False when nothing lies there.

        Raises StorageError.
        """
        return truncation.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything; the log is empty and begins at ``offset``. Raises StorageError."""
        truncation.truncate_fully_and_start_at(self, offset)

    def delete_old_segments(self, now_ms: int) -> list[int]:
        """Retention: condemns segments that are too old, too many or below the log start; returns their base offsets.

        ``now_ms`` is wall time. The files are unlinked by `purge` after ``file.delete.delay.ms``.
        """
        return retention.delete_old_segments(self, now_ms)

    def purge(self, now_ms: int) -> int:
        """Unlinks condemned files whose time has come; returns how many wait."""
        return retention.purge(self, now_ms)

    # Durability

    @property
    def active_file(self) -> File:
        """The file to sync: after its `sync`, everything appended before this call is on stable storage."""
        self._settle_rolled()
        self._pin(self.active.handle)
        file = self.active.handle.file
        assert file is not None
        return file

    def unsynced_file(self) -> File | None:
        """`active_file`, or None when everything is stable."""
        return self.active_file if self.recovery_point < self.log_end_offset else None

    def unsynced(self) -> SyncTicket | None:
        """What to sync next, oldest first; None when everything is stable. Tell `mark_synced` when it is done."""
        if self.recovery_point >= self.log_end_offset:
            return None
        segment = self.segment_of(self.recovery_point)
        end_offset = self.log_end_offset if segment is self.active else self._following(segment).base_offset
        if self._names_unsynced:
            self.sync_names()
        self._pin(segment.handle)
        file = segment.handle.file
        assert file is not None
        return SyncTicket(file, end_offset, self._generation)

    def mark_synced(self, synced: SyncTicket | int) -> None:
        """Everything below the offset is stable. A ticket from before a truncation counts for nothing; an int must not be one."""
        if isinstance(synced, SyncTicket):
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
        if self.recovery_point < end_offset:
            for segment in self.segments[self.segments.index(self.segment_of(self.recovery_point)) :]:
                if segment.base_offset < end_offset:
                    segment.write_indexes()
                    segment.sync()
        self.mark_synced(end_offset)
        self.settle()

    def settle(self) -> int:
        """Makes durable what a scan from the recovery point on would not find again; returns the recovery point to save."""
        self.sync_names()
        self.write_epochs()
        for segment in self._aborts_unsynced:
            segment.transactions().sync()
        self._aborts_unsynced = ()
        for segment in self._unsettled:
            if segment is not self.active and segment in self.segments:
                segment.sync_indexes()
        self._unsettled = ()
        return self.recovery_point

    def unsettled(self, segments: tuple[Segment, ...]) -> None:
        """These segments' indexes were written and not synced."""
        self._unsettled += segments

    def sync_names(self) -> None:
        """Makes created and removed file names durable."""
        if self._names_unsynced:
            if self._topic_id_unsynced:
                sync_topic_id(self.disk, self.directory)
                self._topic_id_unsynced = False
            self.disk.sync_directory(self.directory)
            if self._directory_unsynced:
                self.disk.sync_directory(self.directory.rpartition("/")[0] or ".")
            self._names_unsynced = self._directory_unsynced = False

    def names_changed(self, *, created: bool = False) -> None:
        """A file name changed; ``created``: the directory's own did."""
        self._names_unsynced = True
        self._directory_unsynced = self._directory_unsynced or created

    def distrust_names(self) -> None:
        """After a kill: whatever the last process created may be in the kernel's memory only."""
        self._topic_id_unsynced = self.topic_id is not None
        self.names_changed(created=True)

    def write_epochs(self) -> None:
        """Writes the leader-epoch checkpoint if it changed, durably. The scan after a crash finds later epochs in the batches."""
        if self._epochs_changed:
            write_epochs(self.disk, self.directory, self.epochs.entries())
            self._epochs_changed = False

    def close(self) -> None:
        """Makes everything durable, so that the next start finds a clean log. Raises StorageError."""
        try:
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
            if self.active.grew:
                self.active.finish()
            self._snapshot_producers()
            if self._epochs_changed:
                write_epochs(self.disk, self.directory, self.epochs.entries(), durable=False)
        except OSError as error:
            raise self.root.failed(error) from error
        finally:
            self.abandon()

    def _snapshot_producers(self) -> None:
        if self.log_end_offset not in producer_snapshot.offsets(self.disk, self.directory):
            # Without a sync: should it be torn, the next start replays the batches.
            self.producers.take_snapshot(self.disk, self.directory, self.log_end_offset, durable=False)

    def abandon(self) -> None:
        """Closes the files and leaves everything else as it is: the directory failed, or the partition goes."""
        self._unpin()
        for segment in self.segments:
            segment.close()

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

    # For the cleaner (`ottla.log.cleaner_manager.CleanableLog`)

    @property
    def active_base_offset(self) -> int:
        return self.active.base_offset

    def closed_segments(self) -> list[SegmentInfo]:
        """Segments that may be cleaned, in order."""
        return cleaned.closed_segments(self)

    def install_cleaned(self, result: CleanedSegment) -> None:
        """Takes a cleaned segment in. Raises StorageError."""
        cleaned.install_cleaned(self, result)

    # For the modules of this package

    def _following(self, segment: Segment) -> Segment:
        return self.segments[self.segments.index(segment) + 1]

    def next_base_offset(self, segment: Segment) -> int:
        """Where the next segment begins, or the log end."""
        return self.log_end_offset if segment is self.active else self._following(segment).base_offset

    def set_segments(self, segments: list[Segment]) -> None:
        """The log's segments, rising; the last one is active."""
        self.segments = segments
        self.active = segments[-1]
        self._old_bytes = sum(segment.size for segment in segments[:-1])
        self.places.clear()

    def set_epochs(self, entries: EpochEntries) -> None:
        self.epochs = LeaderEpochCache(entries, self._on_epochs)

    def note_epoch(self, epoch: int, start_offset: int) -> None:
        """A batch of this epoch is in the log at this offset."""
        if epoch > self.epochs.latest_epoch:
            self.epochs.assign(epoch, start_offset)

    def truncated(self) -> None:
        """Something below the log end went: what others remember of it is void."""
        self._generation += 1
        self.places.clear()

    def jitter_ms(self, base_offset: int) -> int:
        """How much earlier a segment rolls, so that partitions do not all roll at once. Always the same for the same segment."""
        jitter = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return crc32(f"{self.partition}@{base_offset}".encode()) % jitter if jitter > 0 else 0

    def _on_epochs(self, entries: EpochEntries) -> None:
        self._epochs_changed = True
