"""Nodes of which something was so a moment ago. Hints to clients are made of it, never decisions."""

NOBODY: frozenset[int] = frozenset()


class Lately:
    """Node ids, each for so many ms of a monotonic clock."""

    def __init__(self, for_ms: int) -> None:
        self._for_ms = for_ms
        self._until_ms: dict[int, int] = {}

    def note(self, node_id: int, now_ms: int) -> None:
        """It is so, from now on or anew."""
        self._until_ms[node_id] = now_ms + self._for_ms

    def forget(self, node_id: int) -> None:
        """It is not so any more."""
        self._until_ms.pop(node_id, None)

    def at(self, now_ms: int) -> frozenset[int]:
        """Of whom it was so lately; mostly of nobody."""
        if not self._until_ms:
            return NOBODY
        self._until_ms = {node_id: until_ms for node_id, until_ms in self._until_ms.items() if now_ms < until_ms}
        return frozenset(self._until_ms)
