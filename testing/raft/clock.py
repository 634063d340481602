"""A node's clock: it runs too fast or too slow, and may jump ahead. It never goes back: a monotonic clock does not."""


class DriftingClock:
    """Microseconds of true time in, the node's milliseconds out."""

    def __init__(self, rate: float) -> None:
        self.usual_rate = rate
        self._rate = rate
        self._true_us = 0
        self._own_us = 0.0

    def now_ms(self, true_us: int) -> int:
        return int(self._own_us + (true_us - self._true_us) * self._rate) // 1000

    def true_us(self, own_ms: int) -> int:
        """When the clock will show the end of ``own_ms``, if nothing disturbs it."""
        return self._true_us + int(((own_ms + 1) * 1000 - self._own_us) / self._rate)

    def run_at(self, true_us: int, rate: float) -> None:
        """From ``true_us`` on."""
        self._own_us += (true_us - self._true_us) * self._rate
        self._true_us, self._rate = true_us, rate

    def jump(self, by_us: int) -> None:
        self._own_us += by_us
