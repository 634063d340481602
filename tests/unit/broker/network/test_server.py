"""Listeners on real sockets: limits, idle connections, many at once."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop

from ottla.broker.network import host_names, server
from ottla.broker.network.limits import ServerLimits
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route, RouteTable
from ottla.broker.network.server import NetworkServer
from ottla.runtime.settings.setting_error import SettingError
from tests.unit.broker.network.conftest import ANY_SIZE, ECHO, frame, responses

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


def echo(request: RequestContext, frame: memoryview, position: int) -> None:
    request.respond([bytes(frame[position:])])


ROUTES = RouteTable([Route(ECHO, 0, 13, echo)])


class Client:
    """A client on a stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def exchange(self, body: bytes) -> bytes:
        self.writer.write(frame(ECHO, body))
        size = await self.reader.readexactly(4)
        return responses(size + await self.reader.readexactly(int.from_bytes(size, "big")))[0][1]

    async def rest(self) -> bytes:
        """What comes until the server closes."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class Site:
    """A server and its clients."""

    def __init__(self, limits: ServerLimits | None) -> None:
        self.server = NetworkServer(limits or ServerLimits(connection=ANY_SIZE))
        self.clients: list[Client] = []

    async def start(self) -> None:
        self.port = await self.server.bind("PLAINTEXT", "127.0.0.1", 0, ROUTES)
        await self.server.start()

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    async def stop(self) -> None:
        for client in self.clients:
            await client.close()
        await self.server.stop()


@asynccontextmanager
async def serving(limits: ServerLimits | None = None) -> AsyncIterator[Site]:
    site = Site(limits)
    await site.start()
    try:
        yield site
    finally:
        await site.stop()


def run(main: Coroutine[Any, Any, None], loop_factory: Callable[[], asyncio.AbstractEventLoop] = LOOPS[0]) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_clients_are_answered_on_both_loops(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with serving() as site:
            client = await site.connect()
            for size in (0, 10, 100_000, 3_000_000):
                assert await client.exchange(bytes(size)) == bytes(size)
            assert site.server.connection_count == 1

    run(main(), loop_factory)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_small_answers_are_not_delayed_by_nagle(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with serving() as site:
            client = await site.connect()
            await client.exchange(b"x")
            connection = next(iter(site.server._visitors))
            accepted = connection._transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(main(), loop_factory)


def test_nobody_is_served_between_bind_and_start() -> None:
    async def main() -> None:
        server = NetworkServer()
        port = await server.bind("PLAINTEXT", "127.0.0.1", 0, ROUTES)
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
        await server.stop()

    run(main())


def test_a_taken_address_is_an_error_at_once() -> None:
    async def main() -> None:
        async with serving() as site:
            with pytest.raises(OSError, match="in use"):
                await NetworkServer().bind("PLAINTEXT", "127.0.0.1", site.port, ROUTES)

    run(main())


def test_brokers_with_a_listener_of_their_own_come_in_where_clients_are_too_many() -> None:
    async def main() -> None:
        async with serving(ServerLimits(connections_max=1, protected_listener="INSIDE")) as site:
            inside = await site.server.bind("INSIDE", "127.0.0.1", 0, ROUTES)
            await site.server.start()
            assert await (await site.connect()).exchange(b"a") == b"a"
            assert await (await site.connect()).rest() == b""
            broker = Client(*await asyncio.open_connection("127.0.0.1", inside))
            assert await broker.exchange(b"b") == b"b"
            await broker.close()

    run(main())


def test_a_limit_that_changes_holds_for_those_who_come_from_then_on() -> None:
    async def main() -> None:
        async with serving() as site:
            first = await site.connect()
            assert await first.exchange(b"a") == b"a"
            site.server.limits = ServerLimits(connections_max=1)
            assert await (await site.connect()).rest() == b""
            assert await first.exchange(b"b") == b"b"
            site.server.limits = ServerLimits()
            assert await (await site.connect()).exchange(b"c") == b"c"

    run(main())


def test_hosts_that_limits_name_are_known_by_their_addresses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked_up = look_up({"monitor": ["192.0.2.1", "127.0.0.1"]}, monkeypatch)

    async def main() -> None:
        async with serving(ServerLimits(connections_per_ip_overrides={"192.0.2.9": 3, "monitor": 1})) as site:
            assert site.server.limits.connections_per_ip_overrides == {"192.0.2.9": 3, "192.0.2.1": 1, "127.0.0.1": 1}
            first = await site.connect()
            assert await first.exchange(b"a") == b"a"
            assert await (await site.connect()).rest() == b""
            site.server.change_limits(ServerLimits(connections_per_ip_overrides={"monitor": 0}))
            await turns(1)  # it is being looked up
            site.server.change_limits(ServerLimits(connections_per_ip_overrides={"monitor": 2, "nobody": 7}))
            await turns(10)
            assert await (await site.connect()).exchange(b"b") == b"b"
            assert await (await site.connect()).rest() == b""
            assert "no address is known of nobody" in caplog.text
            assert looked_up == ["monitor", "monitor", "monitor", "nobody"]

    run(main())


def test_a_server_does_not_begin_with_a_limit_for_a_host_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up({}, monkeypatch)

    async def main() -> None:
        with pytest.raises(SettingError, match="no address is known of monitor"):
            async with serving(ServerLimits(connections_per_ip_overrides={"monitor": 1})):
                pass

    run(main())


def look_up(known: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets only these names be found. Returns those that were asked for."""
    asked: list[str] = []

    async def addresses(name: str) -> list[str]:
        asked.append(name)
        await turns(3)
        return known.get(name, [])

    monkeypatch.setattr(host_names, "_addresses", addresses)
    return asked


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_hundreds_of_clients_that_come_at_once_are_all_served() -> None:
    async def main() -> None:
        async with serving() as site:
            clients = await asyncio.gather(*(site.connect() for _ in range(300)))
            bodies = await asyncio.gather(*(client.exchange(b"%d" % n) for n, client in enumerate(clients)))
            assert bodies == [b"%d" % n for n in range(300)]
            assert site.server.connection_count == 300

    run(main(), uvloop.new_event_loop)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (ServerLimits(connections_max=2), "max.connections=2"),
        (ServerLimits(descriptors_max=2), "clients have their 2 descriptors"),
        (ServerLimits(connections_per_ip_max=2), "max.connections.per.ip=2"),
        (ServerLimits(connections_per_ip_overrides={"127.0.0.1": 2}), "max.connections.per.ip=2"),
    ],
)
def test_one_connection_too_many_is_closed_and_a_free_place_is_used_again(
    limits: ServerLimits, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(limits) as site:
            clients = [await site.connect() for _ in range(2)]
            for client in clients:
                assert await client.exchange(b"in") == b"in"
            assert await (await site.connect()).rest() == b""
            assert told in caplog.text
            await clients[0].close()
            assert await clients[1].exchange(b"still in") == b"still in"  # by now the server saw the other one go
            assert await (await site.connect()).exchange(b"in again") == b"in again"

    run(main())


def test_a_broker_comes_in_by_a_listener_of_its_own_though_clients_have_all_their_descriptors() -> None:
    async def main() -> None:
        limits = ServerLimits(descriptors_max=2, peer_descriptors_max=1, protected_listener="INSIDE")
        async with serving(limits) as site:
            clients = [await site.connect() for _ in range(2)]
            for client in clients:
                assert await client.exchange(b"in") == b"in"
            site.port = await site.server.bind("INSIDE", "127.0.0.1", 0, ROUTES)
            await site.server.start()
            assert await (await site.connect()).exchange(b"a broker") == b"a broker"
            assert await (await site.connect()).rest() == b""  # a log's are left

    run(main())


def test_refusals_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(ServerLimits(connections_max=0)) as site:
            for _ in range(20):
                assert await (await site.connect()).rest() == b""

    run(main())
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 5  # the 1st, 2nd, 4th, 8th and 16th


def test_a_silent_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def main() -> None:
        async with serving(ServerLimits(idle_ms_max=60)) as site:
            silent, busy = await site.connect(), await site.connect()
            closed = asyncio.ensure_future(silent.rest())
            while not closed.done():
                assert await busy.exchange(b"here") == b"here"
            assert site.server.connection_count == 1

    run(main())


def test_a_loop_with_nobody_who_may_be_idle_is_not_kept_busy_with_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SWEEP_SECONDS_MIN", 60.0)

    async def main() -> None:
        async with serving(ServerLimits(idle_ms_max=0)) as site:
            timer = site.server._sweep_timer
            assert timer is not None
            assert timer.when() - asyncio.get_running_loop().time() > 30

    run(main())


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_an_answer_on_its_way_arrives_though_the_server_stops(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        async with serving() as site:
            client = await site.connect()
            client.writer.write(frame(ECHO, bytes(3_000_000)))
            head = await client.reader.readexactly(10)
            stopping = asyncio.ensure_future(site.server.stop())
            assert len(head + await client.rest()) == 3_000_008
            await stopping

    run(main(), loop_factory)


def test_stopping_closes_every_connection_after_its_last_answer() -> None:
    async def main() -> None:
        async with serving() as site:
            client = await site.connect()
            assert await client.exchange(b"answered") == b"answered"
            await site.server.stop()
            assert await client.rest() == b""
            assert site.server.connection_count == 0

    run(main())
