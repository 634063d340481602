"""Requests that wait are answered once, whatever comes first."""

import asyncio
from collections.abc import Callable, Sequence

from ottla.broker.replication.decisions.fetch_session import FetchSession
from ottla.broker.replication.purgatory import ParkedRequest, WakeQueue
from ottla.runtime.errors import ErrorCode
from ottla.runtime.timers import Timer, TimingWheel
from ottla.testing.garbage import left_by

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


class Desk:
    """Time, and the answers that were given."""

    def __init__(self) -> None:
        self.wheel = TimingWheel(0)
        self.answers: list[list[int]] = []
        self.parked = ParkedRequest(self.respond)

    def respond(self, errors: Sequence[int]) -> None:
        self.answers.append(list(errors))

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self.wheel.add(delay_ms, callback)


def test_the_last_partition_completes_the_request() -> None:
    desk = Desk()
    first, second = desk.parked.add(), desk.parked.add()
    desk.parked.park(desk.schedule, 100)
    desk.parked.settle(second, 0)
    assert not desk.answers
    desk.parked.settle(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert desk.answers == [[ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]]


def test_what_is_not_settled_in_time_has_timed_out() -> None:
    desk = Desk()
    first, _ = desk.parked.add(), desk.parked.add()
    desk.parked.park(desk.schedule, 100)
    desk.parked.settle(first, 0)
    desk.wheel.advance(100)
    assert desk.answers == [[0, TIMED_OUT]]


def test_a_request_whose_partitions_were_quick_is_answered_when_it_parks() -> None:
    desk = Desk()
    desk.parked.settle(desk.parked.add(), 0)
    assert not desk.answers
    desk.parked.park(desk.schedule, 100)
    assert desk.answers == [[0]]


def test_an_answered_request_is_not_answered_again() -> None:
    desk = Desk()
    place = desk.parked.add()
    desk.parked.park(desk.schedule, 100)
    desk.parked.settle(place, 0)
    desk.parked.settle(place, 0)
    desk.wheel.advance(1_000)
    assert desk.answers == [[0]]
    assert desk.wheel.next_deadline_ms() is None


def test_a_dropped_request_is_not_answered() -> None:
    desk = Desk()
    place = desk.parked.add()
    desk.parked.park(desk.schedule, 100)
    desk.parked.drop()
    desk.parked.settle(place, 0)
    desk.wheel.advance(1_000)
    assert not desk.answers
    assert desk.parked.done


class Looker:
    def __init__(self, log: list[str]) -> None:
        self._log = log

    def look_again(self) -> None:
        self._log.append("looked")

    def answer_now(self) -> None:
        self._log.append("expired")


def test_a_session_touched_often_is_looked_at_once_when_the_turn_is_over() -> None:
    looked: list[str] = []

    async def burst() -> None:
        wakes = WakeQueue(asyncio.get_running_loop())
        session = FetchSession(1, privileged=True, uses_ids=True, now_ms=0)
        session.parked = Looker(looked)
        for _ in range(10):
            wakes.wake(session)
        assert not looked
        await asyncio.sleep(0)

    asyncio.run(burst())
    assert looked == ["looked"]


def test_a_session_answered_meanwhile_is_left_alone() -> None:
    looked: list[str] = []

    async def burst() -> None:
        wakes = WakeQueue(asyncio.get_running_loop())
        session = FetchSession(1, privileged=True, uses_ids=True, now_ms=0)
        session.parked = Looker(looked)
        wakes.wake(session)
        session.parked = None
        await asyncio.sleep(0)

    asyncio.run(burst())
    assert not looked


def test_nothing_of_a_request_that_is_over_is_left_to_the_collector() -> None:
    def answered() -> None:
        desk = Desk()
        place = desk.parked.add()
        desk.parked.park(desk.schedule, 100)
        desk.parked.settle(place, 0)

    def timed_out() -> None:
        desk = Desk()
        desk.parked.add()
        desk.parked.park(desk.schedule, 100)
        desk.wheel.advance(200)

    def dropped() -> None:
        desk = Desk()
        desk.parked.add()
        desk.parked.park(desk.schedule, 100)
        desk.parked.drop()

    for history in (answered, timed_out, dropped):
        assert "ParkedRequest" not in left_by(history)
