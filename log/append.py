"""Appending as a leader, whole: from a client's bytes to the segment. The hot path of a produce request.

A batch is checked, stamped in place with its offset and epoch, and written with one write. What followers and the broker itself
append is in `ottla.log.follow`.
"""

from struct import Struct

from ottla.log import reopening, truncation
from ottla.log.batch import LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader, read_header
from ottla.log.config import LogConfig
from ottla.log.durable_log import DurableLog
from ottla.log.producers.state import Duplicate
from ottla.log.producers.verification import UnverifiedError
from ottla.log.records import DECOMPRESSED_BYTES_MAX
from ottla.log.results import AppendInfo
from ottla.log.segments.segment import Segment
from ottla.log.validation import recompress, target_codec, validate_client_batch
from ottla.runtime.errors import ErrorCode, KafkaError

# Base offset, batch length and leader epoch: what the leader decides lies together and is stamped in one go.
_STAMP = Struct(">qii").pack_into


class LeaderLog(DurableLog):
    """A log as its leader appends to it."""

    __slots__ = ()

    def append_as_leader(
        self,
        view: memoryview | bytearray,
        leader_epoch: int,
        now_ms: int,
        *,
        verified: bool = False,
        inflated_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    ) -> AppendInfo:
        """Appends exactly one batch of a client, stamped in place with its offset and epoch; ``view`` is not kept.

        A repeated batch is answered with its earlier offsets. ``verified``: the coordinator knows the transaction that the
        batch begins here; without that it is refused, for nobody would ever end it. Raises KafkaError: what
        `validate_client_batch` and the producer state refuse, UnverifiedError, RECORD_LIST_TOO_LARGE, FENCED_LEADER_EPOCH,
        and StorageError when the directory takes nothing.
        """
        if not self.root.writable:
            self.root.refuse()
        if self.half_done:
            reopening.refuse(self)
        config = self.config
        header = validate_client_batch(view, config, now_ms, inflated_bytes_max=inflated_bytes_max)
        if header.producer_id >= 0:
            if header.attributes & TRANSACTIONAL and not verified:
                self._require_open(header)
            duplicate = self.producers.check(header)
            if duplicate is not None:
                return self._answer_duplicate(duplicate, header)
        if config.compression_type != "producer":
            view, header = _recompressed(view, header, config)
        return self._append_checked(view, header, leader_epoch, now_ms)

    def append_prepared(
        self,
        view: memoryview | bytearray,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        *,
        verified: bool = False,
        has_codec: bool = True,
    ) -> AppendInfo:
        """`append_as_leader` for a client's batch that went through `validation.prepare` before, or without ``has_codec`` only through
        `validate_client_batch`: what that stamped is no client's any more, and would be refused. Raises as it does."""
        if not self.root.writable:
            self.root.refuse()
        if self.half_done:
            reopening.refuse(self)
        if header.producer_id >= 0:
            if header.attributes & TRANSACTIONAL and not verified:
                self._require_open(header)
            duplicate = self.producers.check(header)
            if duplicate is not None:
                return self._answer_duplicate(duplicate, header)
        if not has_codec and self.config.compression_type != "producer":
            view, header = _recompressed(view, header, self.config)
        return self._append_checked(view, header, leader_epoch, now_ms)

    def _append_checked(
        self, view: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """Stamps and writes a batch that passed its checks."""
        offset = self.log_end_offset
        size = len(view)
        if leader_epoch != self.epochs.latest_epoch:
            self._begin_epoch(leader_epoch)
        _STAMP(view, 0, offset, header.batch_length, leader_epoch)
        last_offset = offset + header.last_offset_delta
        max_timestamp = header.max_timestamp
        segment = self.active
        if not segment.size and segment.base_offset != offset:
            segment = self._begin_segment_at(offset)
        time = max_timestamp if max_timestamp >= 0 else now_ms
        if (
            segment.size + size > segment.size_limit
            or time > segment.roll_after_ms
            or last_offset > segment.offset_limit
        ):
            segment = self._make_room(size, last_offset)
        if not segment.is_begun:
            self.begin_segment()
        try:
            segment.append(view, last_offset, max_timestamp)
        except OSError as error:
            raise self.root.failed(error) from error
        self.log_end_offset = last_offset + 1
        if segment.size == size:
            self.set_roll_time(time)
        if header.producer_id >= 0:
            self.producers.update(header, offset)
        append_time = max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        return AppendInfo(offset, last_offset, max_timestamp, append_time, self.log_start_offset, False, size)

    def _require_open(self, header: BatchHeader) -> None:
        """Raises UnverifiedError unless the batch's transaction is under way here."""
        if not self.producers.has_open(header.producer_id, header.producer_epoch):
            raise UnverifiedError(header)

    def _answer_duplicate(self, duplicate: Duplicate, header: BatchHeader) -> AppendInfo:
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

    def _begin_epoch(self, leader_epoch: int) -> None:
        """Notes a new leader epoch at the log end. Raises KafkaError (FENCED_LEADER_EPOCH) for one that is over."""
        latest = self.epochs.latest_epoch
        if leader_epoch < latest:
            message = f"{self.partition}: append with leader epoch {leader_epoch}, the log has {latest}"
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, message)
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def _begin_segment_at(self, base_offset: int) -> Segment:
        """The active segment, which is empty, begins at ``base_offset``, and nowhere else. Raises StorageError.

        It begins elsewhere where it was made for a leader's batch that then found no room: below the log start, or behind a gap. What
        is appended at the log end has no place in it: a start would miss what is between, and cut it off.
        """
        if self.active.base_offset != base_offset:
            truncation.restart_empty_at(self, base_offset)
        return self.active

    def _make_room(self, size: int, last_offset: int) -> Segment:
        """The segment that takes a batch the active one may not: too large, too late, or its indexes are full.

        Raises KafkaError (RECORD_LIST_TOO_LARGE) for a batch that fits no segment, StorageError.
        """
        if size > self.config.segment_bytes:
            message = f"batch of {size} bytes, segment.bytes is {self.config.segment_bytes}"
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        if self.active.size or last_offset > self.active.offset_limit:
            self._roll_at(self.log_end_offset)
        return self.active

    def roll(self) -> None:
        """Closes the active segment and begins another at the log end. An empty active segment stays."""
        if self.half_done:
            reopening.refuse(self)
        if self.active.size:
            self._roll_at(self.log_end_offset)

    def _roll_at(self, base_offset: int) -> None:
        """Ends the active segment and begins one at ``base_offset``. Raises StorageError; the log is then as it was.

        The new segment's ``.log`` comes last: with it the roll has happened, and nothing before it means anything to a start.
        """
        self.finish_cut()  # of this segment: nobody would sync it, or look into it, once another begins behind it
        old = self.active
        if base_offset != self.log_end_offset:
            self.flush()  # a start could not tell this gap from records that a power cut took
        try:
            old.finish()
            segment = Segment(self.files, self.directory, base_offset, self.config)
            if base_offset == old.base_offset:  # nothing in it: the file is kept
                return
            self.producers.take_snapshot(self.disk, self.directory, base_offset, durable=False)
            segment.create_files()
        except OSError as error:
            raise self.root.failed(error) from error
        self.names_changed()
        self.set_segments([*self.segments, segment])
        old.forget_indexes()
        self.root.rolled[self] = None
        self.unsettled((old,))


def _recompressed(
    view: memoryview | bytearray, header: BatchHeader, config: LogConfig
) -> tuple[memoryview | bytearray, BatchHeader]:
    """The batch in the topic's own codec. Whoever must not wait has it prepared on a thread before."""
    if target_codec(header, config) is None:
        return view, header
    batch = recompress(view, header, config)
    return batch, read_header(batch)
