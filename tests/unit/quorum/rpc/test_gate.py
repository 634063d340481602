"""What strangers can do at the controllers' door, with gRPC behind it. Real sockets."""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from ottla.proto import controller_pb2
from ottla.quorum.rpc.admission import UNKNOWN_BYTES_MAX, DoorLimits
from ottla.quorum.rpc.gate import _Pipe
from ottla.quorum.rpc.grpc_transport import GrpcTransport
from ottla.quorum.rpc.transport import RpcServer, Service

SERVICE = Service("ottla.controller.Controller", controller_pb2.ControllerRequest, controller_pb2.ControllerResponse)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ROOMY = DoorLimits(100, 100)


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


HEADERS = b"".join(
    literal(*each)
    for each in (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/ottla.controller.Controller/Exchange"),
        (b":authority", b"x"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    )
)
OPENING = PREFACE + frame(4, 0, 0) + frame(1, 4, 1, HEADERS)


class Bench:
    def __init__(self, limits: DoorLimits) -> None:
        self.nodes = GrpcTransport(limits)
        self.server: RpcServer
        self.broken = 0

    async def start(self) -> None:
        await self.nodes.prepare("own")
        self.server = await self.nodes.serve("127.0.0.1", 0, {SERVICE: echo})
        self.gate = self.server._gate  # type: ignore[attr-defined]  # as the transport made it
        self.gate.knock_s = 60.0
        self.channel = self.nodes.channel("127.0.0.1", self.server.port, SERVICE, self._note)

    def _note(self) -> None:
        self.broken += 1

    async def ask(self, size: int = 0) -> bool:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.channel.call(controller_pb2.ControllerRequest(origin="x" * size), answer.set_result, 10_000)
        return await answer is not None

    async def visit(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(data)
        return reader, writer

    async def close(self) -> None:
        self.channel.close()
        await self.server.close()
        await self.nodes.close()


def echo(request: Any, reply: Callable[[Any], None]) -> None:
    reply(controller_pb2.ControllerResponse(error_code=1))


def run(scenario: Callable[[Bench], Awaitable[None]], limits: DoorLimits = ROOMY) -> None:
    async def play() -> None:
        bench = Bench(limits)
        await bench.start()
        try:
            await asyncio.wait_for(scenario(bench), 60)
        finally:
            await bench.close()

    asyncio.run(play())


async def ends(reader: asyncio.StreamReader) -> None:
    """Returns when the other side has closed it."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is a socket's doing
        await asyncio.sleep(0.001)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("data", [b"", PREFACE[:5], PREFACE, PREFACE + frame(4, 0, 0), OPENING])
def test_who_says_nothing_for_long_is_gone_with_all_it_took(data: bytes) -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.ask()
        bench.gate.knock_s = 0.1  # from here on: on a busy machine that is too short for a node, too
        before = descriptors()
        visits = [await bench.visit(data) for _ in range(5)]
        for reader, writer in visits:
            await ends(reader)
            writer.close()
        await until(lambda: descriptors() <= before)
        await asyncio.sleep(0.2)
        assert await bench.ask()
        assert bench.broken == 0, "a node may be silent: it has said something"

    run(scenario)


def test_a_large_message_is_not_taken_from_who_has_not_shown_its_cluster(caplog: pytest.LogCaptureFixture) -> None:
    """Sixty that sent 31 MB but for a byte made a node hold 2 GB."""
    taken: list[int] = []

    async def scenario(bench: Bench) -> None:
        reader, writer = await bench.visit(OPENING)
        size = 31 << 20
        rest = b"\0" + size.to_bytes(4, "big")
        stream = 0
        with contextlib.suppress(ConnectionError):
            while stream < size:
                writer.write(frame(0, 0, 1, rest + bytes(16_000)))
                rest = b""
                stream += 16_000
                await writer.drain()
                await asyncio.sleep(0)
        taken.append(stream)
        await ends(reader)
        writer.close()
        assert await bench.ask(3 << 20), "a node's is"

    run(scenario)
    assert taken[0] < 31 << 20
    assert "has not shown to which cluster it belongs" in caplog.text
    assert UNKNOWN_BYTES_MAX < 1 << 20


def test_nodes_get_in_however_many_strangers_there_are() -> None:
    async def scenario(bench: Bench) -> None:
        strangers = [await bench.visit(PREFACE) for _ in range(8)]
        await until(lambda: len(bench.gate.admission) == 4)
        assert await bench.ask()
        strangers += [await bench.visit(PREFACE) for _ in range(20)]
        await ends(strangers[10][0])
        assert await bench.ask()
        assert bench.broken == 0, "it stays in"
        assert len(bench.gate.admission) <= 4
        for _, writer in strangers:
            writer.close()

    run(scenario, DoorLimits(in_all=4, per_address=4))


def told(caplog: pytest.LogCaptureFixture, level: int = logging.DEBUG) -> list[str]:
    """What we logged. gRPC has one poller a process, which may still call the closed loop of an earlier test, and asyncio tells that."""
    ours = [record for record in caplog.records if record.name.startswith("ottla.")]
    return [record.getMessage() for record in ours if record.levelno >= level]


def test_the_log_says_who_it_was_and_not_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    address = ""

    async def scenario(bench: Bench) -> None:
        nonlocal address
        for _ in range(9):
            reader, writer = await bench.visit(b"GET / HTTP/1.1\r\n\r\n")
            address = address or "{}:{}".format(*writer.get_extra_info("sockname"))
            await ends(reader)
            writer.close()
        reader, writer = await bench.visit(OPENING + frame(0, 0, 1, b"\0\0\0\0\2\xff\xff"))
        address += " {}:{}".format(*writer.get_extra_info("sockname"))
        await until(lambda: len(told(caplog)) == 5)
        writer.close()

    run(scenario)
    lines = told(caplog)
    first, second = address.split()
    assert len(lines) == 5, lines
    assert lines[0].startswith(f"{first}: closing the connection: not a gRPC client: it began with b'GET")
    assert "(8 times by now)" in lines[3]
    assert lines[4] == f"{second}: closing the connection: ottla.controller.Controller: not a request"


GARBAGE = (b"\0garbage", OPENING + frame(0, 0, 1, b"\0\0\0\0\2\xff\xff"))


@pytest.mark.parametrize("opening", GARBAGE, ids=["no gRPC", "no request"])
def test_who_sends_other_garbage_each_time_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, opening: bytes
) -> None:
    caplog.set_level(logging.DEBUG, "ottla.quorum.rpc")

    def lines(level: int) -> list[str]:
        found = told(caplog, level)
        return [line for line in found if "closing the connection" in line]

    async def scenario(bench: Bench) -> None:
        for number in range(8):
            data = bytes([0x80 + number]) + opening if opening is GARBAGE[0] else opening
            _, writer = await bench.visit(data)
            await until(lambda expected=number + 1: len(lines(logging.DEBUG)) == expected)  # type: ignore[misc]  # bound now
            writer.close()

    run(scenario)
    assert len(lines(logging.WARNING)) == 4, caplog.text


def test_who_comes_and_goes_is_no_news(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """At whatever moment it leaves."""
    caplog.set_level(logging.INFO)
    request = controller_pb2.ControllerRequest(origin="x").SerializeToString()
    message = frame(0, 0, 1, b"\0" + len(request).to_bytes(4, "big") + request)
    whole = OPENING + message * 20

    async def scenario(bench: Bench) -> None:
        for length in range(0, len(whole), 7):
            _, writer = await bench.visit(whole[:length])
            await asyncio.sleep(0.001 * (length % 4))
            writer.transport.abort() if length % 2 else writer.close()
        assert await bench.ask()
        await until(lambda: len(bench.gate.admission) == 1)

    run(scenario)
    assert told(caplog) == []
    assert "Traceback" not in capfd.readouterr().err


WITHOUT_DESCRIPTORS = """
import asyncio, os, resource, sys
from ottla.quorum.rpc.grpc_transport import GrpcTransport
from tests.unit.quorum.rpc.test_gate import PREFACE, SERVICE, echo
from ottla.proto import controller_pb2

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    transport = GrpcTransport()
    await transport.prepare("own")
    server = await transport.serve("127.0.0.1", 0, {SERVICE: echo})
    waiting = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(6)]
    await asyncio.sleep(0.05)
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for _, writer in waiting:
        writer.write(PREFACE)
    for reader, _ in waiting:
        await reader.read()
    for each in held:
        os.close(each)
    answer = asyncio.get_running_loop().create_future()
    transport.channel("127.0.0.1", server.port, SERVICE, lambda: None).call(
        controller_pb2.ControllerRequest(), answer.set_result, 5000)
    print("answered", (await answer) is not None, flush=True)
    os._exit(0)

asyncio.run(main())
"""


def test_without_descriptors_visitors_are_turned_away_and_later_ones_served() -> None:
    """gRPC used to start with the first of them, and aborted the process."""
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "answered True\n"), ran.stderr
    assert "cannot reach the gRPC server behind the gate" in ran.stderr


class ClosedTransport:
    """uvloop's, after the other end reset the connection and before the protocol was told."""

    def is_closing(self) -> bool:
        return True

    def write(self, _: bytes) -> None:
        raise RuntimeError("unable to perform operation: the handler is closed")


def test_what_comes_for_a_side_that_is_closed_already_is_dropped() -> None:
    one, other = _Pipe(), _Pipe()
    one.other, other.other = other, one
    other.connection_made(cast(asyncio.BaseTransport, ClosedTransport()))
    one.data_received(b"late")
