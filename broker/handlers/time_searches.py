"""Searches by time that have to look into large batches: on a thread of their own, one after another, and not on the loop."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ottla.broker.handlers.fetching.cold_reads import ColdReads
from ottla.log.results import ColdReadError, TimestampAndOffset
from ottla.log.times import Found, Look, Search, Unclear


class TimeSearches:
    """One thread, made when the first search needs it: whoever asks much waits for himself. One object serves one loop."""

    def __init__(self, cold_reads: ColdReads) -> None:
        self._cold_reads = cold_reads
        self._executor: ThreadPoolExecutor | None = None

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
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "ottla-search")
        return await asyncio.get_running_loop().run_in_executor(self._executor, look)

    async def _load(self, cold: ColdReadError) -> None:
        loaded = asyncio.get_running_loop().create_future()
        self._cold_reads.load([cold], lambda: None if loaded.done() else loaded.set_result(None))
        await loaded

    def close(self) -> None:
        """Ends the thread once what it does is done."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None
