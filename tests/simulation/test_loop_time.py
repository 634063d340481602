"""Virtual time, order, and runs that do not end."""

import asyncio
import itertools
import time
from functools import partial

import pytest

from ottla.runtime.host import Host
from ottla.runtime.simulation.loop import DeadlockError, LivelockError, SimulationLoop, TimeLimitError
from ottla.runtime.simulation.run import run_on, simulate
from ottla.runtime.timers import LoopTimers


def test_a_virtual_hour_of_ticking_costs_seconds_of_cpu_at_most() -> None:
    async def program(loop: SimulationLoop) -> int:
        ticks = 0
        for _ in range(3600):
            await asyncio.sleep(1)
            ticks += 1
        return ticks

    started = time.process_time()
    assert simulate(program, 1) == 3600
    assert time.process_time() - started < 10  # some 50 ms; an hour if it waited


def test_time_is_exact_and_only_passes_when_nothing_runs() -> None:
    async def program(loop: SimulationLoop) -> tuple[float, float]:
        before = loop.time()
        for _ in range(10):
            await asyncio.sleep(0)
        busy = loop.time() - before
        await asyncio.sleep(0.25)
        return busy, round(loop.time() - before, 6)

    assert simulate(program, 1) == (0.0, 0.25)


def test_within_a_process_callbacks_run_in_the_order_they_came() -> None:
    async def program(loop: SimulationLoop) -> list[int]:
        order: list[int] = []
        for number in range(50):
            loop.call_soon(order.append, number)
        await asyncio.sleep(0)
        return order

    assert simulate(program, 1) == list(range(50))


def orders(seeds: int) -> set[tuple[str, ...]]:
    """The orders in which timers of one instant, and three nodes' first steps, happened."""

    async def program(loop: SimulationLoop) -> tuple[str, ...]:
        order: list[str] = []

        async def main(host: Host, name: str) -> None:
            order.append(name)
            await asyncio.sleep(0)
            order.append(name)

        for name in "abc":
            loop.create_node(name).start(partial(main, name=name))
        when = loop.time() + 1
        for name in "xyz":
            loop.call_at(when, order.append, name)
        await asyncio.sleep(2)
        return tuple(order)

    return {simulate(program, seed) for seed in range(seeds)}


def test_between_processes_and_between_timers_of_one_instant_the_seed_decides() -> None:
    seen = orders(60)
    assert len({order[:6] for order in seen}) > 20
    assert len({order[6:] for order in seen}) == 6


def test_a_deadlock_is_reported_with_what_waits() -> None:
    async def program(loop: SimulationLoop) -> None:
        async def main(host: Host) -> None:
            await asyncio.Event().wait()

        node = loop.create_node("broker-1")
        await node.start(main)

    with pytest.raises(DeadlockError) as caught:
        simulate(program, 7)
    text = str(caught.value)
    assert "seed 7" in text
    assert "broker-1" in text
    assert "main (" in text
    assert "Event.wait" in text


def test_a_run_that_takes_too_long_is_stopped() -> None:
    async def program(loop: SimulationLoop) -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    with pytest.raises(TimeLimitError, match=r"not over after 90.0 s"):
        simulate(program, 1, limit_s=90)


def test_a_run_in_which_time_stands_still_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.runtime.simulation.loop._STEPS_PER_INSTANT_MAX", 1000)

    async def program(loop: SimulationLoop) -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(LivelockError, match="1000 callbacks at one instant"):
        simulate(program, 1)


def test_cancelled_timers_do_not_pile_up() -> None:
    async def program(loop: SimulationLoop) -> int:
        for _ in range(20_000):
            loop.call_later(60, print).cancel()
        return len(loop._timers)

    assert simulate(program, 1) < 3000


def test_wait_for_and_timeouts_run_in_virtual_time() -> None:
    async def program(loop: SimulationLoop) -> float:
        before = loop.time()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 30)
        async with asyncio.timeout(60):
            await asyncio.sleep(30)
        return round(loop.time() - before, 6)

    assert simulate(program, 1) == 60.0


def test_the_timing_wheel_runs_on_it() -> None:
    async def program(loop: SimulationLoop) -> list[int]:
        timers, fired, start = LoopTimers(loop), list[int](), loop.time()
        for delay_ms in (5000, 3, 70):
            timers.call_later_ms(delay_ms, lambda: fired.append(round((loop.time() - start) * 1000)))
        await asyncio.sleep(10)
        return fired

    fired = simulate(program, 1)
    assert [late_ms - due_ms in (0, 1) for late_ms, due_ms in zip(fired, (3, 70, 5000), strict=True)] == [True] * 3


def test_executor_calls_take_time_and_take_effect_at_their_end() -> None:
    async def program(loop: SimulationLoop) -> tuple[list[str], float]:
        log: list[str] = []
        before = loop.time()
        future = loop.run_in_executor(None, log.append, "worked")
        log.append("called")
        await future
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return log, loop.time() - before

    log, passed_s = simulate(program, 1)
    assert log == ["called", "worked"]
    assert passed_s > 0


def test_an_unhandled_exception_is_kept_with_its_node(caplog: pytest.LogCaptureFixture) -> None:
    async def program(loop: SimulationLoop) -> None:
        node = loop.create_node("broker-1")
        node.boot().run(loop.call_soon, lambda: [][0])
        await asyncio.sleep(1)

    loop = SimulationLoop(1)
    run_on(loop, program)
    assert [(context["node"], type(context["exception"])) for context in loop.unhandled] == [("broker-1", IndexError)]
    assert "IndexError" in caplog.text
    loop.close()
