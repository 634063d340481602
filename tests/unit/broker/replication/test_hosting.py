"""Replicas that wait for their role."""

from ottla.broker.replication.hosting import CREATION_COST, TURN_COST, HostingQueue, Key
from tests.unit.broker.fake_timers import FakeTimers

TOPIC_ID = bytes(15) + b"\1"
PER_TURN = TURN_COST // CREATION_COST


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
    bench.timers.advance(1)
    assert [key[1] for key, _ in bench.hosted] == list(range(PER_TURN))
    bench.timers.advance(1)
    assert len(bench.hosted) == PER_TURN + 5
    bench.timers.advance(1)
    assert len(bench.hosted) == PER_TURN + 5


def test_what_is_mentioned_again_keeps_its_place_and_that_it_is_new() -> None:
    bench = Bench()
    bench.queue.add((TOPIC_ID, 0), True)
    bench.queue.add((TOPIC_ID, 1), False)
    bench.queue.add((TOPIC_ID, 0), False)
    bench.timers.advance(1)

    assert bench.hosted == [((TOPIC_ID, 0), True), ((TOPIC_ID, 1), False)]


def test_what_is_dropped_while_it_waits_is_not_hosted() -> None:
    bench = Bench()
    bench.queue.add((TOPIC_ID, 0), True)
    bench.queue.add((TOPIC_ID, 1), True)
    bench.queue.discard((TOPIC_ID, 0))
    bench.timers.advance(1)

    assert [key[1] for key, _ in bench.hosted] == [1]
    assert (TOPIC_ID, 1) not in bench.queue


def test_after_a_stop_nothing_is_hosted() -> None:
    bench = Bench()
    bench.queue.add((TOPIC_ID, 0), True)
    bench.queue.clear()
    bench.timers.advance(1)

    assert bench.hosted == []
