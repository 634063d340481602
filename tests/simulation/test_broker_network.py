"""The production connection layer on the simulated loop: cut, delayed and reordered as the seed likes."""

import asyncio
import contextlib
import errno
import struct
from functools import partial

import pytest

from ottla.broker.network.accepting import BACK_OFF_SECONDS
from ottla.broker.network.limits import ConnectionLimits, ServerLimits
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route, RouteTable
from ottla.broker.network.server import NetworkServer
from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.headers import encode_request_header
from ottla.runtime.host import Host
from ottla.runtime.simulation.listener import SimulatedListener
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.node import SimulatedNode
from ottla.runtime.simulation.run import simulate

METADATA = BY_NAME["Metadata"].key
TINY = ServerLimits(connection=ConnectionLimits(in_flight_max=4, unsent_bytes_max=20_000, write_buffer_bytes=5_000))


class Broker:
    """Answers with the request's own body, some of them after a while."""

    def __init__(self, loop: SimulationLoop, limits: ServerLimits = TINY) -> None:
        self._rng = loop.rng("delays")
        self._limits = limits
        self.dropped = 0
        self.server: NetworkServer | None = None
        self.node: SimulatedNode = loop.create_node("broker")
        self.node.start(self._main)

    async def _main(self, host: Host) -> None:
        self.server = NetworkServer(self._limits)
        await self.server.bind("PLAINTEXT", "broker", 9092, RouteTable([Route(METADATA, 0, 13, self._handle)]))
        await self.server.start()
        await asyncio.Event().wait()

    def _handle(self, request: RequestContext, frame: memoryview, position: int) -> None:
        body = bytes(frame[position:])
        if body.startswith(b"never"):
            request.on_close(self._drop)
        elif self._rng.random() < 0.5:
            request.respond([body[:100], body[100:]])
        else:
            asyncio.get_running_loop().call_later(self._rng.random() * 0.05, partial(request.respond, [body]))

    def _drop(self) -> None:
        self.dropped += 1


def frame(number: int, body: bytes) -> bytes:
    payload = encode_request_header(METADATA, 4, number, "client") + body
    return struct.pack(">i", len(payload)) + payload


async def converse(loop: SimulationLoop, name: int, count: int) -> list[int]:
    """Sends everything at once, reads slowly, and checks that the answers are those of the requests, in order."""
    rng = loop.rng(f"client {name}")
    bodies = [rng.randbytes(rng.choice((0, 50, 3_000, 40_000))) for _ in range(count)]
    reader, writer = await asyncio.open_connection("broker", 9092, limit=2_000)
    writer.write(b"".join(frame(number, body) for number, body in enumerate(bodies)))
    seen = []
    for body in bodies:
        if rng.random() < 0.2:
            await asyncio.sleep(rng.random() * 0.2)
        size, number = struct.unpack(">ii", await reader.readexactly(8))
        assert await reader.readexactly(size - 4) == body
        seen.append(number)
    writer.close()
    return seen


@pytest.mark.parametrize("seed", range(5))
def test_answers_come_in_order_whatever_waits(seed: int) -> None:
    async def program(loop: SimulationLoop) -> None:
        Broker(loop)
        await asyncio.sleep(0.01)
        seen = await asyncio.gather(*(converse(loop, name, 40) for name in range(4)))
        assert seen == [list(range(40))] * 4

    simulate(program, seed)


def test_requests_of_a_client_that_dies_are_dropped() -> None:
    async def program(loop: SimulationLoop) -> None:
        broker = Broker(loop)
        await asyncio.sleep(0.01)

        async def client(host: Host) -> None:
            _, writer = await asyncio.open_connection("broker", 9092)
            writer.write(frame(1, b"never") + frame(2, b"never too"))
            await asyncio.Event().wait()

        node = loop.create_node("client")
        node.start(client)
        await asyncio.sleep(1)
        assert broker.dropped == 0
        node.kill()
        await asyncio.sleep(1)
        assert broker.dropped == 2
        assert broker.server is not None
        assert broker.server.connection_count == 0

    simulate(program, 1)


def test_idle_clients_are_closed_after_their_time_and_not_before() -> None:
    async def program(loop: SimulationLoop) -> None:
        Broker(loop, ServerLimits(idle_ms_max=600_000))
        await asyncio.sleep(0.01)
        idle, idle_writer = await asyncio.open_connection("broker", 9092)
        waiting, waiting_writer = await asyncio.open_connection("broker", 9092)
        waiting_writer.write(frame(1, b"never"))
        start = loop.time()
        assert await idle.read() == b""
        assert 600 <= loop.time() - start <= 660
        await asyncio.sleep(3600)
        assert not waiting.at_eof()  # it has an answer coming
        idle_writer.close()
        waiting_writer.close()

    simulate(program, 1, limit_s=10_000)


@pytest.mark.parametrize("how", ["sends no more", "reads no more"])
def test_who_fills_the_memory_and_does_nothing_is_closed_and_nobody_waits_meanwhile(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Twenty clients that hold all there is, and others beside them."""

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if how == "sends no more":
            writer.write(struct.pack(">i", 50_000_000) + bytes(1_000_000))
        else:
            writer.write(b"".join(frame(number, bytes(900_000)) for number in range(30)))
        with contextlib.suppress(OSError):
            await writer.drain()

    async def program(loop: SimulationLoop) -> float:
        broker = Broker(loop, ServerLimits(memory_bytes_max=10_000_000))
        await asyncio.sleep(0.01)
        holders = [await asyncio.open_connection("broker", 9092, limit=100) for _ in range(20)]
        holding = [asyncio.ensure_future(hold(*streams)) for streams in holders]
        await asyncio.sleep(0.5)
        assert broker.server is not None
        budget = broker.server.budget
        assert budget.is_full
        assert budget.used < 10_000_000 + 10_000_000 // 4 + 20 * 900_000, "and an answer more each, at most"
        began = loop.time()
        assert await converse(loop, 1, 5) == list(range(5))
        took = loop.time() - began
        await asyncio.sleep(30)
        assert not budget.is_full
        assert await converse(loop, 2, 40) == list(range(40))
        for each in holding:
            each.cancel()
        for _, writer in holders:
            writer.close()
        return took

    assert simulate(program, 1) < 6
    told = [record.getMessage() for record in caplog.records if "queued.max.request.bytes" in record.getMessage()]
    assert 1 <= len(told) <= 6


def test_what_clients_do_not_take_is_counted_but_for_a_little() -> None:
    async def program(loop: SimulationLoop) -> None:
        broker = Broker(loop, ServerLimits(memory_bytes_max=50_000_000))
        await asyncio.sleep(0.01)
        clients = [await asyncio.open_connection("broker", 9092, limit=100) for _ in range(20)]
        sizes = [100 + 4_000 * number for number in range(20)]
        for size, (_, writer) in zip(sizes, clients, strict=True):
            writer.write(b"".join(frame(each, bytes(size)) for each in range(60)))
        await asyncio.sleep(5)
        assert broker.server is not None
        unsent = [connection._transport.get_write_buffer_size() for connection in broker.server._visitors]
        assert sum(unsent) > 500_000
        assert sum(unsent) - 20 * (16 << 10) <= broker.server.budget.used
        for size, (reader, writer) in zip(sizes, clients, strict=True):
            await reader.readexactly(60 * (size + 8))
            writer.close()
        await asyncio.sleep(1)
        assert broker.server.budget.used == 0

    simulate(program, 1)


def test_who_says_nothing_makes_room_for_who_comes_when_descriptors_are_used_up() -> None:
    async def program(loop: SimulationLoop) -> None:
        Broker(loop, ServerLimits(descriptors_max=3))
        await asyncio.sleep(0.01)
        busy, busy_writer = await asyncio.open_connection("broker", 9092)
        silent, silent_writer = await asyncio.open_connection("broker", 9092)
        waiting, waiting_writer = await asyncio.open_connection("broker", 9092)
        waiting_writer.write(frame(1, b"never"))
        early, early_writer = await asyncio.open_connection("broker", 9092)
        assert await early.read() == b"", "nobody was silent for long, and yet there was room"
        for number in range(10):
            await asyncio.sleep(8)
            busy_writer.write(frame(number, b"here"))
            await busy.readexactly(12)
        assert await converse(loop, 2, 5) == list(range(5))
        assert await silent.read() == b""
        assert not busy.at_eof()
        assert not waiting.at_eof()
        for writer in (busy_writer, silent_writer, waiting_writer, early_writer):
            writer.close()

    simulate(program, 1)


def test_a_broker_without_descriptors_lets_in_later_who_waits() -> None:
    async def program(loop: SimulationLoop) -> None:
        broker = Broker(loop)
        await asyncio.sleep(0.01)
        assert broker.server is not None
        listener = broker.server._acceptors[0][0]._socket
        assert isinstance(listener, SimulatedListener)
        listener.fail(errno.EMFILE, errno.ENOMEM)
        began = loop.time()
        assert await converse(loop, 1, 5) == list(range(5))
        assert loop.time() - began >= 2 * BACK_OFF_SECONDS

    simulate(program, 1)
