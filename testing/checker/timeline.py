"""What must hold of one partition by the clock: whatever was acknowledged before something began is known to it."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from ottla.testing.checker.collected import NO_NAME, Collected, Fate, PartitionHistory
from ottla.testing.checker.findings import Judgement, Kind
from ottla.testing.checker.history import Line
from ottla.testing.checker.operations import LATEST, Isolation, ListOffsets, Outcome


class Highest:
    """The highest offset of those that were told before a moment. ``told``: (when, offset, line)."""

    def __init__(self, told: Iterable[tuple[int, int, int]]) -> None:
        found = sorted(told)
        self._ends = [end for end, _, _ in found]
        self._highest = list(accumulate(((offset, line, end) for end, offset, line in found), max))

    def before(self, begin: int) -> tuple[int, int, int]:
        """(offset, line, when); -1 if there was none."""
        place = bisect_left(self._ends, begin)
        return self._highest[place - 1] if place else (-1, 0, 0)


class TimelineJudge:
    """Of one partition."""

    def __init__(self, collected: Collected, partition: PartitionHistory, out: Judgement) -> None:
        self.collected, self.partition, self.out = collected, partition, out

    def judge(self) -> None:
        columns = self.partition.acknowledged
        acknowledged = Highest(zip(columns.ends, columns.offsets, columns.lines, strict=True))
        self._check_order(acknowledged)
        fresh = [each for each in self.partition.reads if each.fresh and each.next >= 0]
        if fresh:
            committed = Highest(self._committed())
            for each in fresh:
                highest = committed if each.isolation is Isolation.COMMITTED else acknowledged
                self._check_fresh(highest, each.begin, each.next, each.line, each.process)
        for line, asked in self.partition.lists:
            if asked.fresh and asked.asked == LATEST:
                self._check_fresh(acknowledged, asked.begin, asked.offset, line, asked.process)
        ListJudge(self.partition, self.out).judge()

    def _check_order(self, acknowledged: Highest) -> None:
        """Who writes after another was acknowledged comes behind it."""
        columns = self.partition.acknowledged
        for offset, begin, end, line in zip(columns.offsets, columns.begins, columns.ends, columns.lines, strict=True):
            highest, other, when = acknowledged.before(begin)
            if offset < highest:
                told = f"offset {highest} was acknowledged before what is at {offset} was sent"
                permitted = self.partition.permits(highest, when, end)
                self.out.add(Kind.REORDERED, self.partition.name, [other, line], told, permitted=permitted)

    def _check_fresh(self, highest: Highest, begin: int, following: int, line: int, who: str) -> None:
        offset, other, when = highest.before(begin)
        if offset >= following:
            told = f"{who} was told that {following} is the end; offset {offset} was acknowledged before it asked"
            permitted = self.partition.permits(offset, when, begin)
            self.out.add(Kind.STALE, self.partition.name, [other, line], told, permitted=permitted)

    def _committed(self) -> Iterable[tuple[int, int, int]]:
        """What a reader of committed records has to see, since when."""
        columns, transactions = self.partition.acknowledged, self.partition.topic.transactions
        for row, offset, end, line in zip(columns.rows, columns.offsets, columns.ends, columns.lines, strict=True):
            transaction = transactions[row]
            if transaction == NO_NAME:
                yield end, offset, line
            elif self.collected.fate(transaction) is Fate.COMMITTED:
                ends = self.collected.ends[transaction]
                told = min(each.operation.end for each in ends if each.operation.outcome is Outcome.OK)
                yield max(end, told), offset, line


class _Answer(NamedTuple):
    """Offset `NONE_YET` stands for: no record is so late."""

    asked: int
    offset: int
    begin: int
    end: int
    line: int
    process: str


NONE_YET = 2**63 - 1


class ListJudge:
    """Offsets of times, the earliest and the latest. A leader that was deposed and does not know it may answer late, but not the one
    whom its successor has answered: their clients know the leader's epoch."""

    def __init__(self, partition: PartitionHistory, out: Judgement) -> None:
        self.partition, self.out = partition, out
        self._named: dict[tuple[str, str], list[Line[ListOffsets]]] = {}
        self._times: list[_Answer] = []
        for line in partition.lists:
            each = line.operation
            if isinstance(each.asked, str):
                self._named.setdefault((each.asked, each.process), []).append(line)
            else:
                offset = each.offset if each.offset >= 0 else NONE_YET
                if offset >= partition.deleted_before:
                    self._times.append(_Answer(each.asked, offset, each.begin, each.end, line.number, each.process))

    def judge(self) -> None:
        for (asked, _), lines in self._named.items():
            self._check_rising(asked, lines)
        self._check_times()
        self._check_same_time()

    def _check_rising(self, what: str, lines: list[Line[ListOffsets]]) -> None:
        highest = Highest((each.end, each.offset, number) for number, each in lines)
        for number, each in lines:
            offset, other, when = highest.before(each.begin)
            if each.offset < offset:
                told = f"{each.process} was told that the {what} is {offset}, and later {each.offset}"
                permitted = self.partition.permits(each.offset, when, each.end)
                self.out.add(Kind.OFFSET_CHANGED, self.partition.name, [other, number], told, permitted=permitted)

    def _check_times(self) -> None:
        """The first record from a later time on is not before that of an earlier one."""
        known = sorted(each for each in self._times if each.offset != NONE_YET)
        if not known:
            return
        floor = known[0]
        for each in known:
            if each.offset < floor.offset and floor.asked < each.asked:
                self._changed(
                    floor, each, f"the first record since {floor.asked} is at {floor.offset}, since {each.asked} at"
                )
            floor = max(floor, each, key=lambda answer: answer.offset)

    def _check_same_time(self) -> None:
        """Once a record is the first of a time, it remains so."""
        known: dict[int, _Answer] = {}
        for each in sorted(self._times, key=lambda answer: answer.end):
            before = known.setdefault(each.asked, each)
            if before.offset == NONE_YET:
                known[each.asked] = each
            elif each.offset != before.offset and each.begin > before.end:
                self._check_moved(before, each)

    def _check_moved(self, before: _Answer, each: _Answer) -> None:
        if each.offset != NONE_YET or each.process == before.process:
            self._changed(before, each, f"the first record since {each.asked} was at {before.offset}, and later at")

    def _took(self, told: _Answer, other: _Answer) -> bool:
        """Whether an election took the record of one answer before the other was given."""
        return told.offset != NONE_YET and self.partition.permits(told.offset, told.begin, other.end)

    def _changed(self, before: _Answer, each: _Answer, told: str) -> None:
        now = "none" if each.offset == NONE_YET else str(each.offset)
        permitted = self._took(before, each) or self._took(each, before)
        lines = [before.line, each.line]
        self.out.add(Kind.OFFSET_CHANGED, self.partition.name, lines, f"{told} {now}", permitted=permitted)
