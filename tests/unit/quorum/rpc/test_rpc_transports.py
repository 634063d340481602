"""What `RpcTransport` promises, held against both of its implementations over real sockets."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from ottla.proto import controller_pb2
from ottla.quorum.rpc.admission import DoorLimits
from ottla.quorum.rpc.gate import Gate, Visitor
from ottla.quorum.rpc.grpc_transport import GrpcTransport, _serve_stream
from ottla.quorum.rpc.stream_transport import StreamTransport
from ottla.quorum.rpc.transport import (
    OUTSTANDING_MAX,
    Handler,
    PerConnection,
    Request,
    RpcChannel,
    RpcServer,
    RpcTransport,
    Service,
)
from ottla.runtime.settings.endpoints import Endpoint

SERVICE = Service("ottla.controller.Controller", controller_pb2.ControllerRequest, controller_pb2.ControllerResponse)
OTHER = Service("ottla.other.Other", controller_pb2.ControllerRequest, controller_pb2.ControllerResponse)

Scenario = Callable[["Bench"], Awaitable[None]]


class Bench:
    """A transport, what was made with it, and how often its channels broke."""

    def __init__(self, transport: RpcTransport) -> None:
        self.transport = transport
        self.channels: list[RpcChannel] = []
        self.servers: list[RpcServer] = []
        self.broken = 0

    async def serve(self, handler: Handler, port: int = 0) -> RpcServer:
        server = await self.transport.serve("127.0.0.1", port, {SERVICE: handler})
        self.servers.append(server)
        return server

    def channel(self, port: int, service: Service = SERVICE) -> RpcChannel:
        def on_broken() -> None:
            self.broken += 1

        channel = self.transport.channel("127.0.0.1", port, service, on_broken)
        self.channels.append(channel)
        return channel

    async def close(self) -> None:
        for channel in self.channels:
            channel.close()
        for server in self.servers:
            await server.close()
        await self.transport.close()


HANGS_S = 120
"""A scenario that takes as long hangs; on a busy machine one with a thousand calls has taken 20 s."""

ON_EVERY_LOOP = [
    pytest.param((GrpcTransport, asyncio.new_event_loop), id="grpc"),
    pytest.param((GrpcTransport, uvloop.new_event_loop), id="grpc on uvloop"),
    pytest.param((StreamTransport, asyncio.new_event_loop), id="streams"),
    pytest.param((StreamTransport, uvloop.new_event_loop), id="streams on uvloop"),
]


@pytest.fixture(params=ON_EVERY_LOOP)
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    make_transport, new_loop = request.param

    async def play(scenario: Scenario) -> None:
        bench = Bench(make_transport())
        try:
            await bench.transport.prepare("a cluster")
            await asyncio.wait_for(scenario(bench), HANGS_S)
        finally:
            await bench.close()

    def run_on_its_loop(scenario: Scenario) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(play(scenario))

    return run_on_its_loop


def heartbeat(broker_id: int) -> Request:
    body = controller_pb2.BrokerHeartbeatRequest(broker_id=broker_id)
    return controller_pb2.ControllerRequest(broker_heartbeat=body)


def echo(request: Any, reply: Callable[[Any], None]) -> None:
    reply(controller_pb2.ControllerResponse(error_code=request.broker_heartbeat.broker_id))


def ask(channel: RpcChannel, number: int, timeout_ms: int = HANGS_S * 500) -> "asyncio.Future[int | None]":
    answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def on_done(response: Any) -> None:
        answer.set_result(None if response is None else response.error_code)

    channel.call(heartbeat(number), on_done, timeout_ms)
    return answer


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is a socket's doing
        await asyncio.sleep(0.001)


async def first_call_answered(channel: RpcChannel, replies: list[tuple[Any, Callable[[Any], None]]]) -> None:
    """The link is open then. On a busy machine an attempt may take longer than a channel waits; then all its calls fail."""
    answer = ask(channel, 1)
    while not replies:
        if answer.done():
            answer = ask(channel, 1)
        await asyncio.sleep(0.001)
    echo(*replies.pop())
    await answer


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_call_gets_its_response(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        channel = bench.channel((await bench.serve(echo)).port)
        assert await asyncio.gather(*(ask(channel, number) for number in range(1, 50))) == list(range(1, 50))

    run(scenario)


def test_grpc_takes_the_detour_to_a_peer() -> None:
    async def run() -> int | None:
        bench = Bench(GrpcTransport())
        await bench.transport.prepare("a cluster")
        server = await bench.serve(echo)
        elsewhere = Bench(GrpcTransport(detours={Endpoint("127.0.0.1", 1): Endpoint("127.0.0.1", server.port)}))
        await elsewhere.transport.prepare("a cluster")
        answer = await ask(elsewhere.channel(1), 7)
        await elsewhere.close()
        await bench.close()
        return answer

    assert asyncio.run(run()) == 7


def test_replies_find_their_calls_in_any_order(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        waiting: list[tuple[Any, Callable[[Any], None]]] = []

        def answer_backwards(request: Any, reply: Callable[[Any], None]) -> None:
            waiting.append((request, reply))
            if len(waiting) == 3:
                for each, its_reply in reversed(waiting):
                    echo(each, its_reply)

        channel = bench.channel((await bench.serve(answer_backwards)).port)
        assert await asyncio.gather(*(ask(channel, number) for number in (1, 2, 3))) == [1, 2, 3]

    run(scenario)


def test_a_second_reply_is_dropped(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        def echo_twice(request: Any, reply: Callable[[Any], None]) -> None:
            echo(request, reply)
            reply(controller_pb2.ControllerResponse(error_code=99))

        channel = bench.channel((await bench.serve(echo_twice)).port)
        assert [await ask(channel, 1), await ask(channel, 2)] == [1, 2]

    run(scenario)


def test_a_large_message_arrives_whole(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        def return_origin(request: Any, reply: Callable[[Any], None]) -> None:
            reply(controller_pb2.ControllerResponse(error_code=1, error_message=request.origin))

        channel = bench.channel((await bench.serve(return_origin)).port)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        text = "x" * (17 * 1024 * 1024)
        channel.call(controller_pb2.ControllerRequest(origin=text), answer.set_result, 15_000)
        assert (await answer).error_message == text

    run(scenario)


def test_silence_ends_a_call_at_its_timeout_and_breaks_nothing(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        late: list[tuple[Any, Callable[[Any], None]]] = []

        def answer_only_twos(request: Any, reply: Callable[[Any], None]) -> None:
            late.append((request, reply))
            if request.broker_heartbeat.broker_id == 2:
                echo(request, reply)

        channel = bench.channel((await bench.serve(answer_only_twos)).port)
        assert await ask(channel, 2) == 2
        assert await ask(channel, 1, timeout_ms=20) is None
        echo(*late[1])  # too late: must not be taken for another call's answer
        assert await ask(channel, 2) == 2
        assert bench.broken == 0

    run(scenario)


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


def test_a_handler_that_fails_closes_that_connection_only(
    run: Callable[[Scenario], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Bench) -> None:
        def fail_on_ones(request: Any, reply: Callable[[Any], None]) -> None:
            if request.broker_heartbeat.broker_id == 1:
                raise RuntimeError("planted")
            echo(request, reply)

        port = (await bench.serve(fail_on_ones)).port
        good, bad = bench.channel(port), bench.channel(port)
        assert await ask(good, 2) == 2
        assert await ask(bad, 1) is None
        assert await ask(good, 3) == 3
        assert bench.broken == 1

    run(scenario)
    # Ours: on a busy machine gRPC's thread may still tell the loop of the test before, which is closed.
    ours = [record for record in caplog.records if record.name.startswith("ottla.")]
    errors = [record for record in ours if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "Controller failed" in errors[0].getMessage()


def test_an_unknown_service_is_refused(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        channel = bench.channel((await bench.serve(echo)).port, OTHER)
        assert await ask(channel, 1) is None
        assert bench.broken == 1

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
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


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
