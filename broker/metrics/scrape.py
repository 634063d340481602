"""Reads the registry on the loop, a slice a turn, and keeps what was read for whoever asks next."""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from time import perf_counter

from ottla.runtime.metrics import Family, Metric, Registry, at_once, counter, gauge

FRESH_S = 1.0
PAUSE_FACTOR = 100
"""What was read is kept so many times as long as the loop was busy with it: 1 % of the loop at most, however often one asks."""

Render = Callable[[list[Family]], bytes]


class Scraper:
    """One reading at a time, shared by all who ask meanwhile and shortly after. All methods are for the loop."""

    def __init__(self, registry: Registry) -> None:
        self.scrapes = 0
        self.busy_s = 0.0  # the loop's time for the last reading
        self._registry = registry
        self._reading: asyncio.Task[list[Family]] | None = None
        self._bodies: dict[Render, asyncio.Task[bytes]] = {}
        self._stale_at = 0.0
        registry.add(METRICS, at_once(lambda: self))

    async def body(self, render: Render) -> bytes:
        """The metrics as ``render`` writes them (on a thread)."""
        loop = asyncio.get_running_loop()
        if self._reading is None or loop.time() >= self._stale_at:
            self._stale_at = math.inf
            self._bodies = {}
            self._reading = loop.create_task(self._read(), name="metrics")
        task = self._bodies.get(render)
        if task is None:
            task = self._bodies[render] = loop.create_task(self._render(self._reading, render), name="metrics text")
        return await asyncio.shield(task)  # who leaves takes nothing from the others

    async def _read(self) -> list[Family]:
        loop = asyncio.get_running_loop()
        reading = self._registry.gather()
        busy_s = 0.0
        try:
            while True:
                began = perf_counter()
                try:
                    next(reading)
                except StopIteration as done:
                    families: list[Family] = done.value
                    return families
                finally:
                    busy_s += perf_counter() - began
                await asyncio.sleep(0)
        finally:
            self.scrapes += 1
            self.busy_s = busy_s
            self._stale_at = loop.time() + max(FRESH_S, PAUSE_FACTOR * busy_s)

    @staticmethod
    async def _render(reading: "asyncio.Task[list[Family]]", render: Render) -> bytes:
        families = await reading
        return await asyncio.get_running_loop().run_in_executor(None, partial(render, families))

    async def close(self) -> None:
        tasks = [*self._bodies.values(), *([self._reading] if self._reading is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


METRICS: tuple[Metric[Scraper], ...] = (
    counter(
        "ottla_metrics_scrapes_total", "Readings of the metrics; one may serve several clients.", lambda s: s.scrapes
    ),
    gauge("ottla_metrics_gather_seconds", "The loop's time for the reading before this one.", lambda s: s.busy_s),
)
