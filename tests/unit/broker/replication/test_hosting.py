"""Replicas that wait for their role."""

from collections.abc import Callable

from ottla.broker.replication.hosting import CREATION_COST, TURN_COST, HostingQueue, Key
from ottla.runtime.timers import LoopTimers, Timer, TimingWheel

TOPIC_ID = bytes(15) + b"\1"
PER_TURN = TURN_COST // CREATION_COST


class FakeTimers(LoopTimers):
    def __init__(self) -> None:
        self.wheel = TimingWheel(0)
        self.time_ms = 0

    def call_later_ms(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self.wheel.add(self.time_ms + delay_ms, callback)

    def turn(self) -> None:
        self.time_ms += 1
        self.wheel.advance(self.time_ms)


class Bench:
    def __init__(self, cost: int = CREATION_COST) -> None:
        self.hosted: list[tuple[Key, bool]] = []
        self.timers = FakeTimers()
        self.cost = cost
        self.queue = HostingQueue(self.timers, self.host)

    def host(self, key: Key, is_new: bool) -> int:
        self.hosted.append((key, is_new))
        return self.cost


def test_a_turn_takes_on_no_more_than_it_can() -> None:
    bench = Bench()
    for index in range(PER_TURN + 5):
        bench.queue.add((TOPIC_ID, index), True)

    assert bench.hosted == []
    bench.timers.turn()
    assert [key[1] for key, _ in bench.hosted] == list(range(PER_TURN))
    bench.timers.turn()
    assert len(bench.hosted) == PER_TURN + 5
    bench.timers.turn()
    assert len(bench.hosted) == PER_TURN + 5


def test_what_is_mentioned_again_keeps_its_place_and_that_it_is_new() -> None:
    bench = Bench()
    bench.queue.add((TOPIC_ID, 0), True)
    bench.queue.add((TOPIC_ID, 1), False)
    bench.queue.add((TOPIC_ID, 0), False)
    bench.timers.turn()

    assert bench.hosted == [((TOPIC_ID, 0), True), ((TOPIC_ID, 1), False)]


def test_what_is_dropped_while_it_waits_is_not_hosted() -> None:
    bench = Bench()
    bench.queue.add((TOPIC_ID, 0), True)
    bench.queue.add((TOPIC_ID, 1), True)
    bench.queue.discard((TOPIC_ID, 0))
    bench.timers.turn()

    assert [key[1] for key, _ in bench.hosted] == [1]
    assert (TOPIC_ID, 1) not in bench.queue


def test_after_a_stop_nothing_is_hosted() -> None:
    bench = Bench()
    bench.queue.add((TOPIC_ID, 0), True)
    bench.queue.clear()
    bench.timers.turn()

    assert bench.hosted == []
