"""Threads of one purpose, beside a loop."""

import asyncio
import threading

from ottla.runtime.threads import Purpose, Threads


def test_work_is_done_on_a_thread_of_the_purposes_name() -> None:
    async def scenario() -> None:
        threads = Threads(Purpose("somebody", 1))
        name = await threads.run(lambda: threading.current_thread().name)
        assert name.startswith("somebody")
        threads.close()

    asyncio.run(scenario())


def test_no_more_work_is_done_at_once_than_the_purpose_allows() -> None:
    async def scenario() -> None:
        threads, gate, at_work = Threads(Purpose("few", 2)), threading.Barrier(2), list[int]()

        def meet(number: int) -> None:
            at_work.append(number)
            gate.wait(5)  # one thread alone would never come through, three would meet in another order

        await asyncio.gather(*(threads.run(meet, number) for number in range(4)))
        assert sorted(at_work[:2]) == [0, 1]
        threads.close()

    asyncio.run(scenario())


def test_what_is_under_way_is_done_though_its_threads_are_closed() -> None:
    async def scenario() -> None:
        threads, go = Threads(Purpose("last", 1)), threading.Event()
        under_way = threads.run(go.wait, 5)
        threads.close()
        threads.close()  # twice is as good as once
        go.set()
        assert await under_way

    asyncio.run(scenario())
