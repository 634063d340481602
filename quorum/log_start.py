"""What the core must know of the log when the node starts."""

from collections.abc import Iterator

from ottla.log.batch import BatchHeader, headers
from ottla.quorum.batches import batch_voters
from ottla.quorum.log_port import MetadataLog
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.voters import VoterHistory, VoterSet

_READ_BYTES = 4 << 20


def log_summary(log: MetadataLog, snapshot: OffsetAndEpoch | None = None) -> LogSummary:
    """Recovery has cut off what did not reach the disk whole, so all that is left counts as durable once it is synced."""
    log.flush()
    start, end = log.log_start_offset, log.log_end_offset
    base_epoch = snapshot.epoch if snapshot is not None else 0
    epochs = tuple(log.epochs.entries())
    return LogSummary(start, base_epoch, end, end, epochs, snapshot)


def voter_history(log: MetadataLog, static: VoterSet) -> VoterHistory:
    """Reads the headers of the whole log: snapshots keep it short."""
    history = VoterHistory(static)
    for data, position, header in _batches(log):
        voters = batch_voters(data, header, position)
        if voters is not None:
            history.append(header.base_offset, voters)
    return history


def _batches(log: MetadataLog) -> Iterator[tuple[bytes, int, BatchHeader]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, _READ_BYTES, log.log_end_offset, minimum_one=True).data)
        before = offset
        for position, header in headers(data):
            yield data, position, header
            offset = header.next_offset
        assert offset > before, f"nothing readable at {before}"
