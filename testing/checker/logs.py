"""One partition's records: what was acknowledged and what was read, held against what is there in the end."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from ottla.testing.checker.collected import (
    FAILED,
    NO_NAME,
    NOT_WRITTEN,
    Collected,
    Fate,
    FinalRead,
    PartitionHistory,
)
from ottla.testing.checker.findings import Judgement, Kind
from ottla.testing.checker.operations import FOREVER, Isolation


class LogJudge:
    """Of one partition. ``there``: the row at each offset, as the final read says, or else as whoever saw it first."""

    def __init__(self, collected: Collected, partition: PartitionHistory, out: Judgement) -> None:
        self.partition, self.topic, self.out = partition, partition.topic, out
        self.collected = collected
        self.final = reference(partition)
        self.there: dict[int, int] = {}
        self._places: dict[int, int] | None = None
        self._fates: dict[int, Fate] = {}
        self._twice: set[int] = set()
        self._since: dict[int, int] = {}  # when somebody saw what is at an offset, where nobody read at the end
        self._latest_of_keys: dict[int, int] = {}
        if self.final is not None:
            self.there = dict(zip(self.final.offsets, self.final.rows, strict=True))

    def judge(self) -> None:
        if self.final is None:
            self._say_unread()
        else:
            self._check_final(self.final)
            for each in self.partition.finals.values():
                if each is not self.final:
                    self._check_other(self.final, each)
        self._check_acknowledged()
        self._check_unplaced()
        self._check_reads()

    def fate(self, row: int) -> Fate:
        """Of the transaction that a row belongs to; what belongs to none is committed."""
        transaction = self.topic.transactions[row]
        if transaction == NO_NAME:
            return Fate.COMMITTED
        found = self._fates.get(transaction)
        if found is None:
            found = self._fates[transaction] = self.collected.fate(transaction)
        return found

    def _add(self, kind: Kind, lines: list[int], sentence: str, *, permitted: bool = False) -> None:
        self.out.add(kind, self.partition.name, lines, sentence, permitted=permitted)

    def _record(self, row: int) -> str:
        return repr(self.topic.value(row))

    # --- what is there in the end -----------------------------------------------------------------------------------------

    def _say_unread(self) -> None:
        if self.partition.acknowledged.rows:
            sentence = "nobody read it at the end: whether acknowledged records are lost is not known"
            self.out.unknown.add(Kind.LOST, self.partition.name, [], sentence)

    def _check_final(self, final: FinalRead) -> None:
        if final.next < 0:
            self.out.unknown.add(Kind.LOST, self.partition.name, [final.line], "the final read came to no end")
        if any(before >= after for before, after in pairwise(final.offsets)):
            self._add(Kind.REORDERED, [final.line], f"{final.name} gives offsets that do not rise")
        self._check_written(final)
        self._check_twice()
        self._check_producers(final)

    def _check_written(self, final: FinalRead) -> None:
        topic, index = self.topic, self.partition.index
        if not topic.is_written:
            return
        states, where = topic.states, topic.where
        for offset, row in zip(final.offsets, final.rows, strict=True):
            if states[row] <= FAILED:
                told = (
                    "nobody wrote it" if states[row] == NOT_WRITTEN else "its producer was told that it is not written"
                )
                self._add(Kind.PHANTOM, [topic.lines[row]], f"{self._record(row)} is at offset {offset}: {told}")
            elif where[row] not in (index, -1):
                told = f"{self._record(row)} is at offset {offset}: it was written to partition {where[row]}"
                self._add(Kind.PHANTOM, [topic.lines[row]], told)

    def _check_twice(self) -> None:
        if len(self.there) == len(set(self.there.values())):
            return
        attempts, repeatable = self.topic.attempts, self.topic.repeatable
        for row, count in Counter(self.there.values()).items():
            if count > 1:
                self._twice.add(row)
            if count > max(attempts[row], 1) and row not in repeatable:
                offsets = [offset for offset, each in self.there.items() if each == row]
                told = f"{self._record(row)} was written once and is at the offsets {_some(offsets)}"
                self._add(Kind.DUPLICATED, [self.topic.lines[row]], told)

    def _check_producers(self, final: FinalRead) -> None:
        """A record of a producer that comes behind a later one of it. What is there twice on purpose counts where it comes first."""
        producers, sequences = self.topic.producers, self.topic.sequences
        last: dict[int, tuple[int, int]] = {}
        for row in final.rows:
            producer = producers[row]
            if producer == NO_NAME:
                continue
            before = last.get(producer)
            if before is None or sequences[row] > before[0]:
                last[producer] = (sequences[row], row)
            elif sequences[row] < before[0] and row not in self._twice:
                lines = [self.topic.lines[row], self.topic.lines[before[1]]]
                who = self.collected.producers.texts[producer]
                told = f"{who} wrote {self._record(row)} before {self._record(before[1])}, and it stands behind it"
                self._add(Kind.REORDERED, lines, told)

    # --- replicas -----------------------------------------------------------------------------------------------------------

    def _check_other(self, final: FinalRead, other: FinalRead) -> None:
        """Each record of the other is in ``final``, and, unless it hides some, the other way round."""
        there, same = self.there, 0
        for offset, row in zip(other.offsets, other.rows, strict=True):
            if there.get(offset) == row:
                same += 1
            elif final.start <= offset < final.next:
                self._differ(final, other, offset, row)
            elif offset >= final.next >= 0 and not final.lagging:
                self._add(Kind.DIVERGED, [final.line, other.line], self._only(other, offset, final))
        if other.isolation is Isolation.COMMITTED or self.topic.compacted:
            return
        low, high = max(final.start, other.start), min(final.next, other.next)
        if min(final.next, other.next) < 0:
            return  # what one lacks may be what it did not come to
        due = [offset for offset in final.offsets if low <= offset < (high if other.lagging else final.next)]
        if len(due) != same:
            for offset in sorted(set(due) - set(other.offsets)):
                self._add(Kind.DIVERGED, [final.line, other.line], self._only(final, offset, other))

    def _differ(self, final: FinalRead, other: FinalRead, offset: int, row: int) -> None:
        here = self.there.get(offset)
        if here is None:
            if not self.topic.compacted:
                self._add(Kind.DIVERGED, [final.line, other.line], self._only(other, offset, final))
            return
        told = f"at offset {offset} {final.name} has {self._record(here)}, {other.name} {self._record(row)}"
        self._add(Kind.DIVERGED, [final.line, other.line], told)

    @staticmethod
    def _only(one: FinalRead, offset: int, other: FinalRead) -> str:
        return f"{one.name} has a record at offset {offset}, {other.name} has none"

    # --- what was acknowledged ------------------------------------------------------------------------------------------------

    def _check_acknowledged(self) -> None:
        columns, there = self.partition.acknowledged, self.there
        for row, offset, begin, line in zip(columns.rows, columns.offsets, columns.begins, columns.lines, strict=True):
            if there.get(offset) == row:
                continue
            if self.final is None:
                self._see(offset, row, [self.topic.lines[row], line], begin, begin)
            elif self.fate(row) is Fate.COMMITTED and not self._is_gone(row, offset) and self._is_known(offset):
                self._missing(row, offset, begin, line)

    def _check_unplaced(self) -> None:
        """Acknowledged, without an offset: anywhere."""
        topic = self.topic
        if self.final is None or self.final.next < 0 or topic.compacted or self.partition.deleted_before:
            return
        for row in self.partition.unplaced:
            if self._place(row) is None and self.fate(row) is Fate.COMMITTED:
                permitted = self.partition.permits(FOREVER, topic.begins[row], FOREVER)
                self._add(
                    Kind.LOST,
                    [topic.lines[row]],
                    f"{self._record(row)} was acknowledged and is nowhere",
                    permitted=permitted,
                )

    def _see(self, offset: int, row: int, lines: list[int], begin: int, end: int) -> None:
        """Without a final read, who saw a record first is believed."""
        found = self.there.setdefault(offset, row)
        since = self._since.setdefault(offset, begin)
        if found != row:
            self._changed(offset, found, row, lines, min(since, begin), max(since, end))

    def _is_known(self, offset: int) -> bool:
        """Whether the final read came so far."""
        final = self.final
        return final is not None and (final.next >= 0 or (len(final.offsets) > 0 and offset <= final.offsets[-1]))

    def _is_gone(self, row: int, offset: int) -> bool:
        """On purpose."""
        return offset < self.partition.deleted_before or (self.topic.compacted and self._is_compacted(row, offset))

    def _is_compacted(self, row: int, offset: int) -> bool:
        if not self._latest_of_keys:
            keys = self.topic.keys
            for at, each in self.there.items():
                key = keys[each]
                self._latest_of_keys[key] = max(at, self._latest_of_keys.get(key, -1))
        return self.there.get(offset) is None and self._latest_of_keys.get(self.topic.keys[row], -1) > offset

    def _missing(self, row: int, offset: int, begin: int, line: int) -> None:
        place = self._place(row)
        permitted = self.partition.permits(offset, begin, FOREVER)
        told = f"{self._record(row)} was acknowledged at offset {offset}"
        if place is not None:
            self._add(Kind.OFFSET_CHANGED, [line], f"{told} and stands at {place}", permitted=permitted)
        else:
            now = self.there.get(offset)
            here = "nothing is there" if now is None else f"there is {self._record(now)}"
            self._add(Kind.LOST, [line], f"{told}: {here}", permitted=permitted)

    def _place(self, row: int) -> int | None:
        if self._places is None:
            self._places = {each: offset for offset, each in self.there.items()}
        return self._places.get(row)

    def _changed(self, offset: int, one: int, other: int, lines: list[int], begin: int, until: int = FOREVER) -> None:
        told = f"offset {offset} was {self._record(one)} and {self._record(other)}"
        permitted = self.partition.permits(offset, begin, until)
        self._add(Kind.OFFSET_CHANGED, lines, told, permitted=permitted)

    # --- what was read meanwhile ----------------------------------------------------------------------------------------------

    def _check_reads(self) -> None:
        partition, there = self.partition, self.there
        aborted = self._aborted_rows()
        for offset, row, number in zip(partition.seen_offsets, partition.seen_rows, partition.seen_reads, strict=True):
            if row in aborted and partition.reads[number].isolation is Isolation.COMMITTED:
                self._aborted_read(offset, row, number)
            if there.get(offset) != row:
                self._odd_read(offset, row, number)
        for offset, expected, number in partition.backward:
            told = f"offset {offset} was given again to a reader that had come to {expected}"
            self._add(Kind.DUPLICATED, [partition.reads[number].line], told)
        self._check_gaps()
        self._check_committed_finals(aborted)

    def _aborted_rows(self) -> set[int]:
        transactions = self.topic.transactions
        if not self.collected.transactions.texts:
            return set()
        return {
            row
            for row, transaction in enumerate(transactions)
            if transaction != NO_NAME and self.fate(row) is Fate.ABORTED
        }

    def _aborted_read(self, offset: int, row: int, number: int) -> None:
        read = self.partition.reads[number]
        self._add(Kind.ABORTED_READ, [self.topic.lines[row], read.line], self._aborted(offset, row, read.process))

    def _aborted(self, offset: int, row: int, who: str) -> str:
        name = self.collected.transactions.texts[self.topic.transactions[row]]
        return f"{who} was given {self._record(row)} at offset {offset}, of the aborted transaction {name}"

    def _check_committed_finals(self, aborted: set[int]) -> None:
        for each in self.partition.finals.values():
            if each.isolation is Isolation.COMMITTED and aborted:
                for offset, row in zip(each.offsets, each.rows, strict=True):
                    if row in aborted:
                        lines = [self.topic.lines[row], each.line]
                        self._add(Kind.ABORTED_READ, lines, self._aborted(offset, row, each.name))

    def _odd_read(self, offset: int, row: int, number: int) -> None:
        read, found = self.partition.reads[number], self.there.get(offset)
        if self.final is None:
            self._see(offset, row, [read.line], read.begin, read.end)
        elif found is not None:
            self._changed(offset, row, found, [read.line], read.begin)
        elif not self._is_gone(row, offset) and self._is_known(offset):
            told = f"{read.process} read {self._record(row)} at offset {offset}: nothing is there"
            permitted = self.partition.permits(offset, read.begin, FOREVER)
            self._add(Kind.OFFSET_CHANGED, [read.line], told, permitted=permitted)

    def _check_gaps(self) -> None:
        """What a reader passed over, though it is there."""
        for start, end, number in self.partition.gaps:
            read = self.partition.reads[number]
            missed = self.visible_between(start, end, read.isolation)
            if missed:
                told = f"{read.process} read on to {end} and was not given {_some(missed)}"
                permitted = self.partition.permits(missed[0], 0, read.end)
                self._add(Kind.SKIPPED, [read.line], told, permitted=permitted)

    def visible_between(self, start: int, end: int, isolation: Isolation) -> list[int]:
        """Offsets of what is there and is not deleted."""
        if self.topic.compacted:
            return []
        start = max(start, self.partition.deleted_before)
        found = _within(start, end, self.there)
        if isolation is Isolation.UNCOMMITTED:
            return list(found)
        return [each for each in found if self.fate(self.there[each]) is Fate.COMMITTED]


def _within(start: int, end: int, offsets: dict[int, int]) -> Iterator[int]:
    if end - start <= len(offsets):
        return (each for each in range(start, end) if each in offsets)
    return (each for each in sorted(offsets) if start <= each < end)


def _some(numbers: list[int]) -> str:
    told = ", ".join(map(str, numbers[:5]))
    return told if len(numbers) <= 5 else f"{told}, … ({len(numbers)})"


def reference(partition: PartitionHistory) -> FinalRead | None:
    """The final read that others are held against: of the leader, or of a replica in sync, of all that is there if somebody asked."""
    finals = list(partition.finals.values())
    return min(
        finals, key=lambda each: (each.isolation is Isolation.COMMITTED, each.lagging, each.replica), default=None
    )
