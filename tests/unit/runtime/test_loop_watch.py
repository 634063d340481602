"""A turn of the loop that takes long is seen, whoever takes it and whenever one asks; and forgotten after a while."""

import asyncio
import time

import uvloop

from ottla.runtime.loop_watch import INTERVAL_S, WINDOW_S, LoopWatch
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate

BLOCKED_S = 0.2


def test_a_blocked_loop_shows() -> None:
    async def main() -> float:
        watch = LoopWatch()
        watch.start()
        await asyncio.sleep(INTERVAL_S / 2)
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - the very mistake that is to be seen
        await asyncio.sleep(2 * INTERVAL_S)
        watch.stop()
        return watch.longest_s

    for make_loop in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=make_loop) as runner:
            assert runner.run(main()) >= BLOCKED_S - INTERVAL_S


def test_the_worst_of_the_last_minute_is_kept_and_not_longer_than_two() -> None:
    async def program(loop: SimulationLoop) -> list[float]:
        watch = LoopWatch()
        watch.start()
        watch._now = 0.3
        seen = []
        for _ in range(3):
            await asyncio.sleep(WINDOW_S - 1)
            seen.append(round(watch.longest_s, 3))
        watch.stop()
        return seen

    assert simulate(program, 1) == [0.3, 0.3, 0.0]
