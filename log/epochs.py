"""Which leader epoch began at which offset: what lets a follower find where its log left the leader's.

Ordered pairs (epoch, start offset), both strictly rising. Source: Kafka's LeaderEpochFileCache (kraft.md 4.9).
Nothing is written here: ``changed`` says that whoever owns the checkpoint file has something to write.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

EpochEntries = tuple[tuple[int, int], ...]
UNDEFINED = (-1, -1)


class LeaderEpochCache:
    """The epochs of one log. ``changed``: they are no more what they were when somebody last said False."""

    __slots__ = ("_epochs", "_starts", "changed", "latest_epoch")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.changed = False
        self.latest_epoch = -1  # an attribute: read on every append
        for epoch, start_offset in entries:
            self._put(epoch, start_offset)

    def entries(self) -> EpochEntries:
        return tuple(zip(self._epochs, self._starts, strict=True))

    @property
    def earliest_epoch(self) -> int:
        """The oldest epoch that is known, or -1."""
        return self._epochs[0] if self._epochs else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that ``epoch`` begins at ``start_offset``; nothing happens when that epoch already began there or before.

        Entries that contradict it (a later epoch, or a start at or after this one) are dropped: they describe a tail that
        was cut off. Raises ValueError for a negative epoch or offset.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}: neither may be negative")
        if epoch == self.latest_epoch and start_offset >= self._starts[-1]:
            return
        self._put(epoch, start_offset)
        self.changed = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest known epoch at or below ``epoch``; (-1, -1) when it lies above all that is known.

        An epoch below the first known one answers itself with the first start: everything of it is gone.
        """
        if epoch == self.latest_epoch and epoch >= 0:
            return epoch, log_end_offset
        following = bisect_right(self._epochs, epoch)
        if epoch < 0 or following == len(self._epochs):
            return UNDEFINED
        floor = self._epochs[following - 1] if following else epoch
        return floor, self._starts[following]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote the record at ``offset``; -1 when it is older than all that is known."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """Forgets epochs that began at or after ``end_offset``: the log now ends there."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            self._cut(keep)
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Forgets epochs that ended before ``start_offset``: the log now begins there. The epoch that covers it stays, moved up."""
        covering = bisect_right(self._starts, start_offset) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:covering], self._starts[:covering]
        self._starts[0] = start_offset
        self.changed = True

    def clear(self) -> None:
        if self._epochs:
            self._cut(0)
            self.changed = True

    def _put(self, epoch: int, start_offset: int) -> None:
        self._cut(min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset)))
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest_epoch = epoch

    def _cut(self, keep: int) -> None:
        del self._epochs[keep:], self._starts[keep:]
        self.latest_epoch = self._epochs[-1] if self._epochs else -1
