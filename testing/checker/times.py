"""Offsets of times, held against the times that producers gave their records."""

from bisect import bisect_left
from itertools import accumulate

from ottla.testing.checker.collected import FinalRead, PartitionHistory
from ottla.testing.checker.findings import Judgement, Kind
from ottla.testing.checker.operations import FOREVER


def judge(partition: PartitionHistory, final: FinalRead | None, out: Judgement) -> None:
    """Only where the time of every record is known, and all of them are there."""
    asked = [each for each in partition.lists if isinstance(each.operation.asked, int) and each.operation.offset >= 0]
    if not asked or final is None or partition.deleted_before or partition.topic.compacted:
        return
    times = [partition.topic.timestamps.get(row, -1) for row in final.rows]
    if -1 in times:
        return
    latest = list(accumulate(times, max))
    for number, each in asked:
        assert isinstance(each.asked, int)
        place = bisect_left(latest, each.asked)
        due = final.offsets[place] if place < len(times) else -1
        if due != each.offset:
            told = f"{each.process} was told that the first record since {each.asked} is at {each.offset}"
            found = f"it is at {due}" if due >= 0 else "none is so late"
            permitted = partition.permits(each.offset, each.begin, FOREVER)
            out.add(Kind.OFFSET_CHANGED, partition.name, [number], f"{told}: {found}", permitted=permitted)
