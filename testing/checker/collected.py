"""A history in columns: what is kept of each operation until all have been seen. Some 400 bytes each, whatever they are.

A record is known by its value. The first time it is met, written or read, it gets a row of its topic; all else names the row.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ottla.testing.checker import operations as of
from ottla.testing.checker.history import AnyLine, Line
from ottla.testing.checker.operations import FOREVER, AnyOperation, Isolation, Outcome

NOT_WRITTEN, FAILED, UNKNOWN, ACKNOWLEDGED = range(4)
_STATES = {Outcome.OK: ACKNOWLEDGED, Outcome.UNKNOWN: UNKNOWN, Outcome.FAIL: FAILED}
NO_NAME = -1


def _numbers() -> "array[int]":
    return array("q")


class Names:
    """Texts as small numbers."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """NO_NAME of none."""
        if not text:
            return NO_NAME
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found


class Fate(Enum):
    """What became of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    IN_DOUBT = "in doubt"


class ReadFacts(NamedTuple):
    """Of a read that is not final, without its records."""

    line: int
    process: str
    begin: int
    end: int
    start: int
    next: int
    first: int
    isolation: Isolation
    group: str
    fresh: bool


@dataclass(eq=False)
class FinalRead:
    """Of one replica, all its lines together. ``next`` -1: it came to no end."""

    replica: int
    isolation: Isolation
    lagging: bool
    line: int
    begin: int
    end: int
    start: int
    next: int
    offsets: "array[int]" = field(default_factory=_numbers)
    rows: "array[int]" = field(default_factory=_numbers)

    @property
    def name(self) -> str:
        who = "the leader" if self.replica < 0 else f"replica {self.replica}"
        return f"{who} at {self.isolation}" if self.isolation is Isolation.COMMITTED else who


class Acknowledged(NamedTuple):
    """Columns of what was acknowledged at an offset of a partition."""

    rows: "array[int]"
    offsets: "array[int]"
    begins: "array[int]"
    ends: "array[int]"
    lines: "array[int]"


@dataclass(eq=False)
class PartitionHistory:
    """All that is known of one partition but what ``rows`` of its topic say. ``unclean``: elections that permit losses."""

    topic: "TopicHistory"
    index: int
    acknowledged: Acknowledged = field(default_factory=lambda: Acknowledged(*(_numbers() for _ in range(5))))
    unplaced: "array[int]" = field(default_factory=_numbers)  # rows that were acknowledged; nobody said where
    seen_offsets: "array[int]" = field(default_factory=_numbers)
    seen_rows: "array[int]" = field(default_factory=_numbers)
    seen_reads: "array[int]" = field(default_factory=_numbers)
    reads: list[ReadFacts] = field(default_factory=list)
    gaps: list[tuple[int, int, int]] = field(default_factory=list)  # from, to, read
    backward: list[tuple[int, int, int]] = field(default_factory=list)  # offset, expected, read
    finals: dict[tuple[int, Isolation], FinalRead] = field(default_factory=dict)
    lists: list[Line[of.ListOffsets]] = field(default_factory=list)
    deleted_before: int = 0

    @property
    def name(self) -> str:
        return f"{self.topic.name}-{self.index}"

    def permits(self, offset: int, begin: int, until: int) -> bool:
        """Whether an unclean election between the two may have taken what stood at the offset."""
        return any(
            each.partition in (self.index, -1)
            and offset >= each.from_offset
            and begin <= each.end
            and each.begin <= until
            for each in self.topic.unclean
        )


@dataclass(eq=False)
class TopicHistory:
    """``rows``: by value. The columns have an entry each row."""

    name: str
    compacted: bool = False
    is_written: bool = False  # some of its records are in the history
    rows: dict[str, int] = field(default_factory=dict)
    states: bytearray = field(default_factory=bytearray)
    attempts: "array[int]" = field(default_factory=_numbers)
    begins: "array[int]" = field(default_factory=_numbers)
    ends: "array[int]" = field(default_factory=_numbers)
    lines: "array[int]" = field(default_factory=_numbers)
    where: "array[int]" = field(default_factory=_numbers)  # the partition it was meant for
    producers: "array[int]" = field(default_factory=_numbers)
    sequences: "array[int]" = field(default_factory=_numbers)
    transactions: "array[int]" = field(default_factory=_numbers)
    keys: "array[int]" = field(default_factory=_numbers)
    timestamps: dict[int, int] = field(default_factory=dict)  # of rows that were given one
    sources: dict[int, str] = field(default_factory=dict)
    repeatable: set[int] = field(default_factory=set)  # rows of producers that are not idempotent
    partitions: dict[int, PartitionHistory] = field(default_factory=dict)
    unclean: list[of.Unclean] = field(default_factory=list)
    gets: dict[str, list[Line[of.Get]]] = field(default_factory=dict)
    _values: list[str] | None = None

    def partition(self, index: int) -> PartitionHistory:
        found = self.partitions.get(index)
        if found is None:
            found = self.partitions[index] = PartitionHistory(self, index)
        return found

    def value(self, row: int) -> str:
        if self._values is None:
            self._values = list(self.rows)
        return self._values[row]

    def new_row(self, value: str) -> int:
        row = self.rows[value] = len(self.states)
        self.states.append(NOT_WRITTEN)
        for column in (self.attempts, self.sequences):
            column.append(0)
        for column in (self.begins, self.lines, self.where, self.producers, self.transactions, self.keys):
            column.append(NO_NAME)
        self.ends.append(FOREVER)
        return row


class Collected:
    """``add`` every line; then judges read it."""

    def __init__(self, lines: Iterable[AnyLine] = ()) -> None:
        self.topics: dict[str, TopicHistory] = {}
        self.producers, self.transactions, self.keys = Names(), Names(), Names()
        self.ends: dict[int, list[Line[of.Transaction]]] = {}
        """Of transactions: how they were ended."""
        self.commits: list[Line[of.Commit]] = []
        self.assigned: list[Line[of.Assigned]] = []
        self.admin: dict[str, list[Line[of.Admin]]] = {}
        self.faults: list[of.Fault] = []
        self.counts: dict[str, dict[str, int]] = {}
        for each in lines:
            self.add(each)

    def add(self, line: AnyLine) -> None:
        operation = line.operation
        counts = self.counts.get(operation.name)
        if counts is None:
            counts = self.counts[operation.name] = dict.fromkeys(Outcome, 0)
        counts[operation.outcome] += 1
        self._take(line.number, operation)

    def _take(self, line: int, operation: AnyOperation) -> None:  # noqa: C901 - a table
        match operation:
            case of.Produce() as each:
                self._produce(line, each)
            case of.Read() as each:
                self._read(line, each)
            case of.Get() as each:
                self._get(line, each)
            case of.ListOffsets() as each:
                self._list_offsets(line, each)
            case of.Transaction() as each:
                self.ends.setdefault(self.transactions.number(each.transaction), []).append(Line(line, each))
            case of.Assigned() as each:
                self.assigned.append(Line(line, each))
            case of.Commit() as each:
                self.commits.append(Line(line, each))
            case of.Admin() as each:
                self.admin.setdefault(each.topic, []).append(Line(line, each))
            case of.Topic() as each:
                self.topic(each.topic).compacted = each.compacted
            case of.Unclean() as each:
                self.topic(each.topic).unclean.append(each)
            case of.Deleted() as each:
                self._deleted(each)
            case of.Fault() as each:
                self.faults.append(each)

    def topic(self, name: str) -> TopicHistory:
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicHistory(name)
        return found

    def fate(self, transaction: int) -> Fate:
        """Only what asked for a commit can have one."""
        ends = [each.operation for each in self.ends.get(transaction, ())]
        outcomes = {each.outcome for each in ends if each.action == "commit"}
        if Outcome.OK in outcomes:
            return Fate.COMMITTED
        return Fate.IN_DOUBT if Outcome.UNKNOWN in outcomes else Fate.ABORTED

    # --- each kind of line ----------------------------------------------------------------------------------------------

    def _produce(self, line: int, each: of.Produce) -> None:
        topic = self.topics.get(each.topic) or self.topic(each.topic)
        topic.is_written = True
        row = topic.rows.get(each.value)
        if row is None:
            row = topic.new_row(each.value)
        state = _STATES[each.outcome]
        if topic.lines[row] < 0:
            topic.begins[row], topic.lines[row], topic.where[row] = each.begin, line, each.partition
            topic.producers[row] = self.producers.number(each.producer)
            topic.sequences[row] = each.sequence
            topic.transactions[row] = self.transactions.number(each.transaction)
            if each.key is not None:
                topic.keys[row] = self.keys.number(each.key)
        if state > topic.states[row]:
            topic.states[row], topic.ends[row] = state, each.end
        topic.attempts[row] += state != FAILED
        if each.timestamp >= 0:
            topic.timestamps[row] = each.timestamp
        if each.source:
            topic.sources[row] = each.source
        if not each.idempotent:
            topic.repeatable.add(row)
        if state == ACKNOWLEDGED and each.offset < 0:
            topic.partition(each.partition).unplaced.append(row)
        elif state == ACKNOWLEDGED:
            columns = topic.partition(each.partition).acknowledged
            columns.rows.append(row)
            columns.offsets.append(each.offset)
            columns.begins.append(each.begin)
            columns.ends.append(each.end)
            columns.lines.append(line)

    def _read(self, line: int, each: of.Read) -> None:
        if each.outcome is not Outcome.OK:
            return
        topic = self.topic(each.topic)
        partition = topic.partition(each.partition)
        known = topic.rows
        offsets = [offset for offset, _ in each.records]
        rows = [known[value] if value in known else topic.new_row(value) for _, value in each.records]
        if each.final:
            self._final(line, each, partition, offsets, rows)
            return
        number = len(partition.reads)
        partition.seen_offsets.extend(offsets)
        partition.seen_rows.extend(rows)
        partition.seen_reads.extend([number] * len(rows))
        first = offsets[0] if offsets else -1
        partition.reads.append(
            ReadFacts(
                line,
                each.process,
                each.begin,
                each.end,
                each.start,
                each.next,
                first,
                each.isolation,
                each.group,
                each.fresh,
            )
        )
        expected = each.start if each.start >= 0 else first
        for offset in offsets:
            if offset != expected:
                if offset > expected:
                    partition.gaps.append((expected, offset, number))
                else:
                    partition.backward.append((offset, expected, number))
            expected = offset + 1
        if 0 <= expected < each.next:
            partition.gaps.append((expected, each.next, number))

    @staticmethod
    def _final(line: int, each: of.Read, partition: PartitionHistory, offsets: list[int], rows: list[int]) -> None:
        name = (each.replica, each.isolation)
        found = partition.finals.get(name)
        if found is None:
            found = partition.finals[name] = FinalRead(
                each.replica, each.isolation, each.lagging, line, each.begin, each.end, each.start, each.next
            )
        found.offsets.extend(offsets)
        found.rows.extend(rows)
        found.next, found.end = each.next, each.end

    def _get(self, line: int, each: of.Get) -> None:
        if each.outcome is Outcome.OK:
            self.topic(each.topic).gets.setdefault(each.key, []).append(Line(line, each))

    def _list_offsets(self, line: int, each: of.ListOffsets) -> None:
        if each.outcome is Outcome.OK:
            self.topic(each.topic).partition(each.partition).lists.append(Line(line, each))

    def _deleted(self, each: of.Deleted) -> None:
        partition = self.topic(each.topic).partition(each.partition)
        if each.outcome is not Outcome.FAIL:
            partition.deleted_before = max(partition.deleted_before, each.before)
