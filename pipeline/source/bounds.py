"""Where a query begins or ends, in the words of its options, and which offsets that is. Values only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from ottla.pipeline.source.errors import OffsetError
from ottla.pipeline.wire.metadata import TopicPartition
from ottla.pipeline.wire.offsets import EARLIEST, LATEST


class Kind(Enum):
    EARLIEST = auto()
    LATEST = auto()
    OFFSETS = auto()
    TIME = auto()
    TIMES = auto()


@dataclass(frozen=True)
class Bound:
    """``option`` is the one that said so; ``values`` are offsets or times by partition, ``ms`` one time for all."""

    kind: Kind
    option: str
    values: Mapping[TopicPartition, int] = field(default_factory=dict)
    ms: int = -1


def questions(bound: Bound, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """What to ask ListOffsets: a time, ``EARLIEST`` or ``LATEST``. What is an offset already is not asked.

    Raises OffsetError where a bound by partition does not name these partitions and no others, as Spark asks for.
    """
    if bound.kind in (Kind.OFFSETS, Kind.TIMES):
        _complete(bound, partitions)
    if bound.kind is Kind.OFFSETS:
        return {which: offset for which, offset in bound.values.items() if offset < 0}
    if bound.kind is Kind.TIMES:
        return dict(bound.values)
    asked = {Kind.EARLIEST: EARLIEST, Kind.LATEST: LATEST, Kind.TIME: bound.ms}[bound.kind]
    return dict.fromkeys(partitions, asked)


def _complete(bound: Bound, partitions: Collection[TopicPartition]) -> None:
    missing = sorted(set(partitions) - bound.values.keys())
    strange = sorted(bound.values.keys() - set(partitions))
    if missing:
        instead = " (-2 is the earliest, -1 the latest)" if bound.kind is Kind.OFFSETS else ""
        raise OffsetError(f"option {bound.option} must name every partition; {_listed(missing)} is missing{instead}")
    if strange:
        raise OffsetError(f"option {bound.option} names {_listed(strange)}, which this query does not read")


def answered(
    bound: Bound, found: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], list[TopicPartition]]:
    """The offsets, with what was found for `questions`; and the partitions that have no record of that time or after."""
    offsets = {**bound.values, **found} if bound.kind is Kind.OFFSETS else dict(found)
    return offsets, [which for which, offset in offsets.items() if offset < 0]


def too_late(bound: Bound, partitions: Collection[TopicPartition]) -> OffsetError:
    """No record is as young as the time where the query is to begin."""
    otherwise = "startingOffsetsByTimestampStrategy=latest begins at the end there"
    return OffsetError(
        f"option {bound.option}: {_listed(sorted(partitions))} has no record of that time or after; {otherwise}"
    )


def _listed(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in partitions[:5])
    return f"{shown} and {len(partitions) - 5} more" if len(partitions) > 5 else shown
