"""Who comes in on real sockets: crowds, both families, no descriptors, and a listener that goes while somebody waits."""

import asyncio
import errno
import gc
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from ottla.broker.network.accepting import ACCEPTS_PER_TURN, Acceptor, bind
from ottla.broker.network.admission import Admission
from ottla.broker.network.limits import ServerLimits
from ottla.broker.network.server import NetworkServer
from tests.unit.broker.network.conftest import ECHO, frame
from tests.unit.broker.network.test_server import LOOPS, ROUTES, Client, Site, run, serving

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def test_one_more_than_the_limit_is_refused_and_the_protected_listener_is_not() -> None:
    admission, limits = Admission(), ServerLimits(connections_max=1, protected_listener="INSIDE")
    admission.enter("a")
    assert "max.connections=1" in str(admission.refusal("b", "PLAINTEXT", limits))
    assert admission.refusal("b", "INSIDE", limits) is None
    admission.leave("a")
    assert admission.refusal("b", "PLAINTEXT", limits) is None


def test_an_address_has_its_own_limit_and_leaves_no_trace_when_all_are_gone() -> None:
    admission = Admission()
    limits = ServerLimits(connections_per_ip_max=1, connections_per_ip_overrides={"b": 2})
    for address in ("a", "b"):
        admission.enter(address)
    assert "max.connections.per.ip=1 is reached for a" in str(admission.refusal("a", "PLAINTEXT", limits))
    assert admission.refusal("b", "PLAINTEXT", limits) is None
    for address in ("a", "b"):
        admission.leave(address)
    assert admission._per_address == {}
    assert admission.count == 0


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_an_empty_host_is_served_on_both_families(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        acceptors = await bind("", 0, 10)
        seen: list[int] = []

        def welcome(client: socket.socket, address: tuple[str, int]) -> None:
            seen.append(client.family)
            client.close()

        for acceptor in acceptors:
            acceptor.start(welcome)
            host = "::1" if acceptor._socket.family == socket.AF_INET6 else "127.0.0.1"
            reader, writer = await asyncio.open_connection(host, acceptor.port)
            assert await reader.read() == b""
            writer.close()
            acceptor.close()
        assert len(seen) == len(acceptors) == len(set(seen))

    run(main(), loop_factory)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_crowd_is_let_in_within_a_few_turns_while_others_are_served(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        async with serving() as site:
            busy = await site.connect()
            sockets = [socket.socket() for _ in range(500)]
            for each in sockets:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", site.port))
            turns = 0
            while site.server.connection_count < 501:
                assert await busy.exchange(b"x") == b"x"
                turns += 1
            assert turns <= 10 * (500 // ACCEPTS_PER_TURN)
            for each in sockets:
                each.close()

    run(main(), loop_factory)


def test_a_crowd_takes_no_turn_for_more_than_its_share() -> None:
    """Of a listening socket on which a thousand wait."""

    async def main() -> None:
        (acceptor,) = await bind("127.0.0.1", 0, 4096)
        taken: list[socket.socket] = []
        acceptor.start(lambda client, _: taken.append(client))
        sockets = [socket.socket() for _ in range(ACCEPTS_PER_TURN + 10)]
        for each in sockets:
            each.connect(("127.0.0.1", acceptor.port))
        acceptor._accept()
        assert len(taken) == ACCEPTS_PER_TURN
        acceptor._accept()
        assert len(taken) == ACCEPTS_PER_TURN + 10
        acceptor.close()
        for each in [*sockets, *taken]:
            each.close()

    run(main())


class Failing:
    """A listening socket on which accept(2) fails as it is told."""

    def __init__(self, acceptor: Acceptor) -> None:
        self.real = acceptor._socket
        self.errors: list[int] = []
        self.calls = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.calls += 1
        if self.errors:
            error = self.errors.pop(0)
            raise OSError(error, os.strerror(error))
        return self.real.accept()

    def listen(self, backlog: int) -> None:
        self.real.listen(backlog)

    def getsockname(self) -> object:
        return self.real.getsockname()

    def fileno(self) -> int:
        return self.real.fileno()

    def close(self) -> None:
        self.real.close()


async def failing(*errors: int) -> tuple[Acceptor, Failing, list[socket.socket], asyncio.Event]:
    (acceptor,) = await bind("127.0.0.1", 0, 10)
    taken: list[socket.socket] = []
    came = asyncio.Event()

    def welcome(client: socket.socket, _: object) -> None:
        taken.append(client)
        came.set()

    fails = Failing(acceptor)
    fails.errors += errors
    acceptor._socket = fails  # type: ignore[assignment]
    acceptor.start(welcome)
    return acceptor, fails, taken, came


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_without_descriptors_nobody_spins_and_who_waits_comes_in_later(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.broker.network.accepting.BACK_OFF_SECONDS", 0.05)

    async def main() -> None:
        acceptor, fails, taken, came = await failing(errno.EMFILE, errno.ENFILE)
        with socket.create_connection(("127.0.0.1", acceptor.port)):
            await came.wait()
        assert fails.calls <= 4
        assert len(taken) == 1
        assert "Too many open files" in caplog.text
        acceptor.close()
        taken[0].close()

    run(main(), loop_factory)


def test_one_that_went_before_it_was_accepted_does_not_hold_up_the_next() -> None:
    async def main() -> None:
        acceptor, fails, taken, came = await failing(errno.ECONNABORTED)
        with socket.create_connection(("127.0.0.1", acceptor.port)):
            await came.wait()
        assert fails.calls == 3
        acceptor.close()
        taken[0].close()

    run(main())


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_listener_that_closes_while_it_backs_off_never_looks_again(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.network.accepting.BACK_OFF_SECONDS", 0.01)

    async def main() -> None:
        acceptor, fails, _, _ = await failing(errno.EMFILE)
        with socket.create_connection(("127.0.0.1", acceptor.port)):
            acceptor._accept()
            acceptor.close()
            await asyncio.sleep(0.03)
        assert fails.calls == 1

    run(main(), loop_factory)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_server_that_stops_while_a_crowd_is_let_in_leaves_nobody_behind(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        server = NetworkServer()
        port = await server.bind("PLAINTEXT", "127.0.0.1", 0, ROUTES)
        await server.start()
        sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        for acceptor, _ in server._acceptors:
            acceptor._accept()
        assert server.connection_count == ACCEPTS_PER_TURN
        await server.stop()  # accepted and not made, and not accepted
        assert server.connection_count == 0
        for each in sockets:
            with each:
                each.settimeout(5)
                try:
                    assert each.recv(1) == b""
                except ConnectionResetError:
                    continue
        again = NetworkServer()
        assert await again.bind("PLAINTEXT", "127.0.0.1", port, ROUTES) == port
        await again.stop()

    run(main(), loop_factory)
    gc.collect()  # a descriptor closed twice would be told of here


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_clients_that_are_gone_before_they_are_let_in_are_not_counted(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        async with serving() as site:
            for _ in range(50):
                client = socket.create_connection(("127.0.0.1", site.port))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                client.close()  # with a reset
            stays = await site.connect()
            assert await stays.exchange(b"x") == b"x"
            async with asyncio.timeout(5):
                while site.server.connection_count > 1:
                    assert await stays.exchange(b"y") == b"y"
            counters = site.server.counters[0]
            assert counters.accepted - counters.closed == 1

    run(main(), loop_factory)


def test_a_stop_takes_no_socket_from_under_who_is_being_let_in() -> None:
    """The loop would close it and tell the connection nothing: its answer failed, and the stop with it."""
    outcomes: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        is_made, goes_on = asyncio.Event(), asyncio.Event()
        let_in = loop.connect_accepted_socket

        async def slowly(*args: Any) -> Any:
            made = await let_in(*args)
            is_made.set()
            try:
                await goes_on.wait()
            except asyncio.CancelledError:
                outcomes.append("cancelled")
                raise
            outcomes.append("let in")
            return made

        loop.connect_accepted_socket = slowly  # type: ignore[assignment, method-assign]  # of this loop
        site = Site(None)
        await site.start()
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        await is_made.wait()
        stopping = asyncio.ensure_future(site.server.stop())
        loop.call_soon(goes_on.set)
        await stopping
        writer.close()
        await site.stop()

    run(main(), asyncio.new_event_loop)
    assert outcomes == ["let in"]


def test_nobody_is_kept_in_memory_who_is_gone() -> None:
    async def main() -> None:
        async with serving() as site:
            for _ in range(20):
                client = await site.connect()
                assert await client.exchange(b"x") == b"x"
                await client.close()
            stays = await site.connect()
            server = site.server
            while len(server._visitors) != 1 or server._coming:
                assert await stays.exchange(b"y") == b"y"
            assert len(server._admitted) == 1

    run(main(), uvloop.new_event_loop)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_who_shuts_down_its_half_after_a_request_is_answered_and_closed(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        async with serving() as site:
            client: Client = await site.connect()
            client.writer.write(frame(ECHO, b"last words"))
            client.writer.write_eof()
            assert (await client.rest()).endswith(b"last words")

    run(main(), loop_factory)
