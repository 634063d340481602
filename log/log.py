"""A partition's log: what is appended, read, cut and kept.

No clock and no event loop: times are given, I/O goes through the disk that is given, and one thread uses a log at a time.
Appending writes synchronously; what is on stable storage is another question (`ottla.log.durable_log`).
"""

from struct import Struct

from ottla.log import aborted, append, read, recovery, reopening, retention, times, truncation
from ottla.log.batch import LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader
from ottla.log.compaction import cleaned
from ottla.log.compaction.output import CleanedSegment
from ottla.log.compaction.plan import SegmentInfo
from ottla.log.config import FOREVER, LogConfig
from ottla.log.directories.directory import DirectoryState
from ottla.log.durable_log import DurableLog, SyncTicket
from ottla.log.errors import StorageError
from ottla.log.names import TopicPartition
from ottla.log.producers.state import CompletedTransaction, Duplicate, Origin
from ottla.log.records import DECOMPRESSED_BYTES_MAX
from ottla.log.results import AppendInfo, LogRead, LogSlice, TimestampAndOffset
from ottla.log.segments.open_files import OpenFiles
from ottla.log.segments.scrub import SegmentScrub
from ottla.log.segments.transactions import AbortedTransaction
from ottla.log.validation import validate_client_batch
from ottla.runtime.disk import Buffer, Disk
from ottla.runtime.errors import ErrorCode, KafkaError

__all__ = ["Log", "SyncTicket"]

# Base offset, batch length and leader epoch: what the leader decides lies together and is stamped in one go.
_STAMP = Struct(">qii").pack_into


class Log(DurableLog):
    """One partition's log."""

    __slots__ = ()

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
        stable_offset: int = 0,
    ) -> "Log":
        """Opens the log in ``directory``, or creates it, and recovers it: what may be torn is read and cut at the first bad byte.

        Everything below ``recovery_point`` is taken as sound, everything at all after a clean shutdown. What was only
        read and not synced stays above ``log.recovery_point``: `flush` makes it durable. ``stable_offset``: below it nothing
        can be torn, so nothing is cut. ``topic_id``: as the directory's own file has it, for want of which that is read. Raises
        StorageError, DamagedLogError (the log ends below ``stable_offset``).
        """
        log = cls(files or OpenFiles(disk), root or DirectoryState(directory), directory, partition, config)
        log.half_done = True
        try:
            recovery.recover(
                log,
                recovery_point,
                log_start_offset,
                now_ms,
                clean=clean_shutdown,
                topic_id=topic_id,
                stable_offset=stable_offset,
            )
        except OSError as error:
            log.abandon()
            raise log.root.failed(error) from error
        except KafkaError:
            log.abandon()
            raise
        log.half_done = False
        log.set_high_watermark(high_watermark)
        log.note_flush_settings()
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
        self.note_flush_settings()
        self.note_must_sync()
        truncation.set_roll_time(self)

    # Appending

    def append_as_leader(
        self,
        view: memoryview | bytearray,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        *,
        transaction_version: int = 0,
        verified: bool = False,
        inflated_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    ) -> AppendInfo:
        """Appends exactly one batch, stamped in place with its offset and epoch; ``view`` is not kept.

        ``origin`` COORDINATOR is for batches that the broker made itself: markers, offsets, transaction states. A repeated
        batch is answered with its earlier offsets. ``verified``: the coordinator knows the transaction that a client's batch
        says it is of; without that it is refused, for nobody would ever end it. Raises KafkaError: what
        `validate_client_batch` and the producer state refuse, INVALID_TXN_STATE, RECORD_LIST_TOO_LARGE, FENCED_LEADER_EPOCH,
        and StorageError when the directory takes nothing.
        """
        if not self.root.writable:
            self.root.refuse()
        if self.half_done:
            reopening.refuse(self)
        if origin is not Origin.CLIENT:
            return append.append_own(self, view, leader_epoch, now_ms, origin, transaction_version)
        config = self.config
        header = validate_client_batch(view, config, now_ms, inflated_bytes_max=inflated_bytes_max)
        if header.producer_id >= 0:
            duplicate = self.producers.check(header)
            if duplicate is not None:
                return self.answer_duplicate(duplicate, header)
            if header.attributes & TRANSACTIONAL and not verified:
                append.refuse_unverified(header)
        if config.compression_type != "producer":
            view, header = append.recompressed(view, header, config)
        return self.append_checked(view, header, leader_epoch, now_ms)

    def append_prepared(
        self, view: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """`append_as_leader` for a client's batch that went through `validation.prepare` before. Raises as it does."""
        return append.append_prepared(self, view, header, leader_epoch, now_ms)

    def append_checked(
        self, view: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """The second half of `append_as_leader`, for a batch that passed its checks."""
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
        append_time = max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        return AppendInfo(offset, last_offset, max_timestamp, append_time, self.log_start_offset, False, size)

    def note_completed(self, transaction: CompletedTransaction) -> None:
        """A transaction's marker is in the log: if it was aborted, the index of its segment says so. Raises StorageError."""
        if transaction.aborted:
            try:
                aborted.note(self, self.segment_of(transaction.last_offset), transaction)
            except OSError as error:
                raise self.root.failed(error) from error

    def answer_duplicate(self, duplicate: Duplicate, header: BatchHeader) -> AppendInfo:
        append_time = duplicate.timestamp if header.attributes & LOG_APPEND_TIME else -1
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
        if self.half_done:
            reopening.refuse(self)
        return append.append_as_follower(self, view, leader_epoch)

    def make_whole(self) -> None:
        """For whoever takes a role with this log, and must know where it ends: reads it anew if an operation ended half-way.

        Raises StorageError when that does not work yet.
        """
        if self.half_done and not reopening.reopen(self):
            raise StorageError(f"{self.partition}: an operation ended half-way, and the log cannot be read anew yet")

    def roll(self) -> None:
        """Closes the active segment and begins another at the log end. An empty active segment stays."""
        if self.half_done:
            reopening.refuse(self)
        if self.active.size:
            append.roll(self, self.log_end_offset)

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        limit_offset: int = FOREVER,
        *,
        minimum_one: bool = True,
        wait: bool = True,
    ) -> LogRead:
        """Up to ``max_bytes`` of whole batches from the one that holds ``offset`` on, all below ``limit_offset``.

        Without ``wait`` it raises ColdReadError where the disk would have to be waited for.

        With ``minimum_one`` the first batch comes even if it is larger. Raises KafkaError (OFFSET_OUT_OF_RANGE) outside
        [log start, log end], DamagedLogError for bytes that are not what was written, StorageError.
        """
        if self.half_done:
            reopening.refuse(self)
        return read.read(self, offset, max_bytes, limit_offset, minimum_one, wait)

    def recheck(self, offset: int, max_bytes: int) -> None:
        """Checks what `read` would give, though this process wrote or checked it before: somebody doubts it.

        Raises as `read`; what is around the damage is then trusted no more.
        """
        if self.half_done:
            reopening.refuse(self)
        read.recheck(self, offset, max_bytes)

    def scrub_from(self, offset: int) -> SegmentScrub | None:
        """Begins to look at the segment that holds ``offset``, from there on; None at the log end. Raises as `read`."""
        if self.half_done:
            reopening.refuse(self)
        return read.scrub_from(self, offset)

    def rebuild_indexes(self, base_offset: int) -> None:
        """Makes the indexes of a segment anew, if it is still there. Raises StorageError."""
        for segment in self.segments:
            if segment.base_offset == base_offset:
                try:
                    segment.rebuild_indexes()
                except OSError as error:
                    raise self.root.failed(error) from error

    def locate(self, offset: int, max_bytes: int, limit_offset: int = FOREVER, *, minimum_one: bool = True) -> LogSlice:
        """`read` without reading: where the bytes lie, for sendfile or a thread. Raises as `read`."""
        if self.half_done:
            reopening.refuse(self)
        return read.locate(self, offset, max_bytes, limit_offset, minimum_one)

    def bytes_between(self, start_offset: int, end_offset: int) -> int:
        """About how many bytes lie between two offsets: exact at batch boundaries that were read or indexed of late.

        Raises StorageError.
        """
        if self.half_done:
            reopening.refuse(self)
        try:
            return read.bytes_between(self, start_offset, end_offset)
        except OSError as error:
            raise self.root.failed(error) from error

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [start, end): what a read_committed consumer must skip."""
        if self.half_done:
            reopening.refuse(self)
        try:
            return read.aborted_transactions(self, start_offset, end_offset)
        except OSError as error:
            raise self.root.failed(error) from error

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record at or after ``timestamp``; None when there is none. Raises DamagedLogError, StorageError."""
        if self.half_done:
            reopening.refuse(self)
        return times.offset_for_timestamp(self, timestamp)

    def search(self, timestamp: int) -> times.Search:
        """`offset_for_timestamp` for those who must not wait (ListOffsets): see `ottla.log.times`."""
        if self.half_done:
            reopening.refuse(self)
        return times.search(self, timestamp)

    def largest_timestamp(self) -> int:
        """The largest timestamp that a batch says it has, -1 for a log without times. Raises as `offset_for_timestamp`."""
        if self.half_done:
            reopening.refuse(self)
        return times.largest_timestamp(self)

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

    def truncate_to(self, offset: int, *, sync: bool = True) -> bool:
        """Cuts off every batch that holds ``offset`` or lies behind it, durably; False when nothing lies there.

        Epochs that began at or behind the end then go in either case (Kafka's UnifiedLog.truncateTo). Without ``sync`` the
        caller sees to that (`cut_sync`, `finish_cut`) before anything is appended. Raises StorageError.
        """
        if self.half_done:
            reopening.refuse(self)
        return truncation.truncate_to(self, offset, sync=sync)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything; the log is empty and begins at ``offset``. Raises StorageError."""
        if self.half_done:
            reopening.refuse(self)
        truncation.truncate_fully_and_start_at(self, offset)

    def delete_old_segments(self, now_ms: int) -> list[int]:
        """Retention: condemns segments that are too old, too many or below the log start; returns their base offsets.

        ``now_ms`` is wall time. The files are unlinked by `purge` after ``file.delete.delay.ms``.
        """
        if self.half_done:
            reopening.refuse(self)
        return retention.delete_old_segments(self, now_ms)

    def purge(self, now_ms: int) -> int:
        """Unlinks condemned files whose time has come; returns how many wait."""
        return retention.purge(self, now_ms)

    def take_due(self, now_ms: int) -> list[str]:
        """The condemned files whose time has come, for the caller to unlink."""
        return retention.take_due(self, now_ms)

    # For the cleaner (`ottla.log.compaction.manager.CleanableLog`)

    @property
    def active_base_offset(self) -> int:
        return self.active.base_offset

    def closed_segments(self) -> list[SegmentInfo]:
        """Segments that may be cleaned, in order."""
        return [] if self.half_done else cleaned.closed_segments(self)

    def ensure_aborted(self) -> None:
        """Makes transaction indexes anew that cannot be right. Raises StorageError."""
        try:
            for segment in self.segments:
                aborted.ensure(self, segment)
        except OSError as error:
            raise self.root.failed(error) from error

    def install_cleaned(self, result: CleanedSegment) -> None:
        """Takes a cleaned segment in. Raises StorageError."""
        if self.half_done:
            reopening.refuse(self)
        cleaned.install_cleaned(self, result)
