"""The threads beside a loop: what they are for, and how many there may be.

What has a purpose here waits for nothing but its own kind: an acknowledgement's sync not for a cold read, a cold read not for a
batch being recompressed. What nobody waits for within milliseconds (a metrics page, a scrub, a snapshot) shares the loop's own
executor: `runtime.turns.on_thread`, or ``run_in_executor`` with None. Hints to the disk have one thread a process (`runtime.write_back`).
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar, TypeVarTuple

from ottla.runtime.seldom import Seldom

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


logger = logging.getLogger(__name__)


class Purpose(NamedTuple):
    """``at_most`` so many threads, begun as they are needed; their names begin with ``name``. ``endless``: the loop cannot do it in their place."""

    name: str
    at_most: int
    endless: bool = False


SYNCS = Purpose("ottla-sync", 1)
"""Rounds of fdatasync (`runtime.sync_later`). More would not make a disk faster; one keeps the order of a file's syncs."""
DISK_WORK = Purpose("ottla-disk", 1)
"""Checkpoints, unlinking (`runtime.work_later`): in the order given."""
COLD_READS = Purpose("ottla-read", 4)
"""What fetches need and the page cache has not: a disk likes a few at once."""
SEARCHES = Purpose("ottla-search", 1)
"""Batches that a search by time looks into: whoever asks much waits for himself."""
PREPARATIONS = Purpose("ottla-prepare", 2)
"""Batches that are decompressed, checked or recompressed before they are written."""
LARGE_REQUESTS = Purpose("ottla-request", 1)
"""Requests of many entries that are read, and their answers written down: whoever asks much waits for himself."""
LARGE_FETCHES = Purpose("ottla-fetch", 1)
"""Of them those that may be a follower's, which is not to wait for clients' lists."""
CLEANERS = Purpose("ottla-cleaner", 256, endless=True)
"""Each waits for one worker process. With ``log.cleaner.threads`` beyond it, so many are at work."""


class Threads:
    """Threads of one purpose. One object serves one loop; another of the same purpose has threads of its own."""

    def __init__(self, purpose: Purpose) -> None:
        self._purpose = purpose
        self._executor: ThreadPoolExecutor | None = None
        self._refused = Seldom(logger)

    def run(self, work: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Does ``work`` on one of them; the future is the running loop's. Where the system gives not one, it is done here and now: whoever
        waits for it must not wait for ever. RuntimeError in the future where that cannot be."""
        loop = asyncio.get_running_loop()
        if self._executor is None:
            self._executor = _Pool(self._purpose.at_most, self._purpose.name)
        try:
            return loop.run_in_executor(self._executor, work, *args)
        except RuntimeError as error:
            self._executor = None  # and with it its queue, in which the work is
            self._refused.warn("%s: %s: raise ulimit -u, or the container's pids.max", self._purpose.name, error)
            return _failed(loop, error) if self._purpose.endless else _done(loop, work, *args)

    def close(self) -> None:
        """Ends them once what they do is done."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None


class _Pool(ThreadPoolExecutor):
    def _adjust_thread_count(self) -> None:
        """Where the system gives no more threads, those that there are come to the work by and by."""
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise


def _done(loop: asyncio.AbstractEventLoop, work: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
    future: asyncio.Future[T] = loop.create_future()
    try:
        future.set_result(work(*args))
    except Exception as error:  # noqa: BLE001 - as an executor, it hands every failure to its caller
        future.set_exception(error)
    return future


def _failed(loop: asyncio.AbstractEventLoop, error: RuntimeError) -> "asyncio.Future[T]":
    future: asyncio.Future[T] = loop.create_future()
    future.set_exception(error)
    return future
