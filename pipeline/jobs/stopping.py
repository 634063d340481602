"""SIGTERM and SIGINT: the first asks a job to end after the batch at work, the second at once, the third does not ask."""

import signal
from types import FrameType, TracebackType
from typing import Any

ASKED_MAX = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """While it is entered, signals are counted and end nothing by themselves. The main thread's."""

    def __init__(self) -> None:
        self.asked = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stopping":
        self._before = {each: signal.signal(each, self._count) for each in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)

    def _count(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked += 1
        if self.asked > ASKED_MAX:
            raise KeyboardInterrupt

    @property
    def is_asked(self) -> bool:
        return self.asked > 0

    @property
    def is_urgent(self) -> bool:
        return self.asked > 1
