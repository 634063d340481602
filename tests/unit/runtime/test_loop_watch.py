"""Turns of the loop are timed whoever begins them, what held a long one is named, and all is forgotten after a minute."""

import asyncio
import gc
import logging
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from math import inf
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import uvloop

from ottla.runtime.loop_watch import LATE_S, LoopWatch
from ottla.runtime.recent import PAGE_S, PAGES
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from ottla.runtime.stack_watch import INTERVAL_S, LOOK_S, NOTHING, StackWatch, place
from ottla.runtime.timers import LoopTimers

HELD_S = 0.02


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def on_both_loops(program: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await program()

    for make_loop in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(main())


async def turn() -> None:
    """Until all that is put off by now has run."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_turn_is_timed_from_its_first_work_to_the_end_of_what_was_received() -> None:
    async def program() -> None:
        clock = ManualClock()
        watch = LoopWatch(clock, stacks=False)
        watch.start()
        for _ in range(2):  # two connections have their bytes in one turn
            if not watch.is_open:
                watch.begin()
            clock.now_s += 0.010
        await turn()
        assert watch.longest_s == pytest.approx(0.020)
        assert not watch.is_open
        watch.stop()

    on_both_loops(program)


def test_every_turn_counts_however_short() -> None:
    async def program() -> None:
        clock = ManualClock()
        watch = LoopWatch(clock, stacks=False)
        watch.start()
        for number in range(100):
            watch.begin()
            clock.now_s += 0.000_050 if number else 0.003
            await turn()
        assert watch.turns.percentiles((0.5, 0.99, 1.0)) == pytest.approx([0.000_050, 0.000_050, 0.003], rel=0.02)
        watch.stop()

    on_both_loops(program)


def test_work_that_is_left_for_the_end_belongs_to_the_turn() -> None:
    async def program() -> None:
        clock = ManualClock()
        watch = LoopWatch(clock, stacks=False)
        watch.start()
        done: list[str] = []

        def write() -> None:
            clock.now_s += 0.010
            done.append("written")
            if len(done) < 3:
                watch.at_end(write)

        watch.at_end(write)
        assert watch.is_open
        await turn()
        await turn()
        assert done == ["written"] * 3
        assert watch.turns.percentiles((0.5, 1.0)) == pytest.approx([0.010, 0.010], rel=0.02)
        watch.stop()

    on_both_loops(program)


def test_work_that_fails_ends_the_turn_all_the_same() -> None:
    async def program() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        watch = LoopWatch(ManualClock(), stacks=False)
        watch.start()
        watch.at_end(lambda: [][0])
        await turn()
        assert failures
        assert not watch.is_open
        watch.stop()

    on_both_loops(program)


def test_the_turn_of_a_timer_is_timed() -> None:
    async def program() -> None:
        watch = LoopWatch(stacks=False)
        watch.start()
        timers = LoopTimers(asyncio.get_running_loop(), watch)
        done = asyncio.Event()

        def work() -> None:
            time.sleep(HELD_S)
            done.set()

        timers.call_later_ms(1, work)
        await done.wait()
        await turn()
        assert watch.longest_s >= HELD_S
        watch.stop()

    on_both_loops(program)


def test_a_task_that_holds_the_loop_is_found_by_who_looks_at_it() -> None:
    async def program() -> None:
        watch = LoopWatch()
        watch.start()
        began = time.monotonic()
        while watch._asked_s == inf or time.monotonic() - began < 4 * INTERVAL_S:
            time.sleep(0.002)  # noqa: ASYNC251 - the very mistake that is to be seen
        held_s = watch.clock() - watch._asked_s
        await turn()
        await asyncio.sleep(0.001)
        assert watch.longest_s >= held_s
        watch.stop()

    on_both_loops(program)


def test_a_loop_that_waits_is_not_woken_and_one_that_works_is_asked_once() -> None:
    asked: list[float] = []
    busy_since_s = [inf]

    def ask(since_s: float) -> None:
        asked.append(since_s)
        busy_since_s[0] = since_s

    now_s = [100.0]
    watch = StackWatch(lambda: now_s[0], lambda: busy_since_s[0], ask)
    works = sys._getframe()
    assert 0 < watch._look(None, 100.0) <= INTERVAL_S
    assert 0 < watch._look(waiting_frame(), 100.0 - INTERVAL_S / 2) <= INTERVAL_S
    assert asked == []
    watch._look(works, 100.0)
    assert asked == [100.0]
    now_s[0] += LATE_S
    assert watch._look(works, now_s[0]) == LOOK_S
    assert asked == [100.0]
    assert watch.seen(100.0) is not None


def test_nodes_of_a_machine_look_at_their_idle_loops_together() -> None:
    """Ten times a second, when other things are due as well: a processor that is awake has little to do for one look more."""
    for now_s in (100.013, 100.05, 100.0999):
        watch = StackWatch(lambda: now_s, lambda: inf, lambda _: None)  # noqa: B023 - called before the next turn
        assert now_s + watch._look(waiting_frame(), now_s) == pytest.approx(100.1)


def test_a_look_that_comes_late_asks_since_when_it_was_due() -> None:
    asked: list[float] = []
    watch = StackWatch(lambda: 100.0, lambda: inf, asked.append)
    watch._look(waiting_frame(), 99.5)
    assert asked == [99.5]


def test_a_late_look_at_a_loop_that_had_its_turns_meanwhile_counts_for_nothing() -> None:
    async def program() -> None:
        clock = ManualClock()
        watch = LoopWatch(clock, stacks=False)
        watch.start()
        clock.now_s += 1
        watch.begin()
        await turn()
        watch._ask(100.0)
        await turn()
        assert watch.longest_s == 0.0
        watch.stop()

    on_both_loops(program)


def waiting_frame() -> FrameType:
    """As the thread of a loop has it that waits."""
    frames: list[FrameType] = []
    code = compile("frames.append(_getframe())", "/lib/python/asyncio/runners.py", "exec")
    exec(code, {"frames": frames, "_getframe": sys._getframe})  # the only way to a frame of another file
    return frames[0]


def hold_the_loop(watch: LoopWatch) -> None:
    """Until it was seen, however little of the machine the other thread gets."""
    began = time.monotonic()
    while time.monotonic() - began < 1.1 * LATE_S or not watch._stacks._looks:  # type: ignore[union-attr]
        time.sleep(0.002)


def test_what_held_a_long_turn_is_named_with_its_line_and_its_request(caplog: pytest.LogCaptureFixture) -> None:
    class Request:
        def told(self) -> str:
            return "Metadata v12 of 10.0.0.9:1234 (crowd)"

    def handle(watch: LoopWatch) -> None:
        hold_the_loop(watch)

    async def program() -> None:
        watch = LoopWatch()
        watch.start()
        watch.begin()
        watch.subject = Request()
        handle(watch)
        await turn()
        watch.stop()

    caplog.set_level(logging.WARNING, "ottla.runtime.loop_watch")
    on_both_loops(program)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    for line in lines:
        assert re.match(r"A turn of the event loop took \d+ ms; it was in ", line), line
        assert "test_loop_watch.py:" in line, line
        assert " hold_the_loop" in line, line
        assert line.endswith(", for Metadata v12 of 10.0.0.9:1234 (crowd)"), line


class Running:
    """A frame that another thread is in: its variables are not to be asked for."""

    f_lineno = 7

    def __init__(self, name: str, f_back: "Running | None" = None) -> None:
        self.f_code = SimpleNamespace(co_filename=f"/x/ottla/{name}.py", co_name=name)
        self.f_back = f_back

    @property
    def f_locals(self) -> dict[str, Any]:
        raise AssertionError("CPython 3.11 dies of that now and then")


def test_nothing_is_collected_while_the_other_thread_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    collecting: list[bool] = []
    looked = threading.Event()

    def look(*_: object) -> float:
        collecting.append(gc.isenabled())
        looked.set()
        return INTERVAL_S

    monkeypatch.setattr(StackWatch, "_look", look)
    watch = StackWatch(lambda: 0.0, lambda: inf, lambda _: None)
    watch.start()
    assert looked.wait(60)
    watch.stop()
    assert not any(collecting)
    assert gc.isenabled()


def test_the_variables_of_a_frame_that_runs_elsewhere_are_left_alone() -> None:
    innermost: Any = None
    for name in "abcdefghij":
        innermost = Running(name, innermost)
    assert place(innermost) == " < ".join(f"{name}.py:7 {name}" for name in "jihgfedc")


@pytest.mark.parametrize(("held_s", "is_quiet", "lines"), [(0.099, False, 0), (0.101, False, 1), (9.0, True, 0)])
def test_only_long_turns_of_a_node_that_serves_are_logged(
    caplog: pytest.LogCaptureFixture, held_s: float, is_quiet: bool, lines: int
) -> None:
    async def program() -> None:
        clock = ManualClock()
        watch = LoopWatch(clock, stacks=False)
        watch.is_quiet = is_quiet
        watch.start()
        watch.begin()
        clock.now_s += held_s
        await turn()
        assert watch.longest_s == pytest.approx(held_s)
        watch.stop()

    on_both_loops(program)
    assert len(caplog.records) == 2 * lines


def test_after_a_good_minute_the_next_late_turn_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def program(loop: SimulationLoop) -> None:
        clock = ManualClock()
        watch = LoopWatch(clock, stacks=False)
        watch.start()
        for pages in (0, 0, 0, PAGES + 1, PAGES + 1):
            for _ in range(pages):
                await asyncio.sleep(PAGE_S)
            watch.begin()
            clock.now_s += 0.2
            await turn()
        watch.stop()

    simulate(program, 1)
    told = [record.getMessage().partition(")")[0].partition("(")[2] for record in caplog.records]
    assert told == ["", "2 times so far", "", ""]


def test_a_thread_that_waits_for_its_next_turn_is_at_no_code_of_ours() -> None:
    seen: list[str] = []

    async def program() -> None:
        loop_thread = threading.get_ident()
        done = asyncio.get_running_loop().create_future()

        def look() -> None:
            while not seen or seen[-1] != NOTHING:
                seen.append(place(sys._current_frames()[loop_thread]))
            done.get_loop().call_soon_threadsafe(done.set_result, None)

        thread = threading.Thread(target=look)
        thread.start()
        await asyncio.wait_for(done, 30)
        thread.join()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(program())
    assert seen[-1] == NOTHING


def test_who_does_not_watch_is_not_asked_to_begin_turns() -> None:
    async def program() -> None:
        watch = LoopWatch(stacks=False)
        assert watch.is_open
        watch.start()
        watch.begin()
        watch.stop()
        await turn()
        assert watch.is_open, "an end that came late opened the watch again"

    on_both_loops(program)


def test_in_a_simulation_turns_take_no_time_and_the_last_minute_passes() -> None:
    async def program(loop: SimulationLoop) -> list[float]:
        watch = LoopWatch(loop.time, stacks=False)
        watch.start()
        watch.begin()
        await asyncio.sleep(1)
        assert watch.turns.percentiles((1.0,)) == [0.0]
        watch.turns.record(0.3)
        seen = []
        for _ in range(PAGES + 1):
            await asyncio.sleep(PAGE_S)
            seen.append(watch.longest_s)
        watch.stop()
        return seen

    assert simulate(program, 1) == [0.3] * (PAGES - 1) + [0.0, 0.0]


def test_a_look_may_come_while_the_looks_are_counted() -> None:
    watch = StackWatch(lambda: 0.0, lambda: 0.0, lambda since_s: None)

    class When(float):
        def __ge__(self, since: float) -> bool:
            watch._looks.append((2.0, "meanwhile"))
            return True

    watch._looks.extend([(When(1), "here"), (When(1), "here")])
    assert watch.seen(0.5) == "here"
