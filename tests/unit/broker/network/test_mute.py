"""A connection that is muted takes nothing for so long, and then goes on where it was."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.network.budget import MemoryBudget
from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import ConnectionLimits, ServerLimits
from ottla.broker.network.receive import ReceivePool
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route, RouteTable
from ottla.broker.network.server import NetworkServer
from ottla.broker.wire.codec import decoder
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from tests.unit.broker.network.conftest import ECHO, PARK, PRODUCE, Peer, frame, responses

Program = Callable[[], Awaitable[None]]


def run(program: Program) -> None:
    """In a simulation, whose time passes at once."""

    async def main(loop: SimulationLoop) -> None:
        await program()

    simulate(main, 1)


def throttle_time(body: bytes) -> int:
    answer, _ = decoder(FetchResponse, 4)(memoryview(body), 0)
    return answer.throttle_time_ms


async def passes(peer: Peer, ms: int) -> None:
    await asyncio.sleep(ms / 1000)
    peer.turns.end_all()


def test_nothing_is_read_for_so_long_and_then_it_is() -> None:
    async def program() -> None:
        peer = Peer()
        peer.connection.mute(100)
        assert not peer.transport.reading
        await passes(peer, 99)
        assert not peer.transport.reading
        await passes(peer, 2)
        assert peer.transport.reading
        peer.receive(frame(ECHO, b"after"))
        assert peer.answers == [(0, b"after")]

    run(program)


def test_requests_that_came_already_wait_and_are_taken_in_order() -> None:
    async def program() -> None:
        peer = Peer()

        def mute(request: RequestContext, view: memoryview, position: int) -> None:
            request.respond([b"muted"])
            peer.connection.mute(100)

        peer.routes.targets.update(RouteTable([Route(PARK, 4, 4, mute)]).targets)
        peer.receive(frame(PARK, correlation_id=1) + b"".join(frame(ECHO, b"%d" % n, correlation_id=n) for n in (2, 3)))
        assert peer.answers == [(1, b"muted")]
        assert peer.seen == []
        await passes(peer, 101)
        assert peer.answers == [(1, b"muted"), (2, b"2"), (3, b"3")]
        assert peer.transport.reading

    run(program)


def test_answers_of_parked_requests_leave_meanwhile() -> None:
    async def program() -> None:
        peer = Peer()
        peer.receive(frame(PARK, correlation_id=7))
        peer.connection.mute(100)
        peer.parked[0].respond([b"there"])
        assert peer.answers == [(7, b"there")]
        assert not peer.transport.reading

    run(program)


@pytest.mark.parametrize(("first_ms", "second_ms"), [(100, 50), (50, 100)])
def test_muted_twice_the_later_end_counts(first_ms: int, second_ms: int) -> None:
    async def program() -> None:
        peer = Peer()
        peer.connection.mute(first_ms)
        peer.connection.mute(second_ms)
        await passes(peer, 99)
        assert not peer.transport.reading
        await passes(peer, 2)
        assert peer.transport.reading

    run(program)


@pytest.mark.parametrize("ms", [0, -5])
def test_for_no_time_is_not_at_all(ms: int) -> None:
    async def program() -> None:
        peer = Peer()
        peer.connection.mute(ms)
        assert peer.transport.reading
        assert not peer.connection.is_muted

    run(program)


def test_a_bound_that_stands_at_its_end_goes_on_standing() -> None:
    async def program() -> None:
        peer = Peer(ConnectionLimits(in_flight_max=2))
        peer.receive(b"".join(frame(PARK, correlation_id=n) for n in range(3)))
        assert len(peer.parked) == 2
        peer.connection.mute(100)
        await passes(peer, 101)
        assert len(peer.parked) == 2
        assert not peer.transport.reading
        for request in peer.parked[:]:
            request.respond([b""])
        peer.turns.end_all()
        assert len(peer.parked) == 3
        assert peer.transport.reading

    run(program)


def test_a_bound_that_is_kept_again_does_not_end_it() -> None:
    async def program() -> None:
        peer = Peer(ConnectionLimits(in_flight_max=2))
        peer.receive(b"".join(frame(PARK, correlation_id=n) for n in range(3)))
        peer.connection.mute(100)
        for request in peer.parked[:]:
            request.respond([b""])
        peer.turns.end_all()
        assert len(peer.parked) == 2
        assert not peer.transport.reading
        await passes(peer, 101)
        assert len(peer.parked) == 3
        assert peer.transport.reading

    run(program)


def test_room_for_its_request_does_not_end_it() -> None:
    async def program() -> None:
        peer = Peer(pool=ReceivePool(MemoryBudget(1_000_000)))
        peer.pool.budget.add(2_000_000)
        data = frame(ECHO, bytes(200_000))
        peer.receive(data[:100_000], chunk=10_000)
        unread = peer.unread + data[100_000:]
        peer.connection.mute(100)
        peer.connection.room(in_any_case=True)
        peer.turns.end_all()
        assert not peer.transport.reading
        peer.pool.budget.add(-2_000_000)
        await passes(peer, 101)
        peer.receive(unread)
        assert peer.seen == [bytes(200_000)]

    run(program)


def test_a_muted_connection_may_be_closed_and_its_end_comes_to_nothing() -> None:
    async def program() -> None:
        for end in (Connection.close, Connection.abort):
            peer = Peer()
            peer.connection.mute(100)
            end(peer.connection)
            peer.connection.connection_lost(None)
            peer.connection.mute(100)
            await passes(peer, 201)
            assert not peer.connection.is_muted

    run(program)


def test_a_throttled_request_says_so_in_its_answer_and_mutes_its_connection_from_then_on() -> None:
    async def program() -> None:
        peer = Peer()
        peer.receive(frame(PARK, correlation_id=1) + frame(PARK, correlation_id=2))
        first, second = peer.parked
        first.throttle(100)
        first.throttle(50)  # of two quotas the longer time counts
        assert peer.transport.reading
        second.respond_message(FetchResponse())
        assert peer.transport.reading
        first.respond_message(FetchResponse())
        assert not peer.transport.reading
        bodies = dict(peer.answers)
        assert [throttle_time(bodies[number]) for number in (1, 2)] == [100, 0]
        await passes(peer, 99)
        assert not peer.transport.reading
        await passes(peer, 2)
        assert peer.transport.reading

    run(program)


def test_a_throttled_request_without_an_answer_mutes_too() -> None:
    async def program() -> None:
        peer = Peer()
        peer.receive(frame(PRODUCE))
        peer.parked[0].throttle(100)
        peer.parked[0].no_response()
        assert not peer.transport.reading

    run(program)


def test_a_throttled_request_whose_client_left_does_no_harm() -> None:
    async def program() -> None:
        peer = Peer()
        peer.receive(frame(PARK))
        peer.parked[0].throttle(100)
        peer.connection.abort()
        peer.parked[0].respond_message(FetchResponse())
        assert not peer.connection.is_muted

    run(program)


def test_who_is_muted_is_not_idle() -> None:
    async def program() -> None:
        server = NetworkServer(ServerLimits(idle_ms_max=1000))
        made: list[Connection] = []

        def mute(request: RequestContext, view: memoryview, position: int) -> None:
            made.append(request.connection)
            request.respond([b"there"])
            request.connection.mute(5000)

        port = await server.bind("PLAINTEXT", "harness", 9092, RouteTable([Route(ECHO, 4, 4, mute)]))
        await server.start()
        reader, writer = await asyncio.open_connection("harness", port)
        writer.write(frame(ECHO))
        assert responses(await reader.readexactly(13)) == [(0, b"there")]
        await asyncio.sleep(4.9)
        assert not made[0].closed
        await asyncio.sleep(3)
        assert made[0].closed
        writer.close()
        await server.stop()

    run(program)


def test_who_waited_for_an_answer_is_idle_from_then_on() -> None:
    async def program() -> None:
        server = NetworkServer(ServerLimits(idle_ms_max=1000))
        parked: list[RequestContext] = []

        def park(request: RequestContext, view: memoryview, position: int) -> None:
            parked.append(request)

        port = await server.bind("PLAINTEXT", "harness", 9092, RouteTable([Route(PARK, 4, 4, park)]))
        await server.start()
        reader, writer = await asyncio.open_connection("harness", port)
        writer.write(frame(PARK))
        await asyncio.sleep(5)
        parked[0].respond([b"there"])
        assert responses(await reader.readexactly(13)) == [(0, b"there")]
        await asyncio.sleep(0.7)
        assert not parked[0].connection.closed
        await asyncio.sleep(1)
        assert parked[0].connection.closed
        writer.close()
        await server.stop()

    run(program)
