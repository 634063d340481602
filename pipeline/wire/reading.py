"""How far a range of a partition is read, and what an answer to Fetch means for it. Values only."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from struct import Struct
from typing import Any, NamedTuple

from ottla.pipeline.wire.retries import is_retriable
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

_HEADER = Struct(">qi4xb6xi")  # base offset, length, leader epoch, magic, CRC and attributes, last offset delta
_BEFORE_LENGTH_ENDS = 12
_HEADER_BYTES = 27
MAGIC = 2


class Range(NamedTuple):
    """Offsets ``start`` up to ``end`` of a partition. ``topic_id`` is the topic's when the range was planned, zero: any.

    ``bytes`` is about how much that is on the log, 0 where nobody knows.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = ZERO_ID
    bytes: int = 0

    @property
    def which(self) -> tuple[str, int]:
        return self.topic, self.partition


class Fetched(NamedTuple):
    """Whole batches of a range: of their records those from ``first_offset`` on. It goes on at ``next_offset``."""

    range: int
    records: memoryview
    aborted: list[tuple[int, int]]
    first_offset: int
    next_offset: int
    high_watermark: int


class OldFormatError(ValueError):
    """Records of before Kafka 0.11, or no records."""


class Next(Enum):
    """What to do about a range after an answer."""

    READ_ON = auto()
    WAIT = auto()
    """Ask again in a moment: what is wanted is not there yet, or an error may pass."""
    ELSEWHERE = auto()
    """Ask the node that the answer names."""
    TO_THE_LEADER = auto()
    """A follower cannot help: ask the leader."""
    OUT_OF_RANGE = auto()
    """The leader does not have these offsets."""
    REFUSED = auto()


@dataclass
class Reading:
    """A range and how far it is."""

    index: int
    range: Range
    next_offset: int = -1
    node: int = -1
    """Which is asked, -1: the leader."""
    reason: str = ""
    code: ErrorCode = ErrorCode.NONE
    inbox: list[Fetched] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next_offset = self.range.start

    @property
    def is_done(self) -> bool:
        return self.next_offset >= self.range.end

    def take(self, part: Any, *, reads_committed: bool, alone: bool, from_leader: bool) -> Next:
        """An answer about this range. What it brought is in the inbox.

        ``alone``: no partition of the answer had records, so that an empty one had nothing to give and was not
        merely left out for want of room.
        """
        self.code = ErrorCode(part.error_code)
        if self.code:
            return self._failed(from_leader)
        if getattr(part, "preferred_read_replica", -1) >= 0 and from_leader:
            self.node = part.preferred_read_replica
            return Next.ELSEWHERE
        records = part.records if part.records is not None else memoryview(b"")
        next_offset, size = walk(records, self.next_offset, self.range.end)
        if next_offset > self.next_offset:
            self._arrived(part, records[:size], next_offset)
            return Next.READ_ON
        limit = part.last_stable_offset if reads_committed else part.high_watermark
        if alone and limit >= self.range.end:
            self._arrived(part, records[:0], self.range.end)  # a compacted log may have nothing here
            return Next.READ_ON
        self.reason = f"it gives nothing, and its records end at {limit}"
        return Next.WAIT if from_leader or not alone else Next.TO_THE_LEADER

    def _arrived(self, part: Any, records: memoryview, next_offset: int) -> None:
        aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
        self.inbox.append(Fetched(self.index, records, aborted, self.next_offset, next_offset, part.high_watermark))
        self.next_offset, self.reason = next_offset, ""

    def _failed(self, from_leader: bool) -> Next:
        self.reason = self.code.name
        if not from_leader:
            return Next.TO_THE_LEADER
        if self.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return Next.OUT_OF_RANGE
        return Next.WAIT if is_retriable(self.code) else Next.REFUSED


def walk(records: memoryview, next_offset: int, end: int) -> tuple[int, int]:
    """Behind the last whole batch that begins below ``end``: its next offset, and how many bytes they all have."""
    position, limit = 0, len(records)
    while position + _HEADER_BYTES <= limit and next_offset < end:
        base, length, magic, delta = _HEADER.unpack_from(records, position)
        if magic != MAGIC or length < _HEADER_BYTES - _BEFORE_LENGTH_ENDS:
            raise OldFormatError(f"a batch of format {magic}, {length} bytes long")
        if base >= end:
            return end, position  # the next record that there is lies beyond
        if position + _BEFORE_LENGTH_ENDS + length > limit:
            break
        position += _BEFORE_LENGTH_ENDS + length
        next_offset = max(next_offset, base + delta + 1)
    return next_offset, position


def batches(records: memoryview) -> Iterator[tuple[int, int, int]]:
    """Base offset, last offset and size of each batch; the last may be cut off."""
    position = 0
    while position + _HEADER_BYTES <= len(records):
        base, length, magic, delta = _HEADER.unpack_from(records, position)
        if magic != MAGIC or length < _HEADER_BYTES - _BEFORE_LENGTH_ENDS:
            raise OldFormatError(f"a batch of format {magic}, {length} bytes long")
        yield base, base + delta, _BEFORE_LENGTH_ENDS + length
        position += _BEFORE_LENGTH_ENDS + length
