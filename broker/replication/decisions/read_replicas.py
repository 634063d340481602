"""Which replica a consumer is told to read from: the nearest of those that have what it wants (KIP-392, RackAwareReplicaSelector)."""

from collections.abc import Iterable
from typing import NamedTuple


class ReadReplica(NamedTuple):
    """A replica that has the records a consumer asks for. ``caught_up_ms``: when it last had all the leader had."""

    id: int
    rack: str | None
    log_end_offset: int
    caught_up_ms: int


def nearest(rack: str, leader: ReadReplica, followers: Iterable[ReadReplica]) -> int:
    """The replica for a consumer in ``rack``: the leader if it is there or nobody is, else who is furthest, then freshest, then first."""
    if leader.rack == rack:
        return leader.id
    mates = [each for each in followers if each.rack == rack]
    if not mates:
        return leader.id
    return max(mates, key=lambda each: (each.log_end_offset, each.caught_up_ms, -each.id)).id
