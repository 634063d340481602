"""What the members of a consumer group subscribe to: mostly the same, which is kept once."""

SUBSCRIPTIONS_BYTES_MAX = 64 << 20
"""Of one group, each kind of subscription counted once."""
NAME_BYTES = 100
"""What a name takes in memory beside its characters."""


class Subscriptions:
    """Sets of topic names, each as often as members have it."""

    def __init__(self) -> None:
        self._kept: dict[frozenset[str], tuple[frozenset[str], int]] = {}
        self.bytes = 0

    def same(self, names: frozenset[str]) -> frozenset[str]:
        """The one that is kept already, if there is one."""
        kept = self._kept.get(names)
        return kept[0] if kept is not None else names

    def has_room_for(self, names: frozenset[str]) -> bool:
        return names in self._kept or self.bytes + _size(names) <= SUBSCRIPTIONS_BYTES_MAX

    def add(self, names: frozenset[str]) -> None:
        kept, count = self._kept.get(names, (names, 0))
        self._kept[names] = kept, count + 1
        self.bytes += 0 if count else _size(names)

    def remove(self, names: frozenset[str]) -> None:
        kept, count = self._kept.pop(names)
        if count > 1:
            self._kept[kept] = kept, count - 1
        else:
            self.bytes -= _size(names)


def _size(names: frozenset[str]) -> int:
    return sum(map(len, names)) + NAME_BYTES * len(names)
