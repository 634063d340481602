"""How late the event loop is: what is due must wait while another turn takes long."""

import asyncio

INTERVAL_S = 0.05
WINDOW_S = 60.0


class LoopWatch:
    """A timer that sees by how much it is late: some 5 us, twenty times a second. Turns shorter than its interval may pass unseen."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._window_began = 0.0
        self._before = self._now = 0.0  # the worst of the window before this one, and of this one

    @property
    def longest_s(self) -> float:
        """The longest that something due had to wait, in the last one to two minutes."""
        return max(self._before, self._now)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._window_began = loop.time()
        self._wait(loop, self._window_began + INTERVAL_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        self._timer = loop.call_at(due_s, self._look, loop, due_s)

    def _look(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        now_s = loop.time()
        if now_s - self._window_began >= WINDOW_S:
            self._before, self._now, self._window_began = self._now, 0.0, now_s
        self._now = max(self._now, now_s - due_s)
        self._wait(loop, now_s + INTERVAL_S)
