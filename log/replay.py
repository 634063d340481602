"""Producer state made again from the log's batches, for want of memory: after a start, a truncation, a damaged index.

A snapshot (Kafka's format) tells who produced, and which transactions are open. It does not tell which ended and still hold the last
stable offset back, because their markers are not replicated: these are read again from below the high watermark.
"""

from collections.abc import Iterator

from ottla.log.batch import BatchHeader, CorruptBatchError, read_header
from ottla.log.durable_log import DurableLog
from ottla.log.errors import DamagedLogError
from ottla.log.producers.state import CompletedTransaction, ProducerStateManager
from ottla.log.records import RecordError
from ottla.log.segments.segment import Segment
from ottla.log.segments.soundness import batches_of_producers
from ottla.log.segments.walk import pieces


def completed(
    log: DurableLog,
    producers: ProducerStateManager,
    from_offset: int,
    end_offset: int,
    damaged: list[Segment] | None = None,
) -> Iterator[tuple[Segment, CompletedTransaction]]:
    """Updates ``producers`` with the batches of [from, end) and what stands behind these in the same segment; yields what was ended,
    and where its marker is. Leaves out what is damaged, with the rest of its segment, which is put into ``damaged``. OSError passes
    through."""
    if from_offset >= end_offset:
        return
    for segment in log.segments[log.segments.index(log.segment_of(from_offset)) :]:
        if segment.base_offset >= end_offset:
            return
        try:
            start = segment.find(from_offset)[0] if segment.base_offset < from_offset else 0
            for piece in pieces(segment.handle.open(), start, segment.size):
                for at in batches_of_producers(piece)[0]:
                    ended = producers.replay(piece, read_header(piece, at), at)
                    if ended is not None:
                        yield segment, ended
        except (CorruptBatchError, DamagedLogError, RecordError):
            if damaged is not None:
                damaged.append(segment)
            continue  # whoever reads there is told; what follows may still be good


def from_snapshot_below(log: DurableLog, producers: ProducerStateManager, offset: int) -> int:
    """Begins ``producers`` with the newest snapshot that is not above ``offset``; returns the offset to go on from."""
    return max(producers.resume(log.disk, log.directory, offset), log.segments[0].base_offset)


def look_for_open(log: DurableLog, producers: ProducerStateManager, taken: int) -> None:
    """Holds what is open in a snapshot, ``taken`` at that offset, against the batches before it, where compaction takes some away.

    It cleans below the last stable offset only: a transaction whose first batch is gone was ended, and its marker goes once nothing
    of it is left. So it is open, for the batches that follow to end it, as of what is left; with nothing left it would hold readers
    back for ever. Damage proves nothing. OSError passes through.
    """
    if not log.gaps_allowed:
        return
    begun = producers.open_transactions
    gone = {producer_id: first for first, producer_id in begun.items() if not _begins_at(log, first, producer_id)}
    if not gone:
        return
    left: dict[int, int] = {}
    try:
        for header in _producers_batches(log, min(gone.values()), taken):
            if (
                header.is_transactional
                and not header.is_control
                and header.base_offset >= gone.get(header.producer_id, taken)
            ):
                left.setdefault(header.producer_id, header.base_offset)
    except (CorruptBatchError, DamagedLogError):
        return
    for producer_id in gone:
        producers.begin_open_at(producer_id, left.get(producer_id))


def _begins_at(log: DurableLog, offset: int, producer_id: int) -> bool:
    """Whether a transaction of the producer may begin there: not where another batch, or none, has that offset."""
    if offset < log.segments[0].base_offset:
        return False
    segment = log.segment_of(offset)
    try:
        position, base_offset = segment.find(offset)
        if base_offset != offset:
            return False
        header = next(segment.walk_from(position))[1]
    except DamagedLogError:
        return True
    return header.is_transactional and header.producer_id == producer_id


def _producers_batches(log: DurableLog, from_offset: int, end_offset: int) -> Iterator[BatchHeader]:
    """Headers of the batches of [from, end) that producers with an id wrote, and perhaps of some before."""
    first = log.segment_of(max(from_offset, log.segments[0].base_offset))
    for segment in log.segments[log.segments.index(first) :]:
        start = segment.find(from_offset)[0] if segment.base_offset < from_offset else 0
        for piece in pieces(segment.handle.open(), start, segment.size):
            for at in batches_of_producers(piece)[0]:
                header = read_header(piece, at)
                if header.base_offset >= end_offset:
                    return
                yield header


def restore_unreplicated(log: DurableLog, replayed_from: int, high_watermark: int) -> None:
    """Finds the transactions that ended above ``high_watermark`` where a snapshot was taken above it. Else read_committed consumers
    would be given their records, and another leader could still end them in the other way. OSError passes through."""
    if replayed_from <= high_watermark or not log.producers.has_ended_any or not _has_marker(log, high_watermark):
        return
    producers = ProducerStateManager()
    start = from_snapshot_below(log, producers, high_watermark)
    for _ in completed(log, producers, start, log.log_end_offset):
        pass
    producers.on_high_watermark(high_watermark)
    log.producers.hold_back(producers)


def _has_marker(log: DurableLog, from_offset: int) -> bool:
    """Whether a control batch stands at or behind ``from_offset``: reads no more than headers."""
    start = max(from_offset, log.segments[0].base_offset)
    for segment in log.segments[log.segments.index(log.segment_of(start)) :]:
        try:
            position = segment.find(start)[0] if segment.base_offset < start else 0
            if any(header.is_control for _, header in segment.walk_from(position)):
                return True
        except DamagedLogError:
            continue
    return False
