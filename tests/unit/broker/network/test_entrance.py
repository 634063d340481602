"""Connections that somebody else accepted, and read the first bytes of: handed over on real sockets, they are clients as any."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from ottla.broker.network.limits import ServerLimits
from ottla.broker.network.server import NetworkServer
from ottla.quorum.rpc.grpc_transport import GrpcTransport
from ottla.quorum.rpc.stream_transport import StreamTransport
from ottla.quorum.rpc.transport import RpcTransport
from tests.unit.broker.network.conftest import ANY_SIZE, ECHO, frame
from tests.unit.broker.network.test_server import LOOPS, ROUTES, Client, run

TRANSPORTS: list[Callable[[], RpcTransport]] = [GrpcTransport, StreamTransport]


class Door:
    """The quorum's port, and the server of Kafka's protocol that has none of its own."""

    def __init__(self, server: NetworkServer, port: int) -> None:
        self.server = server
        self.port = port
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client


@asynccontextmanager
async def door(transport: RpcTransport | None = None, limits: ServerLimits | None = None) -> AsyncIterator[Door]:
    transport = transport or StreamTransport()
    server = NetworkServer(limits or ServerLimits(connection=ANY_SIZE))
    await transport.prepare("a cluster")
    rpc = await transport.serve("127.0.0.1", 0, {}, server.entrance("CONTROLLER", ROUTES))
    at = Door(server, rpc.port)
    try:
        yield at
    finally:
        for client in at.clients:
            await client.close()
        await server.stop()
        await rpc.close()
        await transport.close()


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("make", TRANSPORTS)
def test_who_is_handed_over_is_answered_whatever_came_before(
    make: Callable[[], RpcTransport], loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        async with door(make()) as at:
            for size in (0, 10, 100_000, 3_000_000):
                client = await at.connect()
                assert await client.exchange(bytes(size)) == bytes(size)
                assert await client.exchange(b"again") == b"again"

    run(main(), loop_factory)


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("make", TRANSPORTS)
def test_a_request_that_comes_byte_by_byte_is_handed_over_whole(
    make: Callable[[], RpcTransport], loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        async with door(make()) as at:
            client = await at.connect()
            for byte in frame(ECHO, b"slowly"):
                client.writer.write(bytes([byte]))
                await asyncio.sleep(0)
            size = int.from_bytes(await client.reader.readexactly(4), "big")
            assert (await client.reader.readexactly(size)).endswith(b"slowly")

    run(main(), loop_factory)


def test_the_limits_are_those_of_the_servers_other_listeners() -> None:
    async def main() -> None:
        async with door(limits=ServerLimits(connections_max=1)) as at:
            first, second = await at.connect(), await at.connect()
            assert await first.exchange(b"a") == b"a"
            second.writer.write(frame(ECHO, b"b"))
            assert await second.rest() == b""
            counters = at.server.counters[0]
            assert (counters.listener, counters.accepted, counters.refused) == ("CONTROLLER", 2, 1)

    run(main())


def test_who_falls_silent_is_closed() -> None:
    async def main() -> None:
        async with door(limits=ServerLimits(idle_ms_max=50)) as at:
            client = await at.connect()
            assert await client.exchange(b"a") == b"a"
            assert await client.rest() == b""

    run(main())


def test_a_server_that_stopped_takes_nobody_over() -> None:
    async def main() -> None:
        async with door() as at:
            early = await at.connect()
            assert await early.exchange(b"a") == b"a"
            await at.server.stop()
            assert await early.rest() == b""
            late = await at.connect()
            late.writer.write(frame(ECHO, b"b"))
            assert await late.rest() == b""
            assert at.server.connection_count == 0

    run(main())
