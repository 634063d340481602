"""The transaction indexes of a log made anew from its batches: after a scan, and when one cannot be right.

What began before the batches that are read is known from the producer snapshot before them; without one, from the log's start.
"""

from ottla.log import replay
from ottla.log.batch import BatchHeader
from ottla.log.durable_log import DurableLog
from ottla.log.errors import DamagedLogError
from ottla.log.producers.state import CompletedTransaction, ProducerStateManager
from ottla.log.segments.segment import Segment
from ottla.log.segments.transactions import AbortedTransaction


def note(log: DurableLog, segment: Segment, transaction: CompletedTransaction) -> None:
    """Puts a transaction whose marker is in ``segment`` into its index, if it was aborted and is not there."""
    if transaction.aborted:
        ensure(log, segment)
        entries = segment.transactions().entries()
        if not entries or entries[-1].last_offset < transaction.last_offset:
            producer_id, first, last, _, last_stable = transaction
            segment.transactions().append(AbortedTransaction(producer_id, first, last, last_stable))
            log.aborts_changed(segment)


def restore(log: DurableLog, start_offset: int, end_offset: int) -> None:
    """Notes again what was aborted in [start, end). Stops where the log is damaged. OSError passes through."""
    producers = ProducerStateManager()
    offset = replay.from_snapshot_below(log, producers, start_offset)
    for segment, completed in replay.completed(log, producers, offset, end_offset):
        if start_offset <= completed.last_offset < end_offset:
            note(log, segment, completed)


def ensure(log: DurableLog, segment: Segment) -> None:
    """Makes sure that the segment's index can be believed: found on disk, it is held against the markers, and made anew if wrong.

    An index that lost whole entries at its end cannot be told from one that never had them. OSError passes through.
    """
    index = segment.transactions()
    if index.checked:
        return
    index.checked = True
    try:
        _make_sound(log, segment)
    except OSError:
        index.checked, index.damaged = False, True
        raise


def _make_sound(log: DurableLog, segment: Segment) -> None:
    index = segment.transactions()
    entries = index.entries()
    try:
        sound = not index.damaged and all(_is_in(log, segment, entry) for entry in entries)
    except DamagedLogError:
        return  # whoever reads there is told
    if not sound:
        index.reset()
        restore(log, segment.base_offset, log.next_base_offset(segment))
        log.aborts_changed(segment)


def _is_in(log: DurableLog, segment: Segment, entry: AbortedTransaction) -> bool:
    """Whether the log has this marker, and the data that it ends."""
    marker = _header_at(segment, entry.last_offset)
    if marker is None or not marker.is_control or marker.producer_id != entry.producer_id:
        return False
    if not entry.first_offset <= entry.last_stable_offset <= entry.last_offset + 1:
        return False
    if log.gaps_allowed or entry.first_offset < log.log_start_offset:
        return True  # the data may be gone
    first = _header_at(log.segment_of(entry.first_offset), entry.first_offset)
    return first is not None and first.is_transactional and first.producer_id == entry.producer_id


def _header_at(segment: Segment, offset: int) -> BatchHeader | None:
    """The header of the batch that begins at ``offset``."""
    position, base_offset = segment.find(offset)
    return next(segment.walk_from(position))[1] if base_offset == offset else None
