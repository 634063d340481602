"""Connections that break, end, or never come about, by either transport."""

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.proto import controller_pb2
from ottla.quorum.rpc.transport import (
    PerConnection,
    Request,
)
from tests.unit.quorum.rpc.rpc_bench import SERVICE, Bench, Scenario, ask, echo, free_port


def test_a_refused_connection_fails_the_call_and_is_reported(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        started = asyncio.get_running_loop().time()
        assert await ask(bench.channel(free_port()), 1) is None
        assert asyncio.get_running_loop().time() - started < 1
        assert bench.broken == 1

    run(scenario)


def test_a_dead_peer_fails_what_is_under_way_at_once(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        def ignore_ones(request: Any, reply: Callable[[Any], None]) -> None:
            if request.broker_heartbeat.broker_id != 1:
                echo(request, reply)

        server = await bench.serve(ignore_ones)
        channel = bench.channel(server.port)
        assert await ask(channel, 2) == 2
        pending = [ask(channel, 1), ask(channel, 1)]
        await asyncio.sleep(0.02)
        started = asyncio.get_running_loop().time()
        await server.close()
        assert await asyncio.gather(*pending) == [None, None]
        assert asyncio.get_running_loop().time() - started < 0.5
        assert bench.broken == 1

    run(scenario)


def test_a_restarted_peer_is_reached_again_within_a_moment(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        port = free_port()
        channel = bench.channel(port)
        for _ in range(8):  # long enough that any back-off of gRPC's own would have grown
            assert await ask(channel, 1) is None
        await bench.serve(echo, port)
        started = loop.time()
        while await ask(channel, 3) is None:
            assert loop.time() - started < 5
        assert loop.time() - started < 0.5

    run(scenario)


def test_a_closed_channel_fails_its_calls_quietly(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        channel = bench.channel((await bench.serve(lambda request, reply: None)).port)
        answer = ask(channel, 1)
        await asyncio.sleep(0.02)
        channel.close()
        assert await answer is None
        assert await ask(channel, 1) is None
        assert bench.broken == 0

    run(scenario)


class Witness:
    """A conversation that tells when it is over."""

    def __init__(self, told: asyncio.Queue[str]) -> None:
        self._told = told

    def handle(self, request: Request, reply: Callable[[Any], None]) -> None:
        self._told.put_nowait("asked")
        reply(controller_pb2.ControllerResponse())

    def ended(self) -> None:
        self._told.put_nowait("ended")


def test_a_conversation_is_told_once_that_its_connection_ended(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        told: asyncio.Queue[str] = asyncio.Queue()
        server = await bench.transport.serve("127.0.0.1", 0, {SERVICE: PerConnection(lambda: Witness(told))})
        bench.servers.append(server)
        channel = bench.channel(server.port)
        channel.call(controller_pb2.ControllerRequest(), lambda _response: None, 5000)
        assert await told.get() == "asked"

        channel.close()

        assert await told.get() == "ended"
        assert told.empty()

    run(scenario)
