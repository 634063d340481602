"""Disk work that the event loop does not wait for: on one thread, one piece after another, in the order given."""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable

from ottla.runtime.threads import DISK_WORK, Threads

Work = Callable[[], None]
OnDone = Callable[[OSError | None], None]
Later = Callable[[Work, OnDone], None]
"""Does the work at some time, and tells on the caller's thread how it ended."""

logger = logging.getLogger(__name__)


def at_once(work: Work, on_done: OnDone) -> None:
    """A `Later` for those who can wait."""
    error = None
    try:
        work()
    except OSError as failure:
        error = failure
    on_done(error)


class WorkLater:
    """`do` is a `Later` on the running loop. One object serves one loop and has a thread of its own."""

    def __init__(self) -> None:
        self._threads = Threads(DISK_WORK)
        self._waiting: deque[tuple[Work, OnDone]] = deque()
        self._running: asyncio.Future[OSError | None] | None = None

    def do(self, work: Work, on_done: OnDone) -> None:
        """Calls ``on_done`` on the loop when ``work`` is done: with None, or with what the disk said."""
        self._waiting.append((work, on_done))
        if self._running is None:
            self._next()

    def _next(self) -> None:
        work, on_done = self._waiting.popleft()
        self._running = self._threads.run(_outcome, work)
        self._running.add_done_callback(lambda done: self._ended(on_done, done.result()))

    def _ended(self, on_done: OnDone, error: OSError | None) -> None:
        self._running = None
        if self._waiting:
            self._next()
        on_done(error)

    async def close(self, *, drop_waiting: bool = False) -> None:
        """Waits for what was given (``drop_waiting``: only for what is being done) and ends the thread."""
        if drop_waiting:
            self._waiting.clear()
        while self._running is not None:
            await asyncio.wait([self._running])
            await asyncio.sleep(0)  # for `_ended`, which may start the next piece
        self._threads.close()


def _outcome(work: Work) -> OSError | None:
    """Whatever else comes of it is a failure too: what waits behind it is to have its turn."""
    try:
        work()
    except OSError as error:
        return error
    except Exception as error:
        logger.exception("Work on the disk ended in a mistake of ours")
        return OSError(errno.EIO, f"{type(error).__name__}: {error}")
    return None
