"""Time as it is given to the program. Deciders never read it: they are handed ``now_ms``."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings: one that never jumps, one that people understand."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back. For timeouts and lags."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970 (UTC). For record time stamps and retention only."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
