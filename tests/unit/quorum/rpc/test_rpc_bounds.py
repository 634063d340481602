"""What somebody who floods, garbles or does not read may cost."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.proto import controller_pb2
from ottla.quorum.rpc.admission import DoorLimits
from ottla.quorum.rpc.gate import Gate, Visitor
from ottla.quorum.rpc.grpc_transport import _serve_stream
from ottla.quorum.rpc.stream_transport import StreamTransport
from ottla.quorum.rpc.transport import (
    OUTSTANDING_MAX,
)
from tests.unit.quorum.rpc.rpc_bench import (
    HANGS_S,
    SERVICE,
    Bench,
    Scenario,
    ask,
    echo,
    first_call_answered,
    heartbeat,
    until,
)


def test_too_many_calls_under_way_fail_the_next_one(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        replies: list[tuple[Any, Callable[[Any], None]]] = []
        channel = bench.channel((await bench.serve(lambda request, reply: replies.append((request, reply)))).port)
        await first_call_answered(channel, replies)
        broken = bench.broken
        answers = [ask(channel, 1) for _ in range(OUTSTANDING_MAX)]
        assert await ask(channel, 2) is None
        await until(lambda: len(replies) == OUTSTANDING_MAX)
        for each in replies:
            echo(*each)
        assert await asyncio.gather(*answers) == [1] * OUTSTANDING_MAX
        assert bench.broken == broken

    run(scenario)


def test_a_server_does_not_read_what_it_has_no_room_to_answer(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        replies: list[tuple[Any, Callable[[Any], None]]] = []
        server = await bench.serve(lambda request, reply: replies.append((request, reply)))
        channel = bench.channel(server.port)
        await first_call_answered(channel, replies)
        first = [ask(channel, 1, timeout_ms=1500) for _ in range(OUTSTANDING_MAX)]
        assert await asyncio.gather(*first) == [None] * OUTSTANDING_MAX  # forgotten by the client, not by the server
        await until(lambda: len(replies) == OUTSTANDING_MAX)  # a busy machine still delivers what was sent
        more = ask(channel, 5)
        await asyncio.sleep(0.05)
        assert len(replies) == OUTSTANDING_MAX
        for each in list(replies):
            echo(*each)
        await until(lambda: len(replies) > OUTSTANDING_MAX)
        echo(*replies[-1])
        assert await more == 5

    run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 4096, b"\xff" * 64, b"OTTLA/1 nonsense\n" + b"\xff" * 8],
    ids=["http", "zeros", "ones", "unknown service"],
)
def test_garbage_closes_its_own_connection_with_one_line(
    run: Callable[[Scenario], None], garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Bench) -> None:
        port = (await bench.serve(echo)).port
        channel = bench.channel(port)
        assert await ask(channel, 1) == 1
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(garbage)
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), HANGS_S)
        writer.close()
        assert await ask(channel, 2) == 2
        assert bench.broken == 0

    run(scenario)
    ours = [record for record in caplog.records if record.name.startswith("ottla.")]  # gRPC tells that a server stops
    assert len([record for record in ours if record.levelno == logging.WARNING]) == 1


def test_a_frame_that_is_too_long_is_refused_before_it_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bench = Bench(StreamTransport())
        server = await bench.serve(echo)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"OTTLA/1 ottla.controller.Controller\n" + (2**31).to_bytes(4, "big") + b"x")
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), HANGS_S) == b""
        writer.close()
        await bench.close()

    asyncio.run(scenario())
    assert "a message of 2147483648 bytes is too long" in caplog.text


class Unread:
    """The context of a gRPC stream whose client sends and sends, and reads nothing."""

    def __init__(self) -> None:
        self.requests = 0

    def peer(self) -> str:
        return "somebody"

    async def send_initial_metadata(self, metadata: object) -> None: ...

    async def read(self) -> bytes:
        self.requests += 1
        await asyncio.sleep(0)
        return bytes(heartbeat(1).SerializeToString())

    async def write(self, data: bytes) -> None:
        await asyncio.Event().wait()


def test_a_grpc_client_that_reads_no_replies_is_not_read_from_for_ever() -> None:
    """Each reply left the session's count when it was handed over: memory was the only bound."""

    def answer(request: Any, reply: Callable[[Any], None]) -> None:
        reply(controller_pb2.ControllerResponse(error_message="x" * (1 << 20)))

    async def scenario() -> None:
        context: Any = Unread()
        gate = Gate(DoorLimits())
        serving = asyncio.ensure_future(_serve_stream(SERVICE, answer, context, Visitor(gate, "1")))
        for _ in range(200):
            await asyncio.sleep(0)
        assert 4 <= context.requests <= 8
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        await gate.close()

    asyncio.run(scenario())
