"""Which task reads what. Values only: the same ranges and options give the same tasks, so that a batch that runs again
after a crash is the same rows in the same tasks."""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapreplace
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from ottla.pipeline.wire.reading import Range

AUTO_TASKS = 8
SMALL = 20_000
"""Records that take as long to read as a task takes to begin."""
TINY = 1_000
"""Records of a whole batch that are read before a second task had begun: a trigger of a handful in two partitions takes 0.8 times as long in one."""

Task = tuple[Range, ...]


class Sample(NamedTuple):
    """A batch that was found in a log: the first one at or behind ``asked``; up to ``next`` there are ``bytes``."""

    asked: int
    next: int
    bytes: int


def stream_tasks(
    ranges: Sequence[Range], *, least: int | None, most: int | None, records_max: int | None
) -> list[Task]:
    """Tasks of a micro-batch: cut by offsets where asked for, and small partitions together.

    Without ``most`` a task is made worth its start: one for a handful of offsets, and beyond a few tasks one for each some thousands.
    """
    whole = sorted(each for each in ranges if size(each) > 0)
    parts = split_by_offsets(whole, least, records_max)
    if most is None and least is None:
        total = sum(map(size, parts))
        most = 1 if total <= TINY and records_max is None else max(AUTO_TASKS, total // SMALL)
    return pack(parts, most)


def batch_tasks(
    ranges: Sequence[Range], *, least: int | None, most: int | None, records_max: int | None, task_bytes: int
) -> list[Task]:
    """Tasks of a batch read, whose ranges were cut into pieces of about ``task_bytes``: small ones together."""
    parts = split_by_offsets(sorted(each for each in ranges if size(each) > 0), least, records_max)
    if least is None:
        total = sum(each.bytes for each in parts)
        wanted = max(AUTO_TASKS, ceil(total / task_bytes))
        most = wanted if most is None else min(most, wanted)
    return pack(parts, most)


def size(each: Range) -> int:
    return each.end - each.start


def split_by_offsets(ranges: Sequence[Range], least: int | None, records_max: int | None) -> list[Range]:
    """Cuts until no piece has more than ``records_max`` offsets, and there are about ``least`` pieces at least."""
    pieces = list(ranges)
    if records_max is not None:
        pieces = [piece for each in pieces for piece in cut_evenly(each, ceil(size(each) / records_max))]
    if least is not None and len(pieces) < least:
        total = sum(map(size, pieces))
        pieces = [piece for each in pieces for piece in cut_evenly(each, ceil(least * size(each) / total))]
    return pieces


def cut_evenly(each: Range, count: int) -> list[Range]:
    """``count`` pieces of the same number of offsets, or one of each offset."""
    count = max(1, min(count, size(each)))
    bounds = [each.start + size(each) * number // count for number in range(count + 1)]
    return _pieces(each, bounds, [each.bytes // count] * count)


def estimated_bytes(each: Range, samples: Sequence[Sample]) -> int:
    """About how many bytes a range has, 0 where nothing was seen of it."""
    return round(_weights(each, samples)[1][-1])


def cut_by_bytes(each: Range, samples: Sequence[Sample], task_bytes: int) -> list[Range]:
    """Pieces of about ``task_bytes``.

    Where the bytes lie is taken from ``samples`` in their order: up to the next, every offset takes as much as those
    that the sample saw. It saw the hole before the batch too, where compaction left one.
    """
    places, weights = _weights(each, samples)
    total = weights[-1]
    count = min(ceil(total / task_bytes), size(each))
    if count <= 1:
        return [each._replace(bytes=round(total))]
    inner = [_place(places, weights, total * number / count) for number in range(1, count)]
    bounds = sorted({each.start, *(min(max(place, each.start), each.end) for place in inner), each.end})
    return _pieces(each, bounds, [round(total / (len(bounds) - 1))] * (len(bounds) - 1))


def sample_points(each: Range, count: int) -> list[int]:
    """Where to look: ``count`` offsets of the range, the first among them."""
    return sorted({each.start + size(each) * number // count for number in range(count)})


def _weights(each: Range, samples: Sequence[Sample]) -> tuple[list[int], list[float]]:
    """How many bytes lie before each of some places, in the samples' measure."""
    places, weights = [each.start], [0.0]
    ordered = [sample for sample in samples if each.start <= sample.asked < each.end]
    for sample, after in zip(ordered, [*(other.asked for other in ordered[1:]), each.end], strict=False):
        width = after - places[-1]
        if width > 0:
            weights.append(weights[-1] + sample.bytes * width / max(1, sample.next - sample.asked))
            places.append(after)
    if places[-1] < each.end:
        places.append(each.end)
        weights.append(weights[-1])
    return places, weights


def _place(places: Sequence[int], weights: Sequence[float], wanted: float) -> int:
    """The offset before which ``wanted`` bytes lie."""
    index = max(1, bisect_left(weights, wanted))
    low, high = weights[index - 1], weights[index]
    part = (wanted - low) / (high - low) if high > low else 1.0
    return places[index - 1] + round((places[index] - places[index - 1]) * part)


def _pieces(each: Range, bounds: Sequence[int], sizes: Sequence[int]) -> list[Range]:
    spans = pairwise(bounds)
    return [
        each._replace(start=first, end=last, bytes=taken) for (first, last), taken in zip(spans, sizes, strict=True)
    ]


def pack(parts: Sequence[Range], most: int | None) -> list[Task]:
    """At most ``most`` tasks of about the same weight; each reads its ranges in their order."""
    if most is None or len(parts) <= most:
        return [(each,) for each in parts]
    known = all(each.bytes for each in parts)
    tasks: list[list[Range]] = [[] for _ in range(most)]
    loads = [(0, number) for number in range(most)]
    for each in sorted(parts, key=lambda part: (-(part.bytes if known else size(part)), part)):
        load, number = loads[0]
        tasks[number].append(each)
        heapreplace(loads, (load + (each.bytes if known else size(each)), number))
    return sorted(tuple(sorted(task)) for task in tasks if task)
