"""What the groups of a shard have done since it was loaded, as metrics count it."""

from typing import NamedTuple


class GroupCounts(NamedTuple):
    """Offsets, each of one partition, generations of classic groups, epochs of consumer groups."""

    commits: int = 0
    expirations: int = 0
    deletions: int = 0
    rebalances: int = 0
    epochs: int = 0

    def plus(self, other: "GroupCounts") -> "GroupCounts":
        return GroupCounts(*(one + another for one, another in zip(self, other, strict=True)))
