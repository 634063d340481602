"""Searches by time that have to look into large batches: on a thread of their own, one after another, and not on the loop."""

import asyncio

from ottla.broker.handlers.fetching.cold_reads import ColdReads
from ottla.log.results import ColdReadError, TimestampAndOffset
from ottla.log.times import Found, Look, Search, Unclear
from ottla.runtime.threads import SEARCHES, Threads


class TimeSearches:
    """Finishes searches that the loop gave up, on a thread. One object serves one loop."""

    def __init__(self, cold_reads: ColdReads) -> None:
        self._cold_reads = cold_reads
        self._threads = Threads(SEARCHES)

    async def finish(self, search: Search, step: Look | ColdReadError) -> TimestampAndOffset | None:
        """Goes on with a search that has stopped at ``step``. Raises as it does."""
        try:
            while True:
                if isinstance(step, Look):
                    step = search.send(await self._look(step))
                else:
                    await self._load(step)
                    step = next(search)
        except StopIteration as end:
            found: TimestampAndOffset | None = end.value
            return found

    async def _look(self, look: Look) -> Found | Unclear | None:
        return await self._threads.run(look)

    async def _load(self, cold: ColdReadError) -> None:
        loaded = asyncio.get_running_loop().create_future()
        self._cold_reads.load([cold], lambda: None if loaded.done() else loaded.set_result(None))
        await loaded

    def close(self) -> None:
        """Ends the thread once what it does is done."""
        self._threads.close()
