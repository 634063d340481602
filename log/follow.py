"""Appending what a client did not send: a leader's batches on its followers, and batches of the broker's own on a leader."""

from ottla.log import aborted, gaps, reopening, truncation
from ottla.log.append import LeaderLog
from ottla.log.batch import CONTROL, HEADER_BYTES, BatchHeader, CorruptBatchError, check_crc, read_header
from ottla.log.producers.state import CompletedTransaction, Origin
from ottla.log.records import RecordError, read_end_marker
from ottla.log.results import AppendInfo
from ottla.log.segments.layout import RELATIVE_OFFSET_MAX
from ottla.log.segments.segment import Segment
from ottla.log.validation import validate_follower_batches
from ottla.runtime.disk import Buffer

Batches = list[tuple[int, BatchHeader]]
"""Headers, each with its position in the bytes that came."""


class FollowerLog(LeaderLog):
    """A log as its followers append to it, and the broker itself."""

    __slots__ = ()

    def append_own(
        self, view: memoryview | bytearray, leader_epoch: int, now_ms: int, *, transaction_version: int = 0
    ) -> AppendInfo:
        """Appends a batch that the broker made itself: a transaction's end marker, or a coordinator's records.

        Stamped in place, as `append_as_leader` does it, but taken as it is where that has rules for clients. A repeated batch is
        answered with its earlier offsets; a marker that came before with the log's last, for nobody knows where below it stands.
        Raises KafkaError as `append_as_leader`.
        """
        if not self.root.writable:
            self.root.refuse()
        if self.half_done:
            reopening.refuse(self)
        header = read_header(view)
        if header.size_bytes != len(view):
            raise CorruptBatchError(f"batch of {header.size_bytes} bytes in a buffer of {len(view)}")
        check_crc(view, header)
        marker = None
        if header.attributes & CONTROL:
            marker = read_end_marker(view, header)
            if marker is not None and not self.producers.check_marker(header, marker, transaction_version):
                return AppendInfo(-1, self.log_end_offset - 1, header.max_timestamp, -1, self.log_start_offset, True, 0)
        elif header.producer_id >= 0:
            duplicate = self.producers.check(header, Origin.COORDINATOR)
            if duplicate is not None:
                return self._answer_duplicate(duplicate, header)
        if marker is not None:
            self._ready_for_marker()
        info = self._append_checked(view, header, leader_epoch, now_ms)
        if marker is not None:
            self._note_completed(self.producers.update(header, info.first_offset, marker))
        return info

    def _ready_for_marker(self) -> None:
        """Reads the index of aborted transactions, if need be: when the marker is written, nothing more may fail."""
        try:
            aborted.ensure(self, self.active)
        except OSError as error:
            raise self.root.failed(error) from error

    def _note_completed(self, transaction: CompletedTransaction | None) -> None:
        """A transaction's marker is in the log: if it was aborted, the index of its segment says so. Raises StorageError."""
        if transaction is not None and transaction.aborted:
            try:
                aborted.note(self, self.segment_of(transaction.last_offset), transaction)
            except OSError as error:
                raise self.root.failed(error) from error

    def append_as_follower(self, view: Buffer, leader_epoch: int | None = None) -> AppendInfo:
        """Appends batches that have their offsets, at or behind the log end; a partial one at the end is left out.

        They are written in runs, each into one segment with one write. Batches of an epoch above ``leader_epoch`` are left out
        with all that follow (None: none are). Raises CorruptBatchError, KafkaError (OFFSET_OUT_OF_RANGE) when offsets go back,
        StorageError.
        """
        if not self.root.writable:
            self.root.refuse()
        if self.half_done:
            reopening.refuse(self)
        self.finish_cut()
        batches, _ = validate_follower_batches(view, self._next_base_offset(view), leader_epoch)
        if not batches:
            return AppendInfo(-1, -1, -1, -1, self.log_start_offset, False, 0)
        first_offset, size_before = batches[0][1].base_offset, self.size_bytes
        if not self.active.size and self.active.base_offset != first_offset:
            self._begin_segment_at(min(first_offset, self.log_end_offset))
        whole, at = memoryview(view), 0
        while at < len(batches):
            run = self._run_that_fits(batches, at)
            self._write_run(whole, run)
            at += len(run)
        max_timestamp = max(header.max_timestamp for _, header in batches)
        size = self.size_bytes - size_before
        return AppendInfo(first_offset, self.log_end_offset - 1, max_timestamp, -1, self.log_start_offset, False, size)

    def _next_base_offset(self, view: Buffer) -> int:
        """The least base offset that may come: the log end.

        But DeleteRecords may have moved the log start into a batch, and a log built anew begins there: while nothing is in it, the
        batch that holds its end may come whole. So it is on every other replica; the log start stays where it is.
        """
        end = self.log_end_offset
        if self.size_bytes or len(self.segments) > 1 or self.log_start_offset < end or len(view) < HEADER_BYTES:
            return end
        first = read_header(view)
        return first.base_offset if first.base_offset < end <= first.last_offset else end

    def _run_that_fits(self, batches: Batches, first: int) -> Batches:
        """Batches from ``first`` on that go into one segment: the active one, or a new one if it cannot take the first."""
        header = batches[first][1]
        size = header.size_bytes
        if self.active.size and not _fits(self.active, size, header):
            base_offset = self.log_end_offset
            fits = header.last_offset - base_offset <= RELATIVE_OFFSET_MAX
            self._roll_at(base_offset if fits else header.base_offset)
        segment = self.active
        if header.last_offset > segment.offset_limit:  # an empty segment far behind a gap
            self.flush()
            truncation.restart_empty_at(self, header.base_offset)
            segment = self.active
        end = first + 1
        while end < len(batches) and _fits(segment, size + batches[end][1].size_bytes, batches[end][1]):
            size += batches[end][1].size_bytes
            end += 1
        return batches[first:end]

    def _write_run(self, whole: memoryview, run: Batches) -> None:
        segment = self.active
        start = run[0][0]
        last_position, last = run[-1]
        fresh = not segment.size
        if not segment.is_begun:
            self.begin_segment()
        try:
            if not self.gaps_marked:
                gaps.allow_where_seen(self, run)
            if any(header.attributes & CONTROL for _, header in run):
                aborted.ensure(self, segment)
            segment.append_run(whole[start : last_position + last.size_bytes], run)
        except OSError as error:
            raise self.root.failed(error) from error
        for position, header in run:
            if header.leader_epoch > self.epochs.latest_epoch:
                self.epochs.assign(header.leader_epoch, self.log_end_offset)  # the first of it may be compacted away
            self.log_end_offset = header.base_offset + header.last_offset_delta + 1
            if header.producer_id >= 0:
                self._replay(whole, header, position)
        if fresh:
            self.set_roll_time(run[0][1].max_timestamp)

    def _replay(self, whole: memoryview, header: BatchHeader, position: int) -> None:
        try:
            completed = self.producers.replay(whole, header, position)
        except RecordError:
            return  # a control record of a kind we do not know: the leader decided, a follower keeps it
        self._note_completed(completed)


def _fits(segment: Segment, size: int, header: BatchHeader) -> bool:
    return (
        segment.size + size <= segment.size_limit
        and header.max_timestamp <= segment.roll_after_ms
        and header.base_offset + header.last_offset_delta <= segment.offset_limit
    )
