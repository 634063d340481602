"""What must hold of a compacted partition: replicas may differ in what was cleaned away, never in what a reader can rely on.

Each record is remembered as it was when it was committed, before any cleaner could see it. A replica then may lack a record
only if a later one of the same key was committed, and one that leads, or is at rest, must have such a later one itself.
What a transaction wrote counts from its marker on; what was aborted hides nothing, and may be lacking.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ottla.log.records import decode_records, read_end_marker
from ottla.testing.simulation.pieces import batches_of


class Seen(NamedTuple):
    """A committed record, or one that a replica holds."""

    offset: int
    key: bytes | None
    value: bytes | None


class InTransaction(NamedTuple):
    """A batch of a transaction; ``committed``: of its marker, None of what it wrote."""

    offset: int
    last_offset: int
    producer_id: int
    committed: bool | None


class CommittedRecords:
    """The committed records of one partition; ``end`` is the offset after them."""

    def __init__(self) -> None:
        self.end = 0
        self._by_offset: dict[int, Seen] = {}
        self._latest: dict[bytes | None, int] = {}
        self._open: dict[int, set[int]] = {}
        """Of producers' transactions, the offsets that are not decided."""
        self._aborted: set[int] = set()

    def commit(self, records: Iterable[Seen], end: int, transactions: Iterable[InTransaction] = ()) -> None:
        """Takes in those at or above ``end`` so far."""
        begun = self.end
        new = {record.offset: record for record in records if begun <= record.offset < end}
        self._by_offset.update(new)
        news = [each for each in transactions if begun <= each.offset < end]
        written = {
            offset for each in news if each.committed is None for offset in range(each.offset, each.last_offset + 1)
        }
        self._decide(new.keys() - written if written else new)
        for each in news:
            if each.committed is None:
                self._open.setdefault(each.producer_id, set()).update(range(each.offset, each.last_offset + 1))
            elif each.committed:
                self._decide(self._open.pop(each.producer_id, set()))
            else:
                self._aborted |= self._open.pop(each.producer_id, set())
        self.end = max(begun, end)

    def cut(self, end: int) -> None:
        """A leader was allowed to lack what was committed from ``end`` on."""
        if end < self.end:
            self.end = end
            self._by_offset = {offset: record for offset, record in self._by_offset.items() if offset < end}
            self._open = {
                producer: {each for each in offsets if each < end} for producer, offsets in self._open.items()
            }
            self._latest.clear()
            self._decide(offset for offset in self._by_offset if self._hides(offset))

    def _decide(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            record = self._by_offset.get(offset)
            if record is not None:
                self._latest[record.key] = max(offset, self._latest.get(record.key, -1))

    def _hides(self, offset: int) -> bool:
        if offset in self._aborted:
            return False
        return not self._open or all(offset not in each for each in self._open.values())

    def fault(self, held: Iterable[Seen], start: int, end: int, *, alone: bool) -> str:
        """What is wrong with what a replica holds of [start, end); "" if nothing is. ``alone``: it must hold itself what hides others."""
        there: dict[int, Seen] = {}
        latest: dict[bytes | None, int] = {}
        for record in held:
            known = self._by_offset.get(record.offset)
            if record.offset < self.end and known != record:
                return f"has {record}, committed was {known}"
            there[record.offset] = record
            if self._hides(record.offset):
                latest[record.key] = record.offset
        hiding = latest if alone else self._latest
        for offset in range(start, min(end, self.end)):
            missing = self._by_offset.get(offset)
            if offset in self._aborted:
                continue
            if missing is not None and offset not in there and hiding.get(missing.key, -1) <= offset:
                return f"lacks {missing}, the last of its key"
        return ""


def records(given: Iterable[bytes], start: int, end: int) -> Iterator[Seen]:
    """The records from ``start`` up to ``end`` in pieces of a replica's log."""
    for data in given:
        for each in _decoded(data):
            if isinstance(each, Seen) and start <= each.offset < end:
                yield each


def transactions(given: Iterable[bytes]) -> Iterator[InTransaction]:
    """What transactions wrote, and their markers, in pieces of a replica's log."""
    for data in given:
        for each in _decoded(data):
            if isinstance(each, InTransaction):
                yield each


@lru_cache(128)
def _decoded(data: bytes) -> tuple[Seen | InTransaction, ...]:
    """As they stand there. Every replica has the same."""
    found: list[Seen | InTransaction] = []
    for position, header in batches_of(data):
        marker = read_end_marker(data, header, position) if header.is_control else None
        if marker is not None or (header.is_transactional and not header.is_control):
            committed = None if marker is None else marker.committed
            found.append(InTransaction(header.base_offset, header.last_offset, header.producer_id, committed))
        if not header.is_control:
            found += [
                Seen(offset, key, value) for offset, _, key, value, _ in decode_records(data, header, position=position)
            ]
    return tuple(found)
