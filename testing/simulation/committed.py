"""What each partition has committed, and what of it an election was allowed to lose.

A leader that may lack records, for it was elected uncleanly or because all who had them lost their power, begins a branch: what it does
not have is lost, exactly that, and so is what the leaders before it go on to commit until they hear of it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.testing.simulation.pieces import batches_of


class Batch(NamedTuple):
    """What identifies a batch of a partition on every replica."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class Branch(NamedTuple):
    """From ``offset`` on only what leaders of ``epoch`` and later ones commit counts."""

    epoch: int
    offset: int


class CommittedLog:
    """Of one partition."""

    __slots__ = ("batches", "branches", "lost")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.branches: list[Branch] = []
        self.lost: list[Batch] = []

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def find(self, base_offset: int) -> Batch | None:
        batches, low, high = self.batches, 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if batches[middle].base_offset < base_offset:
                low = middle + 1
            else:
                high = middle
        return batches[low] if low < len(batches) and batches[low].base_offset == base_offset else None

    def branch(self, epoch: int, start: int, held: Iterable[Batch]) -> None:
        """The leader of ``epoch`` holds these, its log begins at ``start``, and it is allowed to lack some."""
        has = set(held)
        missing = (at for at, batch in enumerate(self.batches) if batch.last_offset >= start and batch not in has)
        cut = next(missing, len(self.batches))
        self.lost += self.batches[cut:]
        del self.batches[cut:]
        self.branches.append(Branch(epoch, self.end))

    def left_by(self, epoch: int) -> Branch | None:
        """The first branch that leaders of ``epoch`` are not on; None: they are on the last."""
        return next((each for each in self.branches if each.epoch > epoch), None)

    def lose(self, given: Iterable[Batch]) -> None:
        """A leader from before a branch committed these beyond it."""
        self.lost += [batch for batch in given if batch not in self.lost]

    def may_lack(self, offset: int) -> int:
        """How many different records that were acknowledged at ``offset`` may be there no more."""
        return sum(batch.base_offset <= offset <= batch.last_offset for batch in self.lost)


def batches(given: Iterable[bytes], start: int) -> Iterator[Batch]:
    """The batches from the one that holds ``start`` on, in pieces of a replica's log."""
    for data in given:
        for _, header in batches_of(data):
            if header.last_offset >= start:
                yield Batch(header.base_offset, header.last_offset, header.leader_epoch, header.crc)
