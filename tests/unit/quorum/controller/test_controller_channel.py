"""How a broker's calls reach the active controller, whoever that is at the moment."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from ottla.proto import controller_pb2 as pb
from ottla.quorum.controller.channel import ControllerChannel
from ottla.quorum.listener import LeaderAndEpoch
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.rpc.transport import Handler, PerConnection, RpcServer, Service, Stranger
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.loop import SimulationLoop

SELF = 1


class FakeQuorum:
    def __init__(self, leader: int | None) -> None:
        self.node_id = SELF
        self.leader = LeaderAndEpoch(leader, 1)


class FakeChannel:
    def __init__(self, answer: Callable[[pb.ControllerRequest], pb.ControllerResponse | None]) -> None:
        self.answer = answer
        self.requests: list[pb.ControllerRequest] = []
        self.closed = False

    def call(self, request: Any, on_done: Callable[[Any], None], timeout_ms: int) -> None:
        self.requests.append(pb.ControllerRequest.FromString(request.SerializeToString()))
        asyncio.get_running_loop().call_soon(on_done, self.answer(request))

    def close(self) -> None:
        self.closed = True


class FakeTransport:
    """Channels by port; each answers as its node would."""

    def __init__(self, *nodes: FakeChannel) -> None:
        self.nodes = nodes
        self.on_broken: dict[int, Callable[[], None]] = {}

    async def prepare(self, cluster_id: str) -> None: ...

    async def serve(
        self,
        host: str,
        port: int,
        handlers: Mapping[Service, Handler | PerConnection],
        stranger: Stranger | None = None,
    ) -> RpcServer:
        raise NotImplementedError

    def channel(self, host: str, port: int, service: Service, on_broken: Callable[[], None]) -> FakeChannel:
        self.on_broken[port] = on_broken
        return self.nodes[port]

    async def close(self) -> None: ...


CONTROLLERS = {1: Endpoint("h", 0), 2: Endpoint("h", 1), 3: Endpoint("h", 2)}.get


def done(_request: pb.ControllerRequest) -> pb.ControllerResponse:
    return pb.ControllerResponse(allocate_producer_ids=pb.AllocateProducerIdsResponse(producer_id_start=7))


def not_controller(_request: pb.ControllerRequest) -> pb.ControllerResponse:
    return pb.ControllerResponse(error_code=ErrorCode.NOT_CONTROLLER)


def allocate() -> pb.ControllerRequest:
    return pb.ControllerRequest(allocate_producer_ids=pb.AllocateProducerIdsRequest(broker_id=1))


def run(main: Callable[[], Any]) -> Any:
    """On a loop of virtual time: waiting costs nothing."""
    loop = SimulationLoop(1)
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def test_a_call_follows_the_leader_until_it_is_answered() -> None:
    async def main() -> None:
        quorum = FakeQuorum(2)
        second, third = FakeChannel(not_controller), FakeChannel(done)
        channel = ControllerChannel(
            quorum, FakeTransport(FakeChannel(done), second, third), CONTROLLERS, None, Random(1)
        )
        call = asyncio.ensure_future(channel.call(allocate(), 5_000))
        await asyncio.sleep(0.1)
        assert not call.done()
        quorum.leader = LeaderAndEpoch(3, 2)
        response = await call
        assert response is not None
        assert response.allocate_producer_ids.producer_id_start == 7
        ids = [each.request_id for each in (*second.requests, *third.requests)]
        assert len(ids) > 1
        assert len(ids[0]) == 8
        assert ids == [ids[0]] * len(ids), "all attempts of a call have one id"

    run(main)


def test_a_broken_stream_is_tried_again() -> None:
    async def main() -> None:
        answers = [None, None, done(allocate())]
        node = FakeChannel(lambda request: answers.pop(0))
        transport = FakeTransport(FakeChannel(done), node)
        response = await ControllerChannel(FakeQuorum(2), transport, CONTROLLERS, None).call(allocate(), 5_000)
        assert response is not None
        assert not node.requests[0].request_id

    run(main)


def test_without_a_leader_a_call_waits_and_gives_up_in_time() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        channel = ControllerChannel(FakeQuorum(None), FakeTransport(), CONTROLLERS, None)
        started = loop.time()
        assert await channel.call(allocate(), 700) is None
        assert 0.7 <= loop.time() - started < 0.8

    run(main)


def test_the_controller_in_this_process_is_called_without_a_network() -> None:
    async def main() -> None:
        asked: list[pb.ControllerRequest] = []

        def local(request: pb.ControllerRequest, reply: Callable[[pb.ControllerResponse], None]) -> None:
            asked.append(request)
            reply(done(request))

        request = allocate()
        channel = ControllerChannel(FakeQuorum(SELF), FakeTransport(), CONTROLLERS, local)
        assert await channel.call(request, 1_000) == done(request)
        assert asked == [request]
        assert asked[0] is not request, "the caller may change its own"

    run(main)


def test_only_the_leaders_broken_stream_is_told() -> None:
    async def main() -> None:
        told: list[None] = []
        quorum, transport = FakeQuorum(2), FakeTransport(*(FakeChannel(done) for _ in range(3)))
        channel = ControllerChannel(quorum, transport, CONTROLLERS, None, on_broken=lambda: told.append(None))
        await channel.call(allocate(), 1_000)
        transport.on_broken[1]()
        assert len(told) == 1
        quorum.leader = LeaderAndEpoch(3, 2)
        transport.on_broken[1]()
        assert len(told) == 1

    run(main)


def test_a_call_does_not_wait_for_a_controller_that_was_replaced() -> None:
    async def main() -> None:
        quorum, paused, third = FakeQuorum(2), FakeChannel(done), FakeChannel(done)
        paused.call = lambda *_: None  # type: ignore[method-assign]  # in the place of the real one
        channel = ControllerChannel(quorum, FakeTransport(FakeChannel(done), paused, third), CONTROLLERS, None)
        call = asyncio.ensure_future(channel.call(allocate(), 5_000))
        await asyncio.sleep(0.1)
        quorum.leader = LeaderAndEpoch(None, 2)
        channel.leader_changed()
        quorum.leader = LeaderAndEpoch(3, 2)
        channel.leader_changed()
        channel.leader_changed()
        started = asyncio.get_running_loop().time()
        assert await call is not None
        assert asyncio.get_running_loop().time() - started < 0.01
        assert len(third.requests) == 1

    run(main)


def test_a_call_between_two_attempts_goes_to_a_new_leader_at_once() -> None:
    async def main() -> None:
        loop, quorum, node = asyncio.get_running_loop(), FakeQuorum(None), FakeChannel(done)
        channel = ControllerChannel(quorum, FakeTransport(FakeChannel(done), node), CONTROLLERS, None)
        call = asyncio.ensure_future(channel.call(allocate(), 5_000))
        await asyncio.sleep(0.32)  # the pauses have grown to 100 ms
        quorum.leader = LeaderAndEpoch(2, 2)
        channel.leader_changed()
        told = loop.time()
        assert await call is not None
        assert loop.time() - told < 0.005
        await asyncio.sleep(0.2)
        assert len(node.requests) == 1, "the attempt that was planned is not made as well"

    run(main)


def test_closing_ends_all_calls() -> None:
    async def main() -> None:
        channel = ControllerChannel(FakeQuorum(None), FakeTransport(), CONTROLLERS, None)
        call = asyncio.ensure_future(channel.call(allocate(), 60_000))
        await asyncio.sleep(0)
        channel.close()
        assert await call is None
        assert await channel.call(allocate(), 60_000) is None

    run(main)


def test_a_controller_that_moved_is_called_where_it_listens_now() -> None:
    async def main() -> None:
        places = {2: Endpoint("h", 1)}
        before, after = FakeChannel(done), FakeChannel(done)
        channel = ControllerChannel(FakeQuorum(2), FakeTransport(FakeChannel(done), before, after), places.get, None)
        await channel.call(allocate(), 5_000)
        places[2] = Endpoint("h", 2)
        await channel.call(allocate(), 5_000)

        assert (len(before.requests), len(after.requests)) == (1, 1)
        assert before.closed

    run(main)
