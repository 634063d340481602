"""What `RpcTransport` promises, held against both of its implementations over real sockets."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.proto import controller_pb2
from ottla.quorum.rpc.grpc_transport import GrpcTransport
from ottla.runtime.settings.endpoints import Endpoint
from tests.unit.quorum.rpc.rpc_bench import OTHER, Bench, Scenario, ask, echo


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
