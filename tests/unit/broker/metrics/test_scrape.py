"""Reading on the loop: in slices, with pauses that grow with what a reading takes."""

import asyncio
from collections.abc import Generator
from itertools import pairwise

import pytest

from ottla.broker.metrics import scrape
from ottla.broker.metrics.render import render_json
from ottla.broker.metrics.scrape import PAUSE_FACTOR, Scraper
from ottla.runtime.metrics import Registry, gauge

TURNS = 5


def registry(seen: list[str]) -> Registry:
    def look() -> Generator[None, None, int]:
        for _ in range(TURNS):
            seen.append("slice")
            yield
        return TURNS

    found = Registry()
    found.add([gauge("kafka_a", "A.", lambda turns: turns)], look)
    return found


def test_others_have_their_turn_between_two_slices() -> None:
    seen: list[str] = []

    async def main() -> None:
        scraper = Scraper(registry(seen))
        reading = asyncio.create_task(scraper.body(render_json))
        while not reading.done() and len(seen) < 3 * TURNS:
            seen.append("other")
            await asyncio.sleep(0)
        await reading

    asyncio.run(main())
    slices = [at for at, what in enumerate(seen) if what == "slice"]
    assert all("other" in seen[start:end] for start, end in pairwise(slices))


def test_a_reading_that_takes_long_is_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks without end costs one part of a hundred of the loop."""
    ticks = iter(range(1000))

    async def main() -> None:
        scraper = Scraper(registry([]))
        loop = asyncio.get_running_loop()
        await scraper.body(render_json)
        assert scraper.busy_s == TURNS + 1  # a second each, by the clock of this test
        assert scraper._stale_at - loop.time() > PAUSE_FACTOR * TURNS
        await scraper.close()

    monkeypatch.setattr(scrape, "perf_counter", lambda: float(next(ticks)))
    asyncio.run(main())
