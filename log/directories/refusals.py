"""Writes that found no room where whoever looks finds some: a quota, no inodes, less than a batch needs."""

PAUSE_MAX = 8
CALM_LOOKS = 60
GROWTH_BYTES = 1 << 20


class Refusals:
    """Of one log directory. It takes data again at once after the first, or with more room than there was; then after longer and longer
    pauses. In looks, of which there is one a second."""

    __slots__ = ("_calm", "_count", "_free_bytes", "_pause")

    def __init__(self) -> None:
        self._count = self._pause = self._calm = 0
        self._free_bytes = 0

    def note(self, free_bytes: int) -> None:
        """A write was refused. ``free_bytes``: as the last look found."""
        self._count += 1
        self._calm = 0
        self._pause = min(1 << self._count >> 2, PAUSE_MAX)
        self._free_bytes = free_bytes

    def may_try(self, free_bytes: int) -> bool:
        """A look, which finds that much, of a directory that is full since."""
        if not self._pause or free_bytes >= self._free_bytes + GROWTH_BYTES:
            return True
        self._pause -= 1
        return False

    def went_well(self) -> None:
        """A look at a directory that takes data."""
        self._calm += 1
        if self._calm >= CALM_LOOKS:
            self._count = 0
