"""Timers whose time moves when the test says so."""

from collections.abc import Callable

from ottla.runtime.loop_watch import LoopWatch
from ottla.runtime.timers import LoopTimers, Timer, TimingWheel


class FakeTimers(LoopTimers):
    """Without a loop; begins at 0."""

    def __init__(self) -> None:
        self.wheel = TimingWheel(0)
        self.watch = LoopWatch()
        self.time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms

    def call_later_ms(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self.wheel.add(self.time_ms + delay_ms, callback)

    def call_at_beat(self, period_ms: int, callback: Callable[[], None]) -> Timer:
        return self.wheel.add(self.time_ms + period_ms - self.time_ms % period_ms, callback)

    def advance(self, ms: int) -> None:
        """Millisecond by millisecond: what a timer plans may be due in the same call."""
        for _ in range(ms):
            self.time_ms += 1
            self.wheel.advance(self.time_ms)
