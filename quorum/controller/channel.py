"""How a broker reaches the active controller: whoever leads the quorum, this very process included.

A call is tried until it is answered or its time is over: NOT_CONTROLLER, a broken stream and an unknown leader all mean
"again, a moment later". The controller's commands are idempotent or fenced by epochs, so that trying twice is safe.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Protocol

from ottla.proto import controller_pb2 as pb
from ottla.quorum.listener import LeaderAndEpoch
from ottla.quorum.peers import Peers
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.rpc.transport import RpcTransport, Service
from ottla.runtime.errors import ErrorCode

CONTROLLER_SERVICE = Service("ottla.controller.Controller", pb.ControllerRequest, pb.ControllerResponse)

RETRY_MS = 10
RETRY_MAX_MS = 100
ATTEMPT_TIMEOUT_MS = 5000

OnDone = Callable[[pb.ControllerResponse | None], None]
LocalHandler = Callable[[pb.ControllerRequest, Callable[[pb.ControllerResponse], None]], None]


class LeaderView(Protocol):
    """The part of `QuorumNode` used here."""

    node_id: int

    @property
    def leader(self) -> LeaderAndEpoch: ...


class ControllerChannel:
    """Calls to the active controller. ``local`` answers when this node is it; None on a plain broker."""

    def __init__(
        self,
        quorum: LeaderView,
        transport: RpcTransport,
        endpoint_of: Callable[[int], Endpoint | None],
        local: LocalHandler | None,
        rng: Random | None = None,
        on_broken: Callable[[], None] | None = None,
    ) -> None:
        """``endpoint_of``: where a controller listens now, which may change. ``rng``: for ids by which the controller knows
        the attempts of one call; without it, a call whose answer was lost may be told that it comes too late. ``on_broken`` is told when the
        connection to the active controller broke or was refused. A broker that lives sends a heartbeat then, for to the
        controller a broken connection is a sign of death."""
        self._quorum = quorum
        self._peers = Peers(transport, self._broken, CONTROLLER_SERVICE)
        self._endpoint_of = endpoint_of
        self._local = local
        self._rng = rng
        self._calls: dict[_Call, None] = {}
        self.closed = False
        self._on_broken = on_broken

    async def call(self, request: pb.ControllerRequest, timeout_ms: int) -> pb.ControllerResponse | None:
        """The answer, or None when there was none in time."""
        done: asyncio.Future[pb.ControllerResponse | None] = asyncio.get_running_loop().create_future()
        self.call_back(request, lambda response: None if done.done() else done.set_result(response), timeout_ms)
        return await done

    def call_back(self, request: pb.ControllerRequest, on_done: OnDone, timeout_ms: int) -> None:
        """Calls ``on_done`` once, on the loop: with the answer, or with None when there was none in time."""
        loop = asyncio.get_running_loop()
        if self.closed:
            loop.call_soon(on_done, None)
            return
        if self._rng is not None and request.WhichOneof("body") != "broker_heartbeat":
            request.request_id = self._rng.randbytes(8)
        call = _Call(self, loop, request, on_done, loop.time() + timeout_ms / 1000)
        self._calls[call] = None
        call.attempt()

    def leader_changed(self) -> None:
        """Somebody else leads, or this node does: calls that wait for an answer of the old controller, which may hang, or
        for their next attempt, go to the new one at once."""
        leader = self._quorum.leader.leader_id
        if leader is not None:
            for call in list(self._calls):
                call.redirect(leader)

    def close(self) -> None:
        """Ends all calls with None."""
        self.closed = True
        for call in list(self._calls):
            call.finish(None)
        self._peers.close()

    def forget(self, call: "_Call") -> None:
        self._calls.pop(call, None)

    def send(self, request: pb.ControllerRequest, on_done: OnDone, timeout_ms: int) -> int | None:
        """One attempt; answers to whom. None when nobody is known to be the controller."""
        leader = self._quorum.leader.leader_id
        if leader == self._quorum.node_id and self._local is not None:
            # A copy, and a turn of the loop later, as it would be over the network: the caller may change its request.
            copy = pb.ControllerRequest.FromString(request.SerializeToString())
            asyncio.get_running_loop().call_soon(self._local, copy, on_done)
            return leader
        endpoint = None if leader is None else self._endpoint_of(leader)
        if leader is None or endpoint is None:
            return None
        self._peers.call(leader, endpoint, request, on_done, timeout_ms)
        return leader

    def _broken(self, controller_id: int) -> None:
        """The calls under way were failed by the channel; each decides for itself to try again."""
        if self._on_broken is not None and controller_id == self._quorum.leader.leader_id:
            self._on_broken()


class _Call:
    """One request until its answer."""

    __slots__ = (
        "_attempts",
        "_channel",
        "_deadline",
        "_loop",
        "_on_done",
        "_pause",
        "_request",
        "_sent_to",
        "_timer",
        "_turn",
    )

    def __init__(
        self,
        channel: ControllerChannel,
        loop: asyncio.AbstractEventLoop,
        request: pb.ControllerRequest,
        on_done: OnDone,
        deadline: float,
    ) -> None:
        self._channel = channel
        self._loop = loop
        self._request = request
        self._on_done: OnDone | None = on_done
        self._deadline = deadline
        self._attempts = 0
        self._turn = 0
        self._sent_to: int | None = None
        self._pause: asyncio.TimerHandle | None = None  # before the next attempt
        self._timer: asyncio.TimerHandle | None = loop.call_at(deadline, self.finish, None)

    def attempt(self) -> None:
        if self._on_done is None:
            return
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._turn += 1
        turn = self._turn
        left_ms = max(1, int((self._deadline - self._loop.time()) * 1000))
        self._sent_to = self._channel.send(
            self._request, lambda response: self._answered(turn, response), min(left_ms, ATTEMPT_TIMEOUT_MS)
        )
        if self._sent_to is None:
            self._again()

    def redirect(self, leader: int) -> None:
        """Tries again at once unless ``leader`` is being asked already."""
        if self._sent_to != leader:
            self._attempts = 0
            self.attempt()

    def _answered(self, turn: int, response: pb.ControllerResponse | None) -> None:
        """Answers of an attempt that was given up are ignored."""
        if self._on_done is None or turn != self._turn:
            return
        if response is None or response.error_code == ErrorCode.NOT_CONTROLLER:
            self._again()
        else:
            self.finish(response)

    def _again(self) -> None:
        self._sent_to = None
        pause_ms = min(RETRY_MS << min(self._attempts, 8), RETRY_MAX_MS)
        self._attempts += 1
        self._pause = self._loop.call_later(pause_ms / 1000, self.attempt)

    def finish(self, response: pb.ControllerResponse | None) -> None:
        on_done, self._on_done = self._on_done, None
        if on_done is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._channel.forget(self)
        on_done(response)
