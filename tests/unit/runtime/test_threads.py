"""Threads of one purpose, beside a loop."""

import asyncio
import threading

import pytest

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


class Refused:
    """No more than so many threads are begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
        start = threading.Thread.start

        def refused(thread: threading.Thread) -> None:
            nonlocal left
            if not left:
                raise RuntimeError("can't start new thread")
            left -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refused)


def test_without_a_thread_the_loop_does_the_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else who waits for a sync waited for ever: a container may have a limit of processes and threads."""

    async def scenario() -> None:
        threads, done = Threads(Purpose("somebody", 1)), list[int]()
        with monkeypatch.context() as patch:
            Refused(patch, 0)
            assert await threads.run(threading.current_thread) is threading.current_thread()
            with pytest.raises(ZeroDivisionError):
                await threads.run(lambda: 1 // 0)
            await threads.run(done.append, 1)
        await threads.run(done.append, 2)
        assert await threads.run(threading.current_thread) is not threading.current_thread()
        assert done == [1, 2], "each once"
        threads.close()

    asyncio.run(scenario())
    assert "somebody: can't start new thread: raise ulimit -u, or the container's pids.max" in caplog.text


def test_what_takes_for_ever_is_not_done_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        threads = Threads(Purpose("cleaner", 2, endless=True))
        Refused(monkeypatch, 0)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await threads.run(threading.Event().wait)

    asyncio.run(scenario())


def test_with_fewer_threads_than_there_may_be_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        threads, gate = Threads(Purpose("few", 4)), threading.Event()
        Refused(monkeypatch, 1)
        at_work = [threads.run(gate.wait, 5) for _ in range(3)]
        gate.set()
        assert await asyncio.gather(*at_work) == [True] * 3
        threads.close()

    asyncio.run(scenario())
