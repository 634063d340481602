"""The last rebalances of the groups of one shard, as text, within bounds: memory of this coordinator, written nowhere."""

from collections import deque

REBALANCES_MAX = 100
"""Of one group."""
BYTES_MAX = 1 << 20
"""Of all groups of the shard; the oldest go first."""


class RebalanceHistory:
    """What is over."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[str, bytes]] = {}
        """By the order of coming."""
        self._of_group: dict[str, deque[int]] = {}
        self._next = 0
        self.size = 0

    def add(self, group_id: str, record: bytes) -> None:
        mine = self._of_group.setdefault(group_id, deque())
        mine.append(self._next)
        self._kept[self._next] = group_id, record
        self._next += 1
        self.size += len(record)
        if len(mine) > REBALANCES_MAX:
            self._drop(mine[0])
        while self.size > BYTES_MAX:
            self._drop(next(iter(self._kept)))

    def _drop(self, number: int) -> None:
        """The first of its group."""
        group_id, record = self._kept.pop(number)
        self.size -= len(record)
        mine = self._of_group[group_id]
        mine.popleft()
        if not mine:
            del self._of_group[group_id]

    def of_group(self, group_id: str) -> list[bytes]:
        """The oldest first."""
        return [self._kept[each][1] for each in self._of_group.get(group_id, ())]

    def forget(self, group_id: str) -> None:
        for number in list(self._of_group.get(group_id, ())):
            self._drop(number)
