"""What the members of one group did, as a history for the checker, and who has what."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ottla.testing.checker import Assigned, Commit, Outcome, Produce, Read, check
from ottla.testing.checker.operations import AnyOperation
from tests.chaos.groups.diary import Entry

TOPIC, GROUP = "troubled", "group"


def read_by(entries: Iterable[Entry]) -> dict[int, set[int]]:
    """The offsets that somebody read, by partition."""
    found: dict[int, set[int]] = defaultdict(set)
    for each in entries:
        if each.what == "record":
            found[each.partition].add(each.offset)
    return found


def check_all(entries: Sequence[Entry], partitions: int, written: int) -> None:
    """Raises AssertionError with what is wrong: a record that is not what was written there, one that was passed over or changed its
    place, an acknowledged commit that was lost or went back. ``written``: so many are in each partition, each its own offset."""
    report = check([*_written(partitions, written), *_done(entries)])
    assert report.valid, str(report)


def _written(partitions: int, written: int) -> Iterator[AnyOperation]:
    for index in range(partitions):
        values = [(number, str(number)) for number in range(written)]
        yield from (Produce(topic=TOPIC, value=f"{index}:{value}") for _, value in values)
        there = [(number, f"{index}:{value}") for number, value in values]
        yield Read(topic=TOPIC, partition=index, records=there, start=0, next=written, final=True, outcome=Outcome.OK)


def _done(entries: Iterable[Entry]) -> Iterator[AnyOperation]:
    following: dict[tuple[str, int], int] = {}
    for at, member, what, partition, offset, value in entries:
        place = (member, partition)
        each: Assigned | Commit | Read
        if what == "assigned":
            following.pop(place, None)
            each = Assigned(group=GROUP, topic=TOPIC, partition=partition)
        elif what == "committed":
            each = Commit(group=GROUP, topic=TOPIC, partition=partition, offset=offset)
        elif what == "record":
            each = Read(topic=TOPIC, partition=partition, records=[(offset, f"{partition}:{value}")], group=GROUP)
            each.start, each.next = following.get(place, -1), offset + 1
            following[place] = offset + 1
        else:
            continue
        each.process, each.begin, each.end, each.outcome = member, at, at, Outcome.OK
        yield each


def stopped_in_vain(entries: Iterable[Entry]) -> list[tuple[str, int]]:
    """Partitions that were taken from a member and given back to it, and nobody had had them: they stopped and did not have to move."""
    last_owner: dict[int, str] = {}
    found = []
    for each in entries:
        if each.what == "assigned":
            if last_owner.get(each.partition) == each.member:
                found.append((each.member, each.partition))
            last_owner[each.partition] = each.member
    return found


def owners(entries: Iterable[Entry]) -> dict[str, set[int]]:
    """Who owns what at the end."""
    found: dict[str, set[int]] = defaultdict(set)
    for each in entries:
        if each.what == "assigned":
            found[each.member].add(each.partition)
        elif each.what in ("revoked", "lost"):
            found[each.member].discard(each.partition)
    return found
