"""The clocks of one simulated machine: they may run fast or slow, and the calendar may jump."""

from math import ceil

_WALL_START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class NodeClock:
    """Turns the simulation's time into what a machine's clocks show. ``rate`` 1.01 gains 10 ms a second.

    Machines boot at different times, so their monotonic clocks have nothing in common (``monotonic_start_ns``).
    """

    def __init__(self, now_ns: int, monotonic_start_ns: int) -> None:
        self.rate = 1.0
        self._global_ns = now_ns
        self._local_ns = monotonic_start_ns
        self._wall_offset_ms = _WALL_START_MS + (now_ns - monotonic_start_ns) // 1_000_000

    def local_ns(self, now_ns: int) -> int:
        """The monotonic clock."""
        if self.rate == 1.0:
            return self._local_ns + now_ns - self._global_ns
        return self._local_ns + int((now_ns - self._global_ns) * self.rate)

    def global_ns(self, local_ns: int) -> int:
        """The first moment of the simulation at which this clock shows ``local_ns`` or later."""
        if self.rate == 1.0:
            return self._global_ns + local_ns - self._local_ns
        return self._global_ns + ceil((local_ns - self._local_ns) / self.rate)

    def wall_ms(self, now_ns: int) -> int:
        return self.local_ns(now_ns) // 1_000_000 + self._wall_offset_ms

    def set_rate(self, now_ns: int, rate: float) -> None:
        """From now on; what has been shown stays. The loop moves timers that are already set."""
        self._local_ns = self.local_ns(now_ns)
        self._global_ns = now_ns
        self.rate = rate

    def jump_wall(self, milliseconds: int) -> None:
        """As an administrator or a first NTP answer does. The monotonic clock never jumps."""
        self._wall_offset_ms += milliseconds
