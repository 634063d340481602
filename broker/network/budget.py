"""What all client connections of a node hold together: requests that came in part or wait for their answer, answers that nobody
took yet. ``queued.max.request.bytes`` bounds it.

Not counted, of each connection: 16 KB that are unsent or leave at the end of the turn, requests below 1 KB that wait, and what one read
brings while it is handled.

Full does not mean that nobody is served: requests that are not large are still read and answered (a quarter more is there for
them), fetches are given smaller answers, and only who would hold more waits for room, in the order of coming. Who fills it and does
nothing about it is closed (`server.py`).
"""

from collections.abc import Callable
from typing import Protocol


class Waiter(Protocol):
    """A connection that is not read until there is room for more of its request."""

    def room(self, *, in_any_case: bool = False) -> None:
        """Is told once. ``in_any_case``: also where there is none."""


class MemoryBudget:
    """Plain sums: `add` costs two integer operations, and is not called where a request comes and goes in one read."""

    __slots__ = ("_on_turn", "_waiting", "bytes_max", "is_crowded", "is_full", "used")

    def __init__(self, bytes_max: int = -1, on_turn: Callable[[], None] | None = None) -> None:
        """-1: no bound. ``on_turn`` is called each time it becomes full, or is full no more."""
        self.bytes_max = bytes_max
        self.used = 0
        self.is_full = self.is_crowded = False
        self._on_turn = on_turn
        self._waiting: dict[Waiter, None] = {}

    def add(self, size: int) -> None:
        """Counts bytes that are held from now on, or, with a negative size, no more."""
        self.used += size
        is_full = self.used > self.bytes_max >= 0
        if is_full or self.is_full:
            self._look(is_full)

    def _look(self, is_full: bool) -> None:
        self.is_crowded = is_full and self.used > self.bytes_max + self.bytes_max // 4
        if is_full is not self.is_full:
            self.is_full = is_full
            if self._on_turn is not None:
                self._on_turn()

    def wait(self, waiter: Waiter) -> None:
        self._waiting[waiter] = None

    def forget(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)

    def let_in(self) -> None:
        """Tells those that wait, first come first, while there is room."""
        for _ in range(len(self._waiting)):
            if self.is_full:
                return
            self._pop().room()

    def let_one_in(self) -> None:
        """When nobody gives anything back, since all wait for one another: one may always finish."""
        if self._waiting:
            self._pop().room(in_any_case=True)

    def _pop(self) -> Waiter:
        waiter = next(iter(self._waiting))
        del self._waiting[waiter]
        return waiter
