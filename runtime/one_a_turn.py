"""Long work of many, of which one piece is done each turn of the loop, so that nobody's request waits for more than that."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import count

Callback = Callable[[], object]

_ENDED = object()


class OneATurn:
    """Who asks from within a piece goes on with it and is next: one's work is done before another's begins, the least before the
    larger, so that as few as can be wait for others'."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Callback]] = []
        """A heap: by what it weighs, and then as it came."""
        self._numbers = count()
        self._is_running = self._is_planned = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def plan(self, callback: Callback, weight: int = 0) -> None:
        """Calls back in a later turn. To be called on the loop. ``weight``: how much work there is, in any unit."""
        heappush(self._waiting, (-1 if self._is_running else weight, next(self._numbers), callback))
        if not self._is_running:
            self._go_on()

    def go_through(self, pieces: Iterable[object]) -> None:
        """One a turn, to the end. What one raises goes to the loop's handler, and the rest is left."""
        self.plan(_Work(self, iter(pieces)))

    def _go_on(self) -> None:
        if self._waiting and not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        _, _, callback = heappop(self._waiting)
        self._is_planned, self._is_running = False, True
        try:
            callback()
        finally:
            self._is_running = False
            self._go_on()


class _Work:
    __slots__ = ("_pieces", "_turns")

    def __init__(self, turns: OneATurn, pieces: Iterator[object]) -> None:
        self._turns = turns
        self._pieces = pieces

    def __call__(self) -> None:
        if next(self._pieces, _ENDED) is not _ENDED:
            self._turns.plan(self)
