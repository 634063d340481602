"""Reading by offset: where bytes lie, and the bytes.

Nothing is decoded and nothing is copied: a read is one `pread` of whole batches. Where it ended is remembered, because the same
reader comes back there; otherwise the index and a short walk over headers find the place.
"""

from ottla.log import aborted, reopening
from ottla.log.config import FOREVER
from ottla.log.durable_log import DurableLog
from ottla.log.errors import DamagedLogError
from ottla.log.results import ColdReadError, LogRead
from ottla.log.segments.scrub import SegmentScrub
from ottla.log.segments.segment import Segment, number_before
from ottla.log.segments.transactions import AbortedTransaction
from ottla.log.state import NO_PLACES, LogState
from ottla.runtime.errors import ErrorCode, KafkaError

_PLACES_MAX = 64
_WARM_BYTES = 8 << 20  # what was appended last is cached: to ask would cost more than it tells

_Place = tuple[Segment | None, int, int, int]  # segment, start, end, next offset


class ReadableLog(DurableLog):
    """A log as its readers use it."""

    __slots__ = ()

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
        try:
            segment, start, end, next_offset = _locate_sound(self, offset, max_bytes, limit_offset, minimum_one)
            if segment is None:
                return LogRead(b"", next_offset)
            handle = segment.handle
            file = handle.file
            if file is None:
                file = handle.open()
            if (
                not wait
                and (segment is not self.active or end < segment.size - _WARM_BYTES)
                and not file.is_cached(start, end - start)
            ):
                raise ColdReadError(handle, start, end - start)
            data = file.read_at(end - start, start)
            if len(data) != end - start or not segment.trusts(start, end):
                size, next_offset = _verify(self, segment, data, start, offset)
                data, end = data[:size], start + size
            if end < segment.size or segment is self.active:
                _remember(self, next_offset, end)
        except OSError as error:
            raise self.root.failed(error) from error
        except DamagedLogError as error:
            self.places.clear()
            error.offset = min(error.offset, offset)  # a damaged base offset may have made it any number
            raise
        return LogRead(data, next_offset)

    def recheck(self, offset: int, max_bytes: int) -> None:
        """Checks what `read` would give, though this process wrote or checked it before: somebody doubts it.

        Raises as `read`; what is around the damage is then trusted no more.
        """
        if self.half_done:
            reopening.refuse(self)
        segment: Segment | None = None
        try:
            segment, start, end, _ = _locate(self, offset, max_bytes, FOREVER, True)
            if segment is not None:
                data = segment.handle.open().read_at(end - start, start)
                size, following = _verify(self, segment, data, start, offset)
                if start + size < end:
                    raise DamagedLogError(segment.path, start + size, following, "the batch is not what was written")
        except OSError as error:
            raise self.root.failed(error) from error
        except DamagedLogError as error:
            (segment or self.segment_of(offset)).distrust()
            self.places.clear()
            error.offset = max(error.offset, self.log_start_offset)
            raise

    def scrub_from(self, offset: int) -> SegmentScrub | None:
        """Begins to look at the segment that holds ``offset``, from there on; None at the log end. Raises as `read`."""
        if self.half_done:
            reopening.refuse(self)
        offset = max(offset, self.log_start_offset)
        if offset >= self.log_end_offset:
            return None
        try:
            segment = self.segment_of(offset)
            following = self.next_base_offset(segment)
            segment, following, position = _find_start(self, segment, following, offset)
            if position >= segment.size:
                return None
            first = next(segment.walk_from(position))[1].base_offset
            return SegmentScrub(self.disk, segment, position, first, following, dense=not self.gaps_allowed)
        except OSError as error:
            raise self.root.failed(error) from error

    def rebuild_indexes(self, base_offset: int) -> None:
        """Makes the indexes of a segment anew, if it is still there. Raises StorageError."""
        for segment in self.segments:
            if segment.base_offset == base_offset:
                try:
                    segment.rebuild_indexes()
                except OSError as error:
                    raise self.root.failed(error) from error

    def bytes_between(self, start_offset: int, end_offset: int) -> int:
        """About how many bytes lie between two offsets: exact at batch boundaries that were read or indexed of late.

        Raises StorageError.
        """
        if self.half_done:
            reopening.refuse(self)
        if start_offset >= end_offset:
            return 0
        first, last = self.segment_of(start_offset), self.segment_of(end_offset - 1)
        try:
            start, end = _about(self, first, start_offset), _about(self, last, end_offset)
        except OSError as error:
            raise self.root.failed(error) from error
        if first is not last:
            numbers = self.segments.index(first), self.segments.index(last)
            end += sum(segment.size for segment in self.segments[numbers[0] : numbers[1]])
        return max(end - start, 1)

    def next_written(self, offset: int) -> int:
        """``offset`` where a batch holds it; in a gap where the next batch begins, or the log end. Raises DamagedLogError, StorageError."""
        if self.half_done:
            reopening.refuse(self)
        if offset >= self.log_end_offset:
            return self.log_end_offset
        try:
            segment = self.segment_of(offset)
            segment, _, position = _find_start(self, segment, self.next_base_offset(segment), offset)
            if position >= segment.size:
                return self.log_end_offset
            return max(offset, next(segment.walk_from(position))[1].base_offset)
        except OSError as error:
            raise self.root.failed(error) from error

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [start, end): what a read_committed consumer must skip."""
        if self.half_done:
            reopening.refuse(self)
        found: list[AbortedTransaction] = []
        try:
            for segment in self.segments[self.segments.index(self.segment_of(start_offset)) :]:
                aborted.ensure(self, segment)
                overlapping, complete = segment.transactions().aborted_between(start_offset, end_offset)
                found.extend(overlapping)
                if complete:
                    break
        except OSError as error:
            raise self.root.failed(error) from error
        return found


def _locate_sound(log: LogState, offset: int, max_bytes: int, limit_offset: int, minimum_one: bool) -> _Place:
    """`_locate`; before a damaged header, one batch at a time: what is sound is served."""
    try:
        return _locate(log, offset, max_bytes, limit_offset, minimum_one)
    except DamagedLogError:
        return _locate(log, offset, 1, limit_offset, minimum_one)


def _verify(log: LogState, segment: Segment, data: bytes, start: int, offset: int) -> tuple[int, int]:
    return segment.verify(data, start, None if log.gaps_allowed else offset, log.next_base_offset(segment))


def _locate(log: LogState, offset: int, max_bytes: int, limit_offset: int, minimum_one: bool) -> _Place:
    log_end_offset = log.log_end_offset
    if not log.log_start_offset <= offset <= log_end_offset:
        message = f"{log.partition}: offset {offset} is outside {log.log_start_offset}..{log_end_offset}"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
    limit_offset = min(limit_offset, log_end_offset)
    if offset >= limit_offset:
        return None, 0, 0, offset
    segment, following = log.active, log_end_offset
    start = log.places.get(offset)
    if offset < segment.base_offset:
        segment, following = _closed_segment(log, offset)
    if start is None:
        segment, following, start = _find_start(log, segment, following, offset)
    if limit_offset >= following:
        stop, stop_offset = segment.size, following
    else:
        stop, stop_offset = _position_of(log, segment, limit_offset), limit_offset
    if start >= stop:
        return None, 0, 0, offset
    end, next_offset = stop, stop_offset
    if stop - start > max_bytes:
        end, next_offset = _whole_batches(segment, start, max_bytes, minimum_one)
        if end == start:
            return None, 0, 0, offset
    return segment, start, end, next_offset


def _whole_batches(segment: Segment, start: int, max_bytes: int, minimum_one: bool) -> tuple[int, int]:
    """(end, next offset) of what fits into ``max_bytes``; the first batch anyway if one must be given."""
    end, next_offset = segment.boundary(start, start + max_bytes, segment.base_offset)
    if end == start and minimum_one:
        header = next(segment.walk_from(start))[1]
        return start + header.size_bytes, header.next_offset
    return end, next_offset


def _remember(log: LogState, offset: int, position: int) -> None:
    if log.places is NO_PLACES:
        log.places = {}
    places = log.places
    if len(places) >= _PLACES_MAX:
        places.clear()
    places[offset] = position


def _position_of(log: LogState, segment: Segment, offset: int) -> int:
    position = log.places.get(offset)
    return segment.find(offset)[0] if position is None else position


def _closed_segment(log: LogState, offset: int) -> tuple[Segment, int]:
    number = number_before(log.segments, offset)
    return log.segments[number], log.segments[number + 1].base_offset


def _find_start(log: LogState, segment: Segment, following: int, offset: int) -> tuple[Segment, int, int]:
    """(segment, where it ends, position) of the first batch that ends at ``offset`` or later.

    Raises DamagedLogError where a log that should have no gaps lacks the offset.
    """
    while True:
        position, base_offset = segment.find(offset)
        missing = base_offset < 0 or base_offset > offset
        if missing and not log.gaps_allowed:
            raise DamagedLogError(segment.path, position, offset, "the offset is missing")
        if base_offset >= 0 or segment is log.active:
            return segment, following, position
        offset = following
        segment, following = log.segment_of(offset), log.next_base_offset(log.segment_of(offset))


def _about(log: LogState, segment: Segment, offset: int) -> int:
    if offset >= log.next_base_offset(segment):
        return segment.size
    position = log.places.get(offset)
    if position is not None:
        return position
    index = segment.offset_index()
    number = index.floor(offset - segment.base_offset)
    return index.positions[number] if number >= 0 else 0
