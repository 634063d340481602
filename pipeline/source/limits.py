"""How far one trigger goes. Values only."""

from collections.abc import Mapping
from math import floor

from ottla.pipeline.wire.metadata import TopicPartition

Positions = Mapping[TopicPartition, int]


def available(start: Positions, end: Positions) -> dict[TopicPartition, int]:
    """Offsets to read by partition, without those that have none."""
    sizes = {which: last - start.get(which, last) for which, last in end.items()}
    return {which: size for which, size in sizes.items() if size > 0}


def at_most_offsets(start: Positions, end: Positions, most: int) -> dict[TopicPartition, int]:
    """Ends with ``most`` offsets in all, each partition its share of what it has."""
    sizes = available(start, end)
    return _cut(start, end, shared(sizes, most))


def at_most_bytes(
    start: Positions, end: Positions, most: int, bytes_each: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Ends with about ``most`` bytes in all, by what an offset of each partition takes; and one offset of each whose share is none, of as
    many as have no more than ``most`` together."""
    sizes = available(start, end)
    weights = {which: size * bytes_each[which] for which, size in sizes.items()}
    total = sum(weights.values())
    if total <= most:
        return dict(end)
    shares = {which: floor(size * most / total) for which, size in sizes.items()}
    left: float = most
    for which in sorted(sizes, key=lambda which: (sizes[which], which), reverse=True):
        if not shares[which] and left > 0:
            shares[which] = 1
            left -= bytes_each[which]
    return _cut(start, end, shares)


def shared(sizes: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """``most`` in proportion to the sizes, whole numbers, none more than its size. What is left goes to those that would have nothing, and to
    the largest rests; who has nothing even so is given one by those that have most: who has little need not wait until the others are read."""
    total = sum(sizes.values())
    if total <= most:
        return dict(sizes)
    shares = {which: size * most // total for which, size in sizes.items()}
    rest = most - sum(shares.values())
    by_rest = sorted(sizes, key=lambda which: (shares[which] > 0, -(sizes[which] * most % total), which))
    for which in by_rest[:rest]:
        shares[which] += 1
    needy = [which for which in sizes if not shares[which]]
    for which in sorted(sizes, key=lambda which: (-shares[which], which)) if needy else ():
        given = needy[: max(shares[which] - 1, 0)]
        shares |= {which: shares[which] - len(given), **dict.fromkeys(given, 1)}
        del needy[: len(given)]
    return shares


def _cut(start: Positions, end: Positions, shares: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {which: start[which] + shares[which] if which in shares else last for which, last in end.items()}


def is_enough(count: int, least: int | None, waited_ms: float, delay_ms: int, *, ends: bool) -> bool:
    """Whether a trigger goes ahead with ``count`` new offsets, or waits for ``least`` of them a while longer.

    ``ends``: nothing that comes later belongs to this run, so that waiting would be for ever.
    """
    return least is None or count >= least or waited_ms >= delay_ms or ends
