import asyncio
import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from ottla.runtime.timers import CALLBACKS_PER_TURN, LOOKED_AT_MAX, LoopTimers, Repeated, TimingWheel


def test_a_timer_fires_at_its_deadline_and_not_before() -> None:
    wheel, fired = TimingWheel(), list[int]()
    wheel.add(5, lambda: fired.append(5))
    wheel.advance(4)
    assert fired == []
    wheel.advance(5)
    assert fired == [5]


def test_timers_fire_by_deadline_then_by_arrival() -> None:
    wheel, fired = TimingWheel(), list[str]()
    for name, deadline_ms in (("late", 70), ("first", 9), ("second", 9), ("far", 100_000)):
        wheel.add(deadline_ms, lambda name=name: fired.append(name))  # type: ignore[misc]  # bound now
    wheel.advance(200_000)
    assert fired == ["first", "second", "late", "far"]


def test_a_cancelled_timer_never_fires_and_leaves_nothing_behind() -> None:
    wheel = TimingWheel()
    timer = wheel.add(30_000, lambda: None)
    assert timer.active
    timer.cancel()
    timer.cancel()
    assert not timer.active
    assert wheel.next_deadline_ms() is None


def test_a_callback_may_cancel_another_one_of_its_own_millisecond() -> None:
    wheel, fired = TimingWheel(), list[str]()
    wheel.add(3, lambda: second.cancel())
    second = wheel.add(3, lambda: fired.append("second"))
    wheel.advance(10)
    assert fired == []


def test_a_callback_that_adds_a_timer_for_now_does_not_starve_the_loop() -> None:
    wheel, fired = TimingWheel(), list[int]()

    def again() -> None:
        fired.append(len(fired))
        wheel.add(0, again)

    wheel.add(1, again)
    wheel.advance(3)
    assert fired == [0, 1, 2]  # one a millisecond


def test_a_deadline_beyond_the_wheel_waits() -> None:
    wheel, fired = TimingWheel(), list[str]()
    wheel.add(1 << 62, lambda: fired.append("?"))
    wheel.advance((1 << 44) + 5)
    assert fired == []


def test_a_timer_far_away_is_not_woken_for_before_its_time() -> None:
    async def run(loop: SimulationLoop) -> int:
        timers, wakes = LoopTimers(loop), list[int]()
        run_due = timers._run_due

        def counted() -> None:
            wakes.append(timers.now_ms())
            run_due()

        timers._run_due = counted  # type: ignore[method-assign]  # counts what the loop is woken for
        done = asyncio.Event()
        timers.call_later_ms(300_017, done.set)
        await done.wait()
        return len(wakes)

    assert simulate(run, 1) == 1


def test_the_next_deadline_of_a_crowd_is_not_searched_for() -> None:
    wheel = TimingWheel()
    for number in range(LOOKED_AT_MAX):
        wheel.add(1_000 + number % 3, lambda: None)
    assert wheel.next_deadline_ms() == 1_000
    wheel.add(1_000, lambda: None)
    assert wheel.next_deadline_ms() == 1_000 // 64 * 64


@given(st.integers(0, 1 << 41), st.lists(st.tuples(st.integers(-10, 1 << 20), st.integers(0, 1 << 18)), max_size=40))
def test_the_wheel_fires_what_a_sorted_list_would(start_ms: int, steps: list[tuple[int, int]]) -> None:
    wheel, now_ms = TimingWheel(start_ms), start_ms
    waiting: list[tuple[int, int]] = []
    fired: list[tuple[int, int]] = []
    for number, (delay_ms, pause_ms) in enumerate(steps):
        due = (now_ms + max(delay_ms, 1), number)
        wheel.add(now_ms + delay_ms, lambda due=due: fired.append(due))  # type: ignore[misc]  # bound now
        waiting.append(due)
        next_ms = wheel.next_deadline_ms()
        assert next_ms is not None
        assert next_ms <= min(waiting)[0]
        now_ms += pause_ms
        fired.clear()
        wheel.advance(now_ms)
        assert fired == sorted(timer for timer in waiting if timer[0] <= now_ms)
        waiting = [timer for timer in waiting if timer[0] > now_ms]


def test_loop_timers_keep_one_loop_timer_and_fire_in_order() -> None:
    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        timers, fired, done = LoopTimers(loop), list[int](), asyncio.Event()
        begun = loop.time()
        time_goes_on, loop.time = loop.time, lambda: begun  # type: ignore[method-assign]  # all are called at one time
        delays = [3, 1, 2, 1]
        random.Random(1).shuffle(delays)
        for delay_ms in delays:
            timers.call_later_ms(delay_ms, lambda delay_ms=delay_ms: fired.append(delay_ms))  # type: ignore[misc]  # bound now
        timers.call_later_ms(4, done.set)
        timers.call_later_ms(60_000, lambda: None).cancel()
        loop.time = time_goes_on  # type: ignore[method-assign]  # as it was
        await done.wait()
        return fired

    assert asyncio.run(run()) == [1, 1, 2, 3]


def test_a_timer_that_fails_is_reported_and_the_others_still_fire() -> None:
    async def run() -> list[str]:
        loop, done, reports = asyncio.get_running_loop(), asyncio.Event(), list[str]()
        loop.set_exception_handler(lambda _, context: reports.append(repr(context["exception"])))
        timers = LoopTimers(loop)
        timers.call_later_ms(1, lambda: [][0])
        timers.call_later_ms(1, done.set)
        await done.wait()
        return reports

    assert asyncio.run(run()) == ["IndexError('list index out of range')"]


def test_repeated_work_goes_on_after_a_failure_and_ends_when_it_is_cancelled() -> None:
    async def run() -> tuple[int, int, int]:
        loop, done, reports = asyncio.get_running_loop(), asyncio.Event(), list[str]()
        loop.set_exception_handler(lambda _, context: reports.append(str(context["exception"])))
        timers, runs = LoopTimers(loop), list[int]()
        repeated = Repeated(timers)

        def work() -> None:
            runs.append(timers.now_ms())
            if len(runs) == 3:
                done.set()
            raise ValueError

        repeated.every(1, work)
        await asyncio.wait_for(done.wait(), 60)
        repeated.cancel()
        seen, later = len(runs), asyncio.Event()
        timers.call_later_ms(5, later.set)
        await later.wait()
        return seen, len(runs), len(reports)

    assert asyncio.run(run()) == (3, 3, 3)


def test_what_is_called_at_one_period_is_called_together_whenever_it_asked() -> None:
    async def run(loop: SimulationLoop) -> dict[str, list[int]]:
        await asyncio.sleep(1.2 - loop.time() % 1)
        timers = LoopTimers(loop)
        second_ms, calls, done = timers.now_ms() // 1_000 * 1_000, dict[str, list[int]](), asyncio.Event()

        def note(name: str) -> None:
            calls.setdefault(name, []).append(timers.now_ms() - second_ms)

        repeated = Repeated(timers)
        await asyncio.sleep(0.030)
        repeated.every(1_000, lambda: note("a second"))
        await asyncio.sleep(0.733)
        repeated.every(500, lambda: note("half a second"))
        timers.call_at_beat(500, lambda: note("once"))
        timers.call_later_ms(3_000, done.set)
        await done.wait()
        repeated.cancel()
        return calls

    assert simulate(run, 1) == {
        "a second": [1_000, 2_000, 3_000],
        "half a second": [1_000, 1_500, 2_000, 2_500, 3_000, 3_500],
        "once": [1_000],
    }


def test_a_beat_is_a_period_away_for_who_asks_at_a_beat() -> None:
    async def run(loop: SimulationLoop) -> int:
        timers, done = LoopTimers(loop), asyncio.Event()
        first_ms = 0

        def again() -> None:
            nonlocal first_ms
            first_ms = timers.now_ms()
            timers.call_at_beat(7, done.set)

        timers.call_at_beat(7, again)
        await done.wait()
        return timers.now_ms() - first_ms

    assert simulate(run, 1) == 7


def test_the_nodes_of_a_machine_share_beats_of_up_to_a_second_whenever_they_began() -> None:
    """Longer ones bring work (retention, checkpoints) that they had better not do together."""

    async def run(loop: SimulationLoop) -> tuple[set[int], set[int]]:
        often, seldom, done = set[int](), set[int](), asyncio.Event()
        for _ in range(5):
            timers = LoopTimers(loop)
            timers.call_at_beat(7_000, lambda timers=timers: seldom.add(timers.now_ms()))  # type: ignore[misc]  # bound now
            timers.call_at_beat(500, lambda timers=timers: often.add(timers.now_ms() % 500))  # type: ignore[misc]  # bound now
            await asyncio.sleep(1.313)
        timers.call_later_ms(7_000, done.set)
        await done.wait()
        return often, seldom

    often, seldom = simulate(run, 1)
    assert often == {0}
    assert len(seldom) == 5


def test_a_crowd_that_is_due_together_runs_over_turns_in_order_whatever_happens_between() -> None:
    """In virtual time: on a machine that is busy they would not all be due in one millisecond."""

    async def run(loop: SimulationLoop) -> tuple[list[int], list[int], bool]:
        done, fired, turns = asyncio.Event(), list[int](), list[int]()
        timers = LoopTimers(loop)
        first = timers.call_later_ms(1, lambda: between_turns())
        crowd = [timers.call_later_ms(1, lambda n=n: fired.append(n)) for n in range(3 * CALLBACKS_PER_TURN)]  # type: ignore[misc]

        def between_turns() -> None:
            turns.append(len(fired))
            if len(turns) == 1:
                crowd[-1].cancel()  # is due and has not run
                timers.call_later_ms(0, lambda: fired.append(-1))
                timers.call_later_ms(2, done.set)
            if len(fired) < len(crowd) - 1:
                loop.call_soon(between_turns)

        assert first.active
        await done.wait()
        return fired, turns, crowd[-1].active

    fired, turns, is_active = simulate(run, 1)
    assert fired == [*range(3 * CALLBACKS_PER_TURN - 1), -1]
    assert max(later - earlier for earlier, later in pairwise(turns)) <= CALLBACKS_PER_TURN
    assert not is_active
