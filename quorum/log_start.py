"""What the core must know of the log when the node starts, and what a crash may have left undone between log and snapshots."""

import logging
from collections.abc import Iterator

from ottla.log.batch import BatchHeader, headers
from ottla.quorum.batches import batch_mark, batch_voters
from ottla.quorum.log_port import MetadataLog
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.voters import VoterHistory, VoterSet
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.quorum.synced_mark import SyncedMark

_READ_BYTES = 4 << 20
_logger = logging.getLogger(__name__)


class LogStartError(Exception):
    """Log and snapshots do not fit together: something was removed by hand."""


def align_log(log: MetadataLog, snapshots: SnapshotFiles | None, mark: SyncedMark) -> None:
    """Makes log and snapshots fit: afterwards the log begins at offset 0 or where a snapshot ends. Raises LogStartError
    where that cannot be."""
    latest = snapshots.latest if snapshots is not None else None
    if latest is not None and _is_beyond(latest, log):
        mark.cut_at(0)
        log.truncate_fully_and_start_at(latest.offset)  # it was received whole, and then the node died
    if log.log_start_offset == 0:
        return
    snapshot = snapshots.at_or_after(log.log_start_offset) if snapshots is not None else None
    if snapshot is None:
        raise LogStartError(f"the metadata log begins at {log.log_start_offset} and no snapshot has what lies before")
    if snapshot.offset > log.log_start_offset:
        log.set_high_watermark(snapshot.offset)
        log.advance_log_start(snapshot.offset)


def _is_beyond(snapshot: OffsetAndEpoch, log: MetadataLog) -> bool:
    """Whether the log is not (yet) what the snapshot was taken of: shorter, all of older epochs, or of others where that ends."""
    if snapshot.offset > log.log_end_offset:
        return True
    entries = log.epochs.entries() if log.log_end_offset > log.log_start_offset else ()
    below = [epoch for epoch, first in entries if first < snapshot.offset]
    return bool(entries and entries[-1][0] < snapshot.epoch) or bool(below and below[-1] != snapshot.epoch)


def log_summary(log: MetadataLog, snapshots: SnapshotFiles | None) -> LogSummary:
    """Recovery has cut off what did not reach the disk whole; what is left counts as durable once it is synced."""
    log.flush()
    start, end = log.log_start_offset, log.log_end_offset
    base = snapshots.at_or_after(start) if snapshots is not None and start > 0 else None
    latest = snapshots.latest if snapshots is not None else None
    epochs = tuple((epoch, first) for epoch, first in log.epochs.entries() if first < end)
    return LogSummary(
        start, base.epoch if base is not None else 0, end, end, epochs, latest, _marks(log, snapshots, base)
    )


def _marks(log: MetadataLog, snapshots: SnapshotFiles | None, base: OffsetAndEpoch | None) -> dict[int, int]:
    """The first mark of an epoch counts, as where records are appended: a recovered node leads the epoch that its recovery marked."""
    description = snapshots.describe(base) if snapshots is not None and base is not None else None
    marks = {base.epoch: description.mark} if base is not None and description is not None and description.mark else {}
    for data, position, header in _batches(log):
        if mark := batch_mark(data, header, position):
            marks.setdefault(header.leader_epoch, mark)
    return marks


def voter_history(log: MetadataLog, static: VoterSet, snapshots: SnapshotFiles | None) -> VoterHistory:
    """The voters by offset, from the snapshot that the log begins with, and the headers of the whole log: snapshots keep it
    short."""
    history = VoterHistory(static)
    base = snapshots.at_or_after(log.log_start_offset) if snapshots is not None and log.log_start_offset > 0 else None
    description = snapshots.describe(base) if snapshots is not None and base is not None else None
    if base is not None and description is not None:
        history.replace(base.offset, description.voters)
    for data, position, header in _batches(log):
        voters = batch_voters(data, header, position)
        if voters is not None:
            history.append(header.base_offset, voters)
    if history.entries and static.voters and not static.voters[0].key.directory_id:
        _logger.info(
            "the log names the voters: controller.quorum.voters counts no more, write controller.quorum.bootstrap.servers instead"
        )
    return history


def _batches(log: MetadataLog) -> Iterator[tuple[bytes, int, BatchHeader]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, _READ_BYTES, log.log_end_offset, minimum_one=True).data)
        before = offset
        for position, header in headers(data):
            if header.base_offset >= log.log_start_offset:
                yield data, position, header
            offset = header.next_offset
        assert offset > before, f"nothing readable at {before}"
