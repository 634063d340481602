"""Reads that have to wait for the disk, on threads: the loop asks first whether the page cache has the bytes.

What a thread reads it throws away; the loop then finds it in the cache. So no bytes travel between threads, and where and what is
read stays the log's to decide.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from ottla.log.results import ColdReadError
from ottla.log.segments.open_files import CachedFile
from ottla.runtime.disk import File
from ottla.runtime.threads import COLD_READS, Threads

_Range = tuple[File, int, int]


class ColdReads:
    """Loads what is cold, on threads. One object serves one loop."""

    def __init__(self) -> None:
        self._threads = Threads(COLD_READS)

    def load(self, cold: Sequence[ColdReadError], on_done: Callable[[], None]) -> None:
        """Calls ``on_done`` on the running loop when all of it was read. What could not be, the next read will tell: there may be no
        descriptor left, or no file, where the log went meanwhile."""
        pinned: list[CachedFile] = []
        ranges: list[_Range] = []
        for each in cold:
            with suppress(OSError):
                ranges.append((each.file.pin(), each.position, each.length))
                pinned.append(each.file)
        work = self._threads.run(_load, ranges)

        def done(_: "asyncio.Future[None]") -> None:
            for file in pinned:
                file.unpin()
            on_done()

        work.add_done_callback(done)

    def close(self) -> None:
        """Ends the threads once what they do is done."""
        self._threads.close()


def _load(ranges: Sequence[_Range]) -> None:
    for file, position, length in ranges:
        try:
            file.load(position, length)
        except OSError:
            continue
