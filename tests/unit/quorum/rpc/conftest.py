"""The transports, one test each."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from ottla.quorum.rpc.grpc_transport import GrpcTransport
from ottla.quorum.rpc.stream_transport import StreamTransport
from tests.unit.quorum.rpc.rpc_bench import HANGS_S, Bench, Scenario

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
