"""What the members of a group read and commit, all together."""

from collections import defaultdict

from ottla.testing.checker.collected import Collected, PartitionHistory, ReadFacts
from ottla.testing.checker.findings import Judgement, Kind
from ottla.testing.checker.history import Line
from ottla.testing.checker.logs import LogJudge
from ottla.testing.checker.operations import Commit, Outcome
from ottla.testing.checker.timeline import Highest


def judge(collected: Collected, partition: PartitionHistory, log: LogJudge, out: Judgement) -> None:
    groups: dict[str, list[ReadFacts]] = defaultdict(list)
    for each in partition.reads:
        if each.group and each.first >= 0:
            groups[each.group].append(each)
    for group, reads in groups.items():
        reads.sort(key=lambda each: each.begin)
        _check_passed_over(partition, log, group, reads, out)
        _check_begins(collected, partition, group, reads, out)


def _check_passed_over(
    partition: PartitionHistory, log: LogJudge, group: str, reads: list[ReadFacts], out: Judgement
) -> None:
    """A member goes on where one was, or before."""
    furthest = reads[0].first
    for each in sorted(reads, key=lambda read: read.end):
        if each.first > furthest:
            missed = log.visible_between(furthest, each.first, each.isolation)
            if missed:
                told = f"{each.process} of {group} read on from {each.first}; nobody had read offset {missed[0]}"
                permitted = partition.permits(missed[0], 0, each.end)
                out.add(Kind.SKIPPED, partition.name, [each.line], told, permitted=permitted)
        furthest = max(furthest, each.next, each.first + 1)


def _check_begins(
    collected: Collected, partition: PartitionHistory, group: str, reads: list[ReadFacts], out: Judgement
) -> None:
    """Who is given a partition begins where its group had committed, or behind it."""
    here = (group, partition.topic.name, partition.index)
    committed = Highest(
        (each.end, each.offset, line.number) for line in collected.commits if (each := _commit(line, here)) is not None
    )
    by_member: dict[str, list[ReadFacts]] = defaultdict(list)
    for read in reads:
        by_member[read.process].append(read)
    for line in collected.assigned:
        given = line.operation
        if (given.group, given.topic, given.partition) != here:
            continue
        first = next((each for each in by_member[given.process] if each.end >= given.begin), None)
        offset, other, when = committed.before(given.begin)
        if first is not None and first.first < offset:
            told = f"{given.process} of {group} began at {first.first}; {offset} was committed before the partition was given to it"
            permitted = partition.permits(offset - 1, when, first.end)
            out.add(Kind.REWOUND, partition.name, [other, line.number, first.line], told, permitted=permitted)


def _commit(line: Line[Commit], here: tuple[str, str, int]) -> Commit | None:
    each = line.operation
    is_here = (each.group, each.topic, each.partition) == here
    return each if is_here and each.outcome is Outcome.OK and not each.final else None


def judge_final_commits(collected: Collected, out: Judgement) -> None:
    """What was committed is there in the end."""
    highest: dict[tuple[str, str, int], tuple[int, int]] = {}
    finals: list[tuple[Commit, int]] = []
    for line in collected.commits:
        each = line.operation
        if each.outcome is not Outcome.OK:
            continue
        if each.final:
            finals.append((each, line.number))
        else:
            here = (each.group, each.topic, each.partition)
            highest[here] = max(highest.get(here, (-1, 0)), (each.offset, line.number))
    for each, number in finals:
        offset, other = highest.get((each.group, each.topic, each.partition), (-1, 0))
        if each.offset < offset:
            told = f"{each.group} had committed {offset}, and {each.offset} is left"
            out.add(Kind.REWOUND, f"{each.topic}-{each.partition}", [other, number], told)
