"""What copiers did and what a reader of committed records finds in the end, as a history for the checker."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.testing.checker import Commit, Isolation, Outcome, Produce, Read, Report, Transaction, check
from ottla.testing.checker.operations import AnyOperation
from tests.chaos.groups.diary import Entry

SOURCE, TARGET = "source", "target"


class Copy(NamedTuple):
    """A record of the output."""

    number: int
    attempt: int


Output = Mapping[int, Sequence[Copy]]
"""By partition, in the order in which it was read."""


class Attempt(NamedTuple):
    member: str
    records: set[tuple[int, int]]
    """By (partition, number)."""
    outcome: str
    """`committed`, `aborted`, or `unknown`: nobody was told."""


def attempts(entries: Iterable[Entry]) -> dict[int, Attempt]:
    records: dict[int, set[tuple[int, int]]] = defaultdict(set)
    outcomes: dict[int, str] = {}
    members: dict[int, str] = {}
    for each in entries:
        if each.what == "wrote":
            records[each.value].add((each.partition, each.offset))
            members[each.value] = each.member
        elif each.what in ("committed", "aborted", "unknown"):
            outcomes[each.value] = each.what
    return {each: Attempt(members[each], records[each], outcomes.get(each, "unknown")) for each in records}


def judged(output: Output, written: int, tried: Mapping[int, Attempt]) -> Report:
    """``written``: so many records are in each partition of the source, and all are copied."""
    return check([*_tried(tried), *_found(output), *_source(output, written)])


def _tried(tried: Mapping[int, Attempt]) -> Iterator[AnyOperation]:
    """An attempt wrote all its records before it asked for its end; of what it was not told nobody knows."""
    for number, attempt in tried.items():
        for partition, record in sorted(attempt.records):
            yield Produce(
                topic=TARGET,
                partition=partition,
                value=f"{partition}: {record} by {number}",
                source=f"{SOURCE}-{partition}@{record}",
                producer=f"{SOURCE}-{partition}",
                sequence=record,
                transaction=str(number),
                process=attempt.member,
                outcome=Outcome.OK,
            )
        action = "abort" if attempt.outcome == "aborted" else "commit"
        outcome = Outcome.UNKNOWN if attempt.outcome == "unknown" else Outcome.OK
        yield Transaction(transaction=str(number), action=action, outcome=outcome, process=attempt.member)


def _found(output: Output) -> Iterator[AnyOperation]:
    for partition, copies in output.items():
        there = [(place, f"{partition}: {each.number} by {each.attempt}") for place, each in enumerate(copies)]
        yield Read(
            topic=TARGET,
            partition=partition,
            records=there,
            start=0,
            next=len(there),
            isolation=Isolation.COMMITTED,
            final=True,
            outcome=Outcome.OK,
        )


def _source(output: Output, written: int) -> Iterator[AnyOperation]:
    for partition in output:
        there = [(number, str(number)) for number in range(written)]
        yield Read(
            topic=SOURCE, partition=partition, records=there, start=0, next=written, final=True, outcome=Outcome.OK
        )
        yield Commit(group="copiers", topic=SOURCE, partition=partition, offset=written, final=True, outcome=Outcome.OK)
