"""How long shards took to load lately."""

from collections import deque

WINDOW_MS = 60_000
KEPT_MAX = 1_000


class LoadTimes:
    """Of the last minute."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, int]] = deque(maxlen=KEPT_MAX)

    def record(self, now_ms: int, took_ms: int) -> None:
        self._kept.append((now_ms, took_ms))

    def recent_ms(self, now_ms: int) -> list[int]:
        return [took_ms for at_ms, took_ms in self._kept if now_ms - at_ms <= WINDOW_MS]
