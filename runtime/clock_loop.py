"""A clock that reads the event loop, so that a simulated node lives in its own time."""

import time
from asyncio import AbstractEventLoop
from collections.abc import Callable

# Loops answer seconds in a float: 1.001 * 1000 is 1000.9999999999999. A microsecond more than rounding can lose
# keeps a timer that fires exactly at its deadline from reading a time just before it.
_ROUNDING_MS = 0.001


def loop_ms(loop: AbstractEventLoop) -> int:
    """``loop.time()`` in whole milliseconds, rounded down."""
    return int(loop.time() * 1000 + _ROUNDING_MS)


def _system_wall_ms() -> int:
    return time.time_ns() // 1_000_000


class LoopClock:
    """`Clock` over ``loop.time()``; ``wall_ms`` is the machine's calendar unless another one is given."""

    def __init__(self, loop: AbstractEventLoop, wall_ms: Callable[[], int] = _system_wall_ms) -> None:
        self._loop = loop
        self._wall_ms = wall_ms

    def monotonic_ms(self) -> int:
        return loop_ms(self._loop)

    def wall_ms(self) -> int:
        return self._wall_ms()
