"""What must hold of a compacted partition: replicas may differ in what was cleaned away, never in what a reader can rely on.

Each record is remembered as it was when it was committed, before any cleaner could see it. A replica then may lack a record
only if a later one of the same key was committed, and one that leads, or is at rest, must have such a later one itself.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.broker.replication.partition import Partition
from ottla.log.batch import headers
from ottla.log.records import decode_records

READ_BYTES = 4 << 20


class Seen(NamedTuple):
    """A committed record, or one that a replica holds."""

    offset: int
    key: bytes | None
    value: bytes | None


class CommittedRecords:
    """The committed records of one partition; ``end`` is the offset after them."""

    def __init__(self) -> None:
        self.end = 0
        self._by_offset: dict[int, Seen] = {}
        self._latest: dict[bytes | None, int] = {}

    def commit(self, records: Iterable[Seen], end: int) -> None:
        """Takes in those at or above ``end`` so far."""
        for record in records:
            if self.end <= record.offset < end:
                self._by_offset[record.offset] = record
                self._latest[record.key] = record.offset
        self.end = max(self.end, end)

    def fault(self, held: Iterable[Seen], start: int, end: int, *, alone: bool) -> str:
        """What is wrong with what a replica holds of [start, end); "" if nothing is. ``alone``: it must hold itself what hides others."""
        there: dict[int, Seen] = {}
        latest: dict[bytes | None, int] = {}
        for record in held:
            known = self._by_offset.get(record.offset)
            if record.offset < self.end and known != record:
                return f"has {record}, committed was {known}"
            there[record.offset] = record
            latest[record.key] = record.offset
        hiding = latest if alone else self._latest
        for offset in range(start, min(end, self.end)):
            missing = self._by_offset.get(offset)
            if missing is not None and offset not in there and hiding.get(missing.key, -1) <= offset:
                return f"lacks {missing}, the last of its key"
        return ""


def records(partition: Partition, start: int, end: int) -> Iterator[Seen]:
    """The records of a replica's log from ``start`` up to ``end``, read as a consumer would: what it cannot pass, ends it."""
    while start < end:
        begun = start
        data = partition.log.read(start, READ_BYTES, end, minimum_one=True).data
        for position, header in headers(data):
            for offset, _, key, value, _ in decode_records(data, header, position=position):
                if start <= offset < end:
                    yield Seen(offset, key, value)
            start = max(start, header.next_offset)
        if start == begun:
            return
