"""What must hold of what copiers wrote, as somebody finds it who reads what is committed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.chaos.groups.diary import Entry


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


def check_all(output: Output, written: int, tried: Mapping[int, Attempt]) -> None:
    """Raises AssertionError with what is wrong."""
    check_nothing_aborted(output, tried)
    check_nothing_twice(output)
    check_nothing_torn(output, tried)
    check_nothing_lost(output, tried)
    check_order(output)
    for partition, copies in output.items():
        assert len(copies) == written, f"partition {partition}: {len(copies)} of {written} records were copied"


def check_nothing_aborted(output: Output, tried: Mapping[int, Attempt]) -> None:
    for partition, copies in output.items():
        for copy in copies:
            attempt = tried[copy.attempt]
            assert attempt.outcome != "aborted", (
                f"partition {partition}: {copy.number} is there; {attempt.member} aborted attempt {copy.attempt}"
            )


def check_nothing_twice(output: Output) -> None:
    for partition, copies in output.items():
        by: dict[int, int] = {}
        for copy in copies:
            first = by.setdefault(copy.number, copy.attempt)
            assert first == copy.attempt, (
                f"partition {partition}: {copy.number} was copied by attempts {first} and {copy.attempt}"
            )
        assert len(by) == len(copies), f"partition {partition}: one attempt's records are there twice"


def check_nothing_torn(output: Output, tried: Mapping[int, Attempt]) -> None:
    """Of an attempt all is there or nothing."""
    there: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for partition, copies in output.items():
        for copy in copies:
            there[copy.attempt].add((partition, copy.number))
    for number, found in there.items():
        missing = tried[number].records - found
        assert not missing, (
            f"attempt {number} of {tried[number].member}: {sorted(missing)[:5]} are not there, others are"
        )


def check_nothing_lost(output: Output, tried: Mapping[int, Attempt]) -> None:
    """What was said to be committed is there."""
    there = {copy.attempt for copies in output.values() for copy in copies}
    for number, attempt in tried.items():
        assert attempt.outcome != "committed" or number in there, (
            f"attempt {number} of {attempt.member} was committed and is not there"
        )


def check_order(output: Output) -> None:
    """No copy before, and none missing between, the copies of the records before it: committed offsets did not jump."""
    for partition, copies in output.items():
        for place, copy in enumerate(copies):
            assert copy.number == place, (
                f"partition {partition}: {copy.number} (attempt {copy.attempt}) stands at {place}"
            )
