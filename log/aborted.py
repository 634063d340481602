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
            segment.transactions().append(_entry_of(transaction))
            log.aborts_changed(segment)


def restore(log: DurableLog, start_offset: int, end_offset: int) -> None:
    """Notes again what was aborted in [start, end). Stops where the log is damaged. OSError passes through."""
    producers = ProducerStateManager()
    offset = replay.from_snapshot_below(log, producers, start_offset)
    for segment, completed in replay.completed(log, producers, offset, end_offset):
        if start_offset <= completed.last_offset < end_offset:
            note(log, segment, completed)


def _entry_of(transaction: CompletedTransaction) -> AbortedTransaction:
    producer_id, first, last, _, last_stable = transaction
    return AbortedTransaction(producer_id, first, last, last_stable)


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
        found, whole = _found_again(log, segment)
        if not whole:
            found |= _known_before(log, segment)
        index.replace([found[last_offset] for last_offset in sorted(found)])
        log.aborts_changed(segment)


def _found_again(log: DurableLog, segment: Segment) -> tuple[dict[int, AbortedTransaction], bool]:
    """(what the batches tell of the segment's aborted transactions, by their last offset; whether all of them could be read)."""
    producers, damaged = ProducerStateManager(), list[Segment]()
    start, end = segment.base_offset, log.next_base_offset(segment)
    offset = replay.from_snapshot_below(log, producers, start)
    found = {
        each.last_offset: _entry_of(each)
        for _, each in replay.completed(log, producers, offset, end, damaged)
        if each.aborted and start <= each.last_offset < end
    }
    return found, not damaged


def _known_before(log: DurableLog, segment: Segment) -> dict[int, AbortedTransaction]:
    """What the index had that the log does not contradict, by its last offset.

    Behind damage nothing is found again, and of a transaction that begins in it only a later beginning.
    """
    entries = segment.transactions().whole_entries()
    return {entry.last_offset: entry for entry in entries if _may_be_in(log, segment, entry)}


def _may_be_in(log: DurableLog, segment: Segment, entry: AbortedTransaction) -> bool:
    """`_is_in`, or damage keeps that from being known."""
    try:
        return segment.base_offset <= entry.last_offset < log.next_base_offset(segment) and _is_in(log, segment, entry)
    except DamagedLogError:
        return True


def _is_in(log: DurableLog, segment: Segment, entry: AbortedTransaction) -> bool:
    """Whether the log has this marker, the data that it ends, and that of the transaction that was still open, if one was."""
    marker = _header_at(segment, entry.last_offset)
    if marker is None or not marker.is_control or marker.producer_id != entry.producer_id:
        return False
    if not (0 <= entry.last_stable_offset < entry.last_offset or entry.last_stable_offset == entry.last_offset + 1):
        return False
    if not _may_begin_at(log, entry.first_offset, entry.producer_id):
        return False
    # Where another transaction was open it names that one's beginning, which mostly is before this one's.
    return entry.last_stable_offset > entry.last_offset or _may_begin_at(log, entry.last_stable_offset, None)


def _may_begin_at(log: DurableLog, offset: int, producer_id: int | None) -> bool:
    """Whether a transaction of the producer (None: of any) may begin there: its data is there, or may be gone."""
    if log.gaps_allowed or offset < log.log_start_offset:
        return True
    first = _header_at(log.segment_of(offset), offset)
    return first is not None and first.is_transactional and producer_id in (None, first.producer_id)


def _header_at(segment: Segment, offset: int) -> BatchHeader | None:
    """The header of the batch that begins at ``offset``."""
    position, base_offset = segment.find(offset)
    return next(segment.walk_from(position))[1] if base_offset == offset else None
