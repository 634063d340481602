"""Where a request's time goes, which requests are timed, and under which name."""

import asyncio
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.network.metrics import Spreads, look_at_times
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route, RouteTable
from ottla.broker.network.server import NetworkServer
from ottla.broker.network.times import CONSUMER, FOLLOWER, STEP_MAX, Phases, RequestTimes, Sampling
from ottla.runtime.loop_watch import LoopWatch
from tests.unit.broker.network.conftest import ECHO, PARK, PRODUCE, Peer, Turns, frame


class Timing:
    """A connection whose requests are all timed, and a clock that only the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.watch = LoopWatch(lambda: self.now_s, stacks=False)
        self.peer = Peer(turns=Turns(self.watch))
        self.times = self.peer.connection.counters.times
        self.peer.routes.time(self.times)

    def receive(self, data: bytes, *, after_s: float = 0.0) -> None:
        """In a turn of the loop that others held for so long before."""
        self.watch.began_s = self.now_s
        self.now_s += after_s
        self.peer.unread = data
        self.peer.read()

    def end_turn(self) -> None:
        self.peer.turns.end_all()

    def ms(self, name: str) -> dict[str, float]:
        """The median of each phase."""
        phases = self.times.named(name)
        found = {field: getattr(phases, field).percentiles((0.5,)) for field in Phases._fields}
        return {field: round(1000 * each[0], 1) for field, each in found.items() if each}


@pytest.fixture
def timing() -> Timing:
    return Timing()


def phases(**others: float) -> dict[str, Any]:
    return {**dict.fromkeys(Phases._fields, 0.0), **{name: pytest.approx(ms, rel=0.02) for name, ms in others.items()}}


def test_each_phase_has_its_own_time(timing: Timing) -> None:
    timing.receive(frame(PRODUCE), after_s=0.001)
    timing.now_s += 0.020
    timing.peer.parked[0].respond([b"there"])
    timing.now_s += 0.300
    timing.end_turn()
    assert timing.ms("Produce") == phases(queue=1, remote=20, response_queue=300, total=321)


def test_the_handlers_time_is_local(timing: Timing) -> None:
    def slow(request: RequestContext, view: memoryview, position: int) -> None:
        timing.now_s += 0.007
        request.respond([b"there"])
        timing.now_s += 0.001  # what it does afterwards is in nobody's way to the answer

    timing.peer.routes.targets.update(
        RouteTable([Route(ECHO, 4, 4, slow)]).targets,
    )
    timing.peer.routes.time(timing.times)
    timing.receive(frame(ECHO))
    timing.end_turn()
    assert timing.ms("Metadata") == phases(local=7, response_queue=1, total=8)


def test_an_answer_behind_a_parked_one_waits_in_the_response_queue(timing: Timing) -> None:
    timing.receive(frame(PARK, correlation_id=1) + frame(ECHO, b"second", correlation_id=2))
    timing.now_s += 0.050
    timing.peer.parked[0].respond([b"first"])
    timing.end_turn()
    assert timing.ms("Metadata") == phases(response_queue=50, total=50)
    assert timing.ms(CONSUMER) == phases(remote=50, total=50)


def test_a_client_that_takes_its_answer_slowly_shows_in_the_send_time(timing: Timing) -> None:
    timing.peer.full_bytes = 0
    timing.receive(frame(ECHO, b"large"))
    timing.end_turn()
    assert timing.ms("Metadata") == {}
    timing.now_s += 2.0
    timing.peer.take_answers()
    assert timing.ms("Metadata") == phases(send=2000, total=2000)


def test_a_request_without_an_answer_is_done_when_it_is_handled(timing: Timing) -> None:
    timing.receive(frame(PRODUCE))
    timing.now_s += 0.004
    timing.peer.parked[0].no_response()
    assert timing.ms("Produce") == phases(remote=4, total=4)


def test_what_a_closed_connection_owed_is_not_counted(timing: Timing) -> None:
    timing.receive(frame(PARK) + frame(ECHO))
    timing.peer.connection.abort()
    timing.peer.connection.connection_lost(None)
    assert timing.ms("Metadata") == timing.ms(CONSUMER) == {}
    assert not timing.peer.connection._answers.times.waiting


def test_a_request_that_is_put_off_waits_in_the_queue_since_it_was_read(timing: Timing) -> None:
    timing.receive(frame(ECHO, correlation_id=1), after_s=0.100)  # the turn is over: it is put off
    timing.now_s += 0.050
    timing.receive(frame(ECHO, correlation_id=2)[:10])  # more came, in the next turn
    timing.end_turn()
    assert timing.ms("Metadata") == phases(queue=150, total=150)


def test_a_followers_fetch_has_a_name_of_its_own(timing: Timing) -> None:
    timing.receive(frame(PARK, correlation_id=1) + frame(PARK, correlation_id=2))
    first, second = timing.peer.parked
    first.is_of_follower()
    timing.now_s += 0.010
    first.respond([b""])
    timing.now_s += 0.010
    second.respond([b""])
    timing.end_turn()
    assert timing.ms(FOLLOWER)["remote"] == pytest.approx(10, rel=0.02)
    assert timing.ms(CONSUMER)["remote"] == pytest.approx(20, rel=0.02)
    server: Any = SimpleNamespace(tables=[timing.peer.routes], times=timing.times)
    found = finished(look_at_times(server))["remote"]
    assert {name: spread.number for (name,), spread in found.items()} == {"Fetch": 2, FOLLOWER: 1, CONSUMER: 1}
    assert found["Fetch",].percentiles["0.50"] == pytest.approx(10, rel=0.02)
    assert found["Fetch",].percentiles["0.99"] == pytest.approx(20, rel=0.02)
    assert list(found["Fetch",].percentiles) == ["0.50", "0.75", "0.95", "0.98", "0.99", "0.999"]


def finished(looking: Generator[None, None, Spreads]) -> Spreads:
    while True:
        try:
            next(looking)
        except StopIteration as done:
            spreads: Spreads = done.value
            return spreads


# Sampling.


def taken(sampling: Sampling, moments: list[float]) -> list[tuple[int, int]]:
    """Number and weight of the requests at these moments that are timed."""
    found = []
    for number, now_s in enumerate(moments, 1):
        if number == sampling.at:
            found.append((number, sampling.take(now_s, now_s).weight))
    return found


def test_a_rare_request_is_always_timed() -> None:
    sampling = Sampling(Phases.empty(), 0, 1)
    assert taken(sampling, [0.01 * n for n in range(100)]) == [(n, 1) for n in range(1, 101)]


@pytest.mark.parametrize("each_second", [500, 2_000, 5_000])
def test_of_many_requests_about_250_a_second_are_timed_and_count_for_those_between(each_second: int) -> None:
    sampling = Sampling(Phases.empty(), 0, 1)
    found = taken(sampling, [1 + n / each_second for n in range(60 * each_second)])
    assert len(found) == pytest.approx(60 * 250, rel=0.25)
    assert sum(weight for _, weight in found) == pytest.approx(60 * each_second, abs=STEP_MAX)


def test_of_very_many_requests_one_in_32_is_timed() -> None:
    sampling = Sampling(Phases.empty(), 0, 1)
    found = taken(sampling, [1 + n / 1_000_000 for n in range(160_000)])
    assert len(found) == pytest.approx(5_000, rel=0.05)
    assert {weight for _, weight in found} == set(range(1, STEP_MAX + 1))


@pytest.mark.parametrize("rhythm", [2, 4, 5, 8, 16, 32])
def test_a_client_with_a_rhythm_is_timed_at_every_beat_alike(rhythm: int) -> None:
    sampling = Sampling(Phases.empty(), 0, 1)
    count = 320_000
    beats = [0] * rhythm
    for number, weight in taken(sampling, [1 + 0.000_01 * n for n in range(count)]):
        beats[number % rhythm] += weight
    assert beats == [pytest.approx(count / rhythm, rel=0.25)] * rhythm


def test_after_a_crowd_the_rare_ones_are_all_timed_again() -> None:
    sampling = Sampling(Phases.empty(), 0, 1)
    crowd = [1 + 0.000_01 * n for n in range(1000)]
    found = taken(sampling, crowd + [2 + 0.1 * n for n in range(200)])
    assert [weight for number, weight in found if number > 1000 + 2 * STEP_MAX] == [1] * (200 - 2 * STEP_MAX)


# A server.


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_server_times_requests_where_the_loop_is_watched(is_watched: bool) -> None:
    async def main() -> float | None:
        watch = LoopWatch(stacks=False)
        if is_watched:
            watch.start()
        server = NetworkServer(loop_watch=watch)

        def answer(request: RequestContext, view: memoryview, position: int) -> None:
            request.respond([b"there"])

        port = await server.bind("PLAINTEXT", "127.0.0.1", 0, RouteTable([Route(ECHO, 4, 4, answer)]))
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(ECHO))
        await reader.readexactly(13)
        writer.close()
        await server.stop()
        watch.stop()
        return server.times.named("Metadata").total.longest_s

    assert (0 < (asyncio.run(main()) or 0) < 10) is is_watched


def test_pages_turn_for_every_name() -> None:
    times = RequestTimes()
    times.named("Metadata").total.record(1.0)
    for _ in range(4):
        times.turn_page()
    assert times.named("Metadata").total.percentiles((0.5,)) is None
