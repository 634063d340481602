"""Filters on partition, offset, timestamp and topic that need not be read to be answered. Values only.

What is pushed down only narrows the ranges: Spark filters the rows all the same.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ottla.pipeline.wire.metadata import TopicPartition

AtTime = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]

_TURNED = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In")


@dataclass(frozen=True)
class Wanted:
    """None: any. Bounds of offsets and times (ms) are inclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_first: int = 0
    offset_last: int | None = None
    partition_first: int = 0
    partition_last: int | None = None
    ms_first: int | None = None
    ms_last: int | None = None

    def takes(self, which: TopicPartition) -> bool:
        topic, partition = which
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and self.partition_first <= partition
            and (self.partition_last is None or partition <= self.partition_last)
        )


def wanted_of(filters: Iterable[Any]) -> Wanted:
    """What filters of Spark's say together; those that say nothing about these columns are passed over."""
    found = Wanted()
    for each in filters:
        kind = type(each).__name__
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if kind in _TURNED and len(attribute) == 1:
            found = _narrow(found, kind, attribute[0].lower(), each.value)
    return found


def is_about_places(each: Any) -> bool:
    """Whether a filter narrows what is read."""
    return wanted_of([each]) != Wanted()


def _narrow(found: Wanted, kind: str, column: str, value: Any) -> Wanted:
    if value is None:
        return found
    if column == "topic" and kind in ("EqualTo", "EqualNullSafe", "In"):
        return replace(found, topics=_both(found.topics, value if kind == "In" else [value]))
    if column == "partition" and kind in ("EqualTo", "EqualNullSafe", "In"):
        return replace(found, partitions=_both(found.partitions, value if kind == "In" else [value]))
    if kind == "In":
        return found
    if column in ("partition", "offset"):
        first, last = _span(kind, value, 1)
        return _with_span(found, column, first, last)
    if column == "timestamp" and isinstance(value, datetime):
        # Spark's microseconds against the log's milliseconds: a little more is read than is wanted.
        ms = round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1_000_000) // 1000
        first, last = _span(kind, ms, 0)
        return _with_span(found, "ms", first, last)
    return found


def _both(known: frozenset[Any] | None, values: Iterable[Any]) -> frozenset[Any]:
    new = frozenset(values)
    return new if known is None else known & new


def _span(kind: str, value: int, step: int) -> tuple[int | None, int | None]:
    """First and last, inclusive; ``step`` is how far the next value lies."""
    if kind in ("EqualTo", "EqualNullSafe"):
        return value, value
    if kind.startswith("Greater"):
        return (value if kind.endswith("Equal") else value + step), None
    return None, (value if kind.endswith("Equal") else value - step)


def _with_span(found: Wanted, column: str, first: int | None, last: int | None) -> Wanted:
    old_first, old_last = getattr(found, f"{column}_first"), getattr(found, f"{column}_last")
    firsts = [each for each in (old_first, first) if each is not None]
    lasts = [each for each in (old_last, last) if each is not None]
    new: dict[str, Any] = {f"{column}_first": max(firsts, default=None), f"{column}_last": min(lasts, default=None)}
    return replace(found, **new)


def narrowed(
    wanted: Wanted, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], at_time: AtTime
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Ranges that have everything wanted. ``at_time`` gives the first offset of a time or after, -1 where there is none.

    Times in a log need not rise with the offsets. The first record of a time or after is where reading may begin: all
    before are older. Nothing like that holds for an end, so that times narrow the start alone. Times before 1970 cannot be asked for.
    """
    first = {which: max(start, wanted.offset_first) for which, start in starts.items()}
    last = dict(ends)
    if wanted.offset_last is not None:
        last = {which: min(end, wanted.offset_last + 1) for which, end in ends.items()}
    if wanted.ms_first is not None and wanted.ms_first >= 0 and starts:
        found = at_time(dict.fromkeys(starts, wanted.ms_first))
        first = {which: max(first[which], found[which] if found[which] >= 0 else last[which]) for which in first}
    return first, last
