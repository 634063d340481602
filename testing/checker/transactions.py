"""Transactions over all partitions: each is there whole or not at all, and of each source there is one record."""

from collections import Counter, defaultdict
from itertools import chain

from ottla.testing.checker.collected import (
    NO_NAME,
    Collected,
    Fate,
    FinalRead,
    PartitionHistory,
    TopicHistory,
)
from ottla.testing.checker.findings import Judgement, Kind
from ottla.testing.checker.operations import FOREVER, Commit, Isolation


def judge(collected: Collected, out: Judgement) -> None:
    if collected.transactions.texts:
        _Torn(collected, out).judge()
    for topic in collected.topics.values():
        if topic.sources:
            _Once(collected, topic, out).judge()


def _committed_reads(topic: TopicHistory) -> list[tuple[PartitionHistory, FinalRead]]:
    return [
        (partition, each)
        for partition in topic.partitions.values()
        for each in partition.finals.values()
        if each.isolation is Isolation.COMMITTED
    ]


class _Torn:
    """Of a transaction of which nobody knows whether it was committed all is there, or nothing. (Of one that was, what is not
    there is lost; see logs.py.)"""

    def __init__(self, collected: Collected, out: Judgement) -> None:
        self.collected, self.out = collected, out
        self.there: dict[int, list[str]] = defaultdict(list)
        self.missing: dict[int, list[tuple[str, int, bool]]] = defaultdict(list)

    def judge(self) -> None:
        for topic in self.collected.topics.values():
            for partition, final in _committed_reads(topic):
                self._take(topic, partition, final)
        for transaction, missing in self.missing.items():
            there = self.there.get(transaction)
            if there:
                name = self.collected.transactions.texts[transaction]
                told = f"{there[0]} is there, {missing[0][0]} is not ({len(there)} are, {len(missing)} are not)"
                permitted = all(each for _, _, each in missing)
                lines = [line for _, line, _ in missing[:3]]
                self.out.add(Kind.HALF_TRANSACTION, name, lines, told, permitted=permitted)

    def _take(self, topic: TopicHistory, partition: PartitionHistory, final: FinalRead) -> None:
        doubtful = {
            each for each in set(topic.transactions) if each != NO_NAME and self.collected.fate(each) is Fate.IN_DOUBT
        }
        there = set(final.rows)
        for row in there:
            if topic.transactions[row] in doubtful:
                self.there[topic.transactions[row]].append(f"{topic.value(row)!r} of {partition.name}")
        columns = partition.acknowledged
        placed = zip(columns.rows, columns.offsets, columns.begins, columns.lines, strict=True)
        unplaced = ((row, FOREVER, topic.begins[row], topic.lines[row]) for row in partition.unplaced)
        for row, offset, begin, line in chain(placed, unplaced):
            if topic.transactions[row] in doubtful and row not in there and offset >= partition.deleted_before:
                permitted = partition.permits(offset, begin, final.end)
                self.missing[topic.transactions[row]].append(
                    (f"{topic.value(row)!r} of {partition.name}", line, permitted)
                )


class _Once:
    """What is made of another topic: of each record that the group has committed there is exactly one, and it is committed."""

    def __init__(self, collected: Collected, topic: TopicHistory, out: Judgement) -> None:
        self.collected, self.topic, self.out = collected, topic, out
        self.made: Counter[str] = Counter()
        self.rows: dict[str, int] = {}

    def judge(self) -> None:
        reads = _committed_reads(self.topic)
        for _, final in reads:
            for row in final.rows:
                source = self.topic.sources.get(row)
                if source is not None:
                    self.made[source] += 1
                    first = self.rows.setdefault(source, row)
                    if self.made[source] > 1:
                        self._twice(source, first, row)
        if reads:
            for line in self.collected.commits:
                commit = line.operation
                if commit.final and commit.offset >= 0:
                    self._check_complete(commit, line.number)

    def _twice(self, source: str, one: int, other: int) -> None:
        told = f"{source} was taken twice: {self.topic.value(one)!r} and {self.topic.value(other)!r} are committed"
        self.out.add(Kind.DUPLICATED, self.topic.name, [self.topic.lines[one], self.topic.lines[other]], told)

    def _check_complete(self, commit: Commit, line: int) -> None:
        source = self.collected.topic(commit.topic).partition(commit.partition)
        for final in source.finals.values():
            if final.isolation is Isolation.COMMITTED or final.replica < 0:
                for offset in final.offsets:
                    if offset < commit.offset and not self.made[f"{source.name}@{offset}"]:
                        told = f"{commit.group} has committed {commit.offset} of {source.name}; nothing was made of offset {offset}"
                        permitted = any(each.permits(FOREVER, 0, final.end) for each in self.topic.partitions.values())
                        self.out.add(Kind.LOST, self.topic.name, [line], told, permitted=permitted)
                return
