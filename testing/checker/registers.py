"""Whether the values of a key are those of one register: each operation takes effect at one moment between its begin and its end.

Every value is written once, so it is known which write a read saw, and nothing has to be tried (Gibbons and Korach, Testing shared
memories): a value is current at least from the first end of an operation that knows it to the last begin of one. Such times of two
values must not overlap, and none may hold another value's whole life.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from ottla.testing.checker.operations import FOREVER

BEFORE_ALL = -FOREVER
"""When the absence of a value was written."""


class Access(NamedTuple):
    """A write or a read. ``value`` None: there is none. ``end`` FOREVER: a write of which nobody heard."""

    is_write: bool
    value: str | None
    begin: int
    end: int
    line: int


class Zone(NamedTuple):
    """When a value was certainly current: from ``since`` to ``until``, or at some moment between ``until`` and ``since``."""

    since: int
    until: int
    value: str | None
    first: Access
    last: Access


class Contradiction(NamedTuple):
    """Two operations that cannot both be."""

    lines: tuple[int, ...]
    sentence: str


def contradictions(accesses: Iterable[Access]) -> list[Contradiction]:
    """Of one register, whose values are written once each. Empty: it is linearizable."""
    by_value: dict[str | None, list[Access]] = {None: [Access(True, None, BEFORE_ALL, BEFORE_ALL, 0)]}
    reads: list[Access] = []
    for each in accesses:
        if each.is_write:
            by_value[each.value] = [each]
        else:
            reads.append(each)
    found: list[Contradiction] = []
    for each in reads:
        group = by_value.get(each.value)
        if group is None:
            found.append(Contradiction((each.line,), f"{each.value!r} was read, and nobody wrote it"))
        elif each.end < group[0].begin:
            found.append(Contradiction((group[0].line, each.line), f"{each.value!r} was read before it was written"))
        else:
            group.append(each)
    return found + _between([_zone(group) for group in by_value.values() if _is_known(group)])


def _is_known(group: list[Access]) -> bool:
    """A write of which nobody heard and that nobody saw need not have happened."""
    return len(group) > 1 or group[0].end != FOREVER


def _zone(group: list[Access]) -> Zone:
    first, last = min(group, key=lambda each: each.end), max(group, key=lambda each: each.begin)
    return Zone(first.end, last.begin, group[0].value, first, last)


def _between(zones: list[Zone]) -> list[Contradiction]:
    found: list[Contradiction] = []
    held = sorted(each for each in zones if each.since < each.until)
    for one, other in pairwise(held):
        if other.since < one.until:
            told = f"{one.value!r} and {other.value!r} were both current at one time"
            found.append(Contradiction(_lines(one, other), told))
    starts = [each.since for each in held]
    for each in zones:
        if each.until <= each.since:
            place = bisect_right(starts, each.until) - 1
            if place >= 0 and held[place].since < each.until and each.since < held[place].until:
                around = held[place]
                told = f"{around.value!r} was current before {each.value!r} was written, and was read after that was acknowledged"
                found.append(Contradiction(_lines(around, each), told))
    return found


def _lines(one: Zone, other: Zone) -> tuple[int, ...]:
    return tuple(sorted({each.line for each in (one.first, one.last, other.first, other.last)}))
