"""Group commit: many callers, one fdatasync."""

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Protocol

from ottla.runtime.threads import SYNCS, Threads

_NOTHING_LOST = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Nothing could be opened, so nothing was synced: the next attempt may be as good as the first."""

OnDone = Callable[[OSError | None], None]

logger = logging.getLogger(__name__)


class Syncable(Protocol):
    """A file, or whatever else a thread can make durable."""

    def sync(self) -> None: ...


_Results = dict[Syncable, OSError | None]


class SyncLater:
    """Syncs files on one thread. Callers that come while it works share its next round.

    A sync promises what was written before `sync` was called. A file whose sync failed once never reports success
    again: the kernel may have dropped the pages it could not write and would answer the next fdatasync with success.
    One object serves one loop; a second one has a thread of its own (the quorum's log waits for no partition's).
    """

    def __init__(self) -> None:
        self._threads = Threads(SYNCS)
        self._waiting: dict[Syncable, list[OnDone]] = {}
        self._failed: dict[Syncable, OSError] = {}
        self.synced_files = 0
        self.seconds = 0.0  # in which rounds ran
        self._running = False

    def sync(self, file: Syncable, on_done: OnDone) -> None:
        """Calls ``on_done`` on the running loop, later: with None, or with what the disk said."""
        self._waiting.setdefault(file, []).append(on_done)
        if not self._running:
            self._start_round()

    def _start_round(self) -> None:
        loop = asyncio.get_running_loop()
        callers, self._waiting = self._waiting, {}
        self._running = True
        began = loop.time()
        round_ = self._threads.run(_sync_all, list(callers))
        round_.add_done_callback(lambda done: self._end_round(callers, done.result(), began))

    def _end_round(self, callers: dict[Syncable, list[OnDone]], results: _Results, began: float) -> None:
        self._running = False
        self.synced_files += len(callers)
        self.seconds += asyncio.get_running_loop().time() - began
        if self._waiting:
            self._start_round()  # before the callbacks: the disk works while they run
        loop = asyncio.get_running_loop()
        for file, waiting in callers.items():
            error = results[file]
            if error is not None and error.errno not in _NOTHING_LOST:
                self._failed.setdefault(file, error)
            for on_done in waiting:
                # A handle each, so that the loop reports a callback that fails and still runs the others.
                loop.call_soon(on_done, self._failed.get(file, error))

    def close(self) -> None:
        """Ends the thread once the running round is done."""
        self._threads.close()


def _sync_all(files: list[Syncable]) -> _Results:
    return {file: _sync_one(file) for file in files}


def _sync_one(file: Syncable) -> OSError | None:
    """Whatever else comes of it is a failure too: what is on the disk nobody knows, and the round has to end."""
    try:
        file.sync()
    except OSError as error:
        return error
    except Exception as error:
        logger.exception("A sync ended in a mistake of ours")
        return OSError(errno.EIO, f"{type(error).__name__}: {error}")
    return None
