"""Reads that have to wait for the disk, on threads: the loop asks first whether the page cache has the bytes.

What a thread reads it throws away; the loop then finds it in the cache. So no bytes travel between threads, and where and what is
read stays the log's to decide.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ottla.log.results import ColdReadError
from ottla.runtime.disk import File

THREADS = 4

_Range = tuple[File, int, int]


class ColdReads:
    """The threads, made when the first read is cold. One object serves one loop."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def load(self, cold: Sequence[ColdReadError], on_done: Callable[[], None]) -> None:
        """Calls ``on_done`` on the running loop when all of it was read. What could not be, the next read will tell."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS, "ottla-read")
        ranges = [(each.file.pin(), each.position, each.length) for each in cold]
        work = asyncio.get_running_loop().run_in_executor(self._executor, _load, ranges)

        def done(_: "asyncio.Future[None]") -> None:
            for each in cold:
                each.file.unpin()
            on_done()

        work.add_done_callback(done)

    def close(self) -> None:
        """Ends the threads once what they do is done."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None


def _load(ranges: Sequence[_Range]) -> None:
    for file, position, length in ranges:
        try:
            file.load(position, length)
        except OSError:
            continue
