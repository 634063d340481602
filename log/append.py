"""Appending, beyond the hot path in `Log`: rolling, followers, the broker's own batches."""

from typing import TYPE_CHECKING, NoReturn

from ottla.log import aborted, gaps, reopening, truncation
from ottla.log.batch import (
    CONTROL,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatchError,
    check_crc,
    read_header,
)
from ottla.log.config import LogConfig
from ottla.log.producers.state import Origin
from ottla.log.records import RecordError, read_end_marker
from ottla.log.results import AppendInfo
from ottla.log.segments.layout import RELATIVE_OFFSET_MAX
from ottla.log.segments.segment import Segment
from ottla.log.validation import recompress, target_codec, validate_follower_batches
from ottla.runtime.disk import Buffer
from ottla.runtime.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.log.log import Log

Batches = list[tuple[int, BatchHeader]]


def begin_epoch(log: "Log", leader_epoch: int) -> None:
    """Notes a new leader epoch at the log end. Raises KafkaError (FENCED_LEADER_EPOCH) for one that is over."""
    latest = log.epochs.latest_epoch
    if leader_epoch < latest:
        message = f"{log.partition}: append with leader epoch {leader_epoch}, the log has {latest}"
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, message)
    log.epochs.assign(leader_epoch, log.log_end_offset)


def append_prepared(
    log: "Log", view: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int
) -> AppendInfo:
    """What is left of an append once `validation.prepare` is done."""
    if not log.root.writable:
        log.root.refuse()
    if log.half_done:
        reopening.refuse(log)
    if header.producer_id >= 0:
        duplicate = log.producers.check(header)
        if duplicate is not None:
            return log.answer_duplicate(duplicate, header)
        if header.attributes & TRANSACTIONAL:
            refuse_unverified(header)
    return log.append_checked(view, header, leader_epoch, now_ms)


def refuse_unverified(header: BatchHeader) -> NoReturn:
    """Raises KafkaError (INVALID_TXN_STATE): a transaction without a coordinator would hold the last stable offset for ever."""
    message = f"producer {header.producer_id}: no coordinator knows the transaction"
    raise KafkaError(ErrorCode.INVALID_TXN_STATE, message)


def recompressed(
    view: memoryview | bytearray, header: BatchHeader, config: LogConfig
) -> tuple[memoryview | bytearray, BatchHeader]:
    """The batch in the topic's own codec. Whoever must not wait has it prepared on a thread before."""
    if target_codec(header, config) is None:
        return view, header
    batch = recompress(view, header, config)
    return batch, read_header(batch)


def make_room(log: "Log", size: int, last_offset: int, time: int) -> Segment:
    """The segment that takes a batch the active one may not: too large, too late, or its indexes are full.

    Raises KafkaError (RECORD_LIST_TOO_LARGE) for a batch that fits no segment, StorageError.
    """
    if size > log.config.segment_bytes:
        message = f"batch of {size} bytes, segment.bytes is {log.config.segment_bytes}"
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
    if log.active.size or last_offset > log.active.offset_limit:
        roll(log, log.log_end_offset)
    return log.active


def roll(log: "Log", base_offset: int) -> None:
    """Ends the active segment and begins one at ``base_offset``. Raises StorageError; the log is then as it was.

    The new segment's ``.log`` comes last: with it the roll has happened, and nothing before it means anything to a start.
    """
    old = log.active
    if base_offset != log.log_end_offset:
        log.flush()  # a start could not tell this gap from records that a power cut took
    try:
        old.finish()
        segment = Segment(log.files, log.directory, base_offset, log.config)
        if base_offset == old.base_offset:  # nothing in it: the file is kept
            return
        log.producers.take_snapshot(log.disk, log.directory, base_offset, durable=False)
        segment.create_files()
    except OSError as error:
        raise log.root.failed(error) from error
    log.names_changed()
    log.set_segments([*log.segments, segment])
    old.forget_indexes()
    log.root.rolled[log] = None
    log.unsettled((old,))


def append_own(
    log: "Log",
    view: memoryview | bytearray,
    leader_epoch: int,
    now_ms: int,
    origin: Origin,
    transaction_version: int,
) -> AppendInfo:
    """Appends a batch of the broker's own: a transaction's end marker, or a coordinator's records."""
    header = read_header(view)
    if header.size_bytes != len(view):
        raise CorruptBatchError(f"batch of {header.size_bytes} bytes in a buffer of {len(view)}")
    check_crc(view, header)
    marker = None
    if header.attributes & CONTROL:
        marker = read_end_marker(view, header)
        if marker is not None and not log.producers.check_marker(header, marker, transaction_version):
            return AppendInfo(-1, -1, header.max_timestamp, -1, log.log_start_offset, True, 0)
    elif header.producer_id >= 0:
        duplicate = log.producers.check(header, origin)
        if duplicate is not None:
            return log.answer_duplicate(duplicate, header)
    if marker is not None:
        _ready_for_marker(log)
    info = log.append_checked(view, header, leader_epoch, now_ms)
    if marker is not None:
        completed = log.producers.update(header, info.first_offset, marker)
        if completed is not None:
            log.note_completed(completed)
    return info


def _ready_for_marker(log: "Log") -> None:
    """Reads the index of aborted transactions, if need be: when the marker is written, nothing more may fail."""
    try:
        aborted.ensure(log, log.active)
    except OSError as error:
        raise log.root.failed(error) from error


def append_as_follower(log: "Log", view: Buffer, leader_epoch: int | None) -> AppendInfo:
    """Writes runs of batches, each into one segment with one write."""
    log.finish_cut()
    batches, _ = validate_follower_batches(view, _next_base_offset(log, view), leader_epoch)
    if not batches:
        return AppendInfo(-1, -1, -1, -1, log.log_start_offset, False, 0)
    if batches[0][1].base_offset < log.log_end_offset:
        _begin_segment_at(log, batches[0][1].base_offset)
    first_offset, size_before = batches[0][1].base_offset, log.size_bytes
    whole, at = memoryview(view), 0
    while at < len(batches):
        run = _run_that_fits(log, batches, at)
        _write_run(log, whole, run)
        at += len(run)
    max_timestamp = max(header.max_timestamp for _, header in batches)
    end = log.log_end_offset
    return AppendInfo(
        first_offset, end - 1, max_timestamp, -1, log.log_start_offset, False, log.size_bytes - size_before
    )


def _next_base_offset(log: "Log", view: Buffer) -> int:
    """The least base offset that may come: the log end.

    But DeleteRecords may have moved the log start into a batch, and a log built anew begins there: while nothing is in it, the
    batch that holds its end may come whole. So it is on every other replica; the log start stays where it is.
    """
    end = log.log_end_offset
    if log.size_bytes or len(log.segments) > 1 or log.log_start_offset < end or len(view) < HEADER_BYTES:
        return end
    first = read_header(view)
    return first.base_offset if first.base_offset < end <= first.last_offset else end


def _begin_segment_at(log: "Log", base_offset: int) -> None:
    """The empty log's one segment begins at ``base_offset``, below the log start. Raises StorageError."""
    if log.active.base_offset == base_offset:
        return  # made before an append that failed
    truncation.restart_empty_at(log, base_offset)


def _run_that_fits(log: "Log", batches: Batches, first: int) -> Batches:
    """Batches from ``first`` on that go into one segment: the active one, or a new one if it cannot take the first."""
    header = batches[first][1]
    size = header.size_bytes
    if log.active.size and not _fits(log.active, size, header):
        base_offset = log.log_end_offset
        fits = header.last_offset - base_offset <= RELATIVE_OFFSET_MAX
        roll(log, base_offset if fits else header.base_offset)
    segment = log.active
    if header.last_offset > segment.offset_limit:  # an empty segment far behind a gap
        log.flush()
        truncation.restart_empty_at(log, header.base_offset)
        segment = log.active
    end = first + 1
    while end < len(batches) and _fits(segment, size + batches[end][1].size_bytes, batches[end][1]):
        size += batches[end][1].size_bytes
        end += 1
    return batches[first:end]


def _fits(segment: Segment, size: int, header: BatchHeader) -> bool:
    return (
        segment.size + size <= segment.size_limit
        and header.max_timestamp <= segment.roll_after_ms
        and header.base_offset + header.last_offset_delta <= segment.offset_limit
    )


def _write_run(log: "Log", whole: memoryview, run: Batches) -> None:
    segment = log.active
    start = run[0][0]
    last_position, last = run[-1]
    fresh = not segment.size
    try:
        if not log.gaps_marked:
            gaps.allow_where_seen(log, run)
        if any(header.attributes & CONTROL for _, header in run):
            aborted.ensure(log, segment)
        segment.append_run(whole[start : last_position + last.size_bytes], run)
    except OSError as error:
        raise log.root.failed(error) from error
    for position, header in run:
        if header.leader_epoch > log.epochs.latest_epoch:
            log.epochs.assign(header.leader_epoch, max(header.base_offset, log.log_start_offset))
        log.log_end_offset = header.base_offset + header.last_offset_delta + 1
        if header.producer_id >= 0:
            _replay(log, whole, header, position)
    if fresh:
        truncation.set_roll_time(log, run[0][1].max_timestamp)


def _replay(log: "Log", whole: memoryview, header: BatchHeader, position: int) -> None:
    try:
        completed = log.producers.replay(whole, header, position)
    except RecordError:
        return  # a control record of a kind we do not know: the leader decided, a follower keeps it
    if completed is not None:
        log.note_completed(completed)
