"""Voter changes that an administrator asks for, of any node: whoever leads the quorum decides."""

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.proto import quorum_pb2 as pb
from ottla.quorum import messages_proto
from ottla.quorum.batches import parse_batches
from ottla.quorum.peers import Peers
from ottla.quorum.raft.events import Event, RequestReceived
from ottla.quorum.raft.messages import AddVoterRequest, RemoveVoterRequest, Request, VoterChangeResponse
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.voters import Endpoint, ReplicaKey
from ottla.quorum.rpc.transport import RpcTransport
from ottla.quorum.voter_probe import Complaint, probe
from ottla.runtime.errors import ErrorCode

OnChanged = Callable[[VoterChangeResponse], None]

NO_ANSWER = "the quorum's leader did not answer in time: the voters may have changed or not, see ottla quorum describe"


class VoterChanges:
    """Asks the local core when this node leads (or nobody is known to), else the leader. Each ``on_done`` is called once."""

    def __init__(
        self, state: RaftState, peers: Peers, transport: RpcTransport, handle: Callable[[Event], None]
    ) -> None:
        self._state = state
        self._peers = peers
        self._transport = transport
        self._handle = handle

    def decide(self, request: Request, reply: Callable[[pb.QuorumResponse], None]) -> None:
        """A request that came to this node. A leader first looks whether a new voter can be reached."""
        if not isinstance(request, AddVoterRequest) or not isinstance(self._state.role, Leader):
            self._handle(RequestReceived(request, reply))
            return

        def probed(complaint: Complaint | None) -> None:
            if complaint is None:
                self._handle(RequestReceived(request, reply))
                return
            error, message = complaint
            response = VoterChangeResponse(message=message, **self._state.response_fields(error))
            reply(messages_proto.response_to_proto(response))

        probe(self._transport, request, probed)

    def add(
        self,
        voter: ReplicaKey,
        endpoint: Endpoint,
        on_done: OnChanged,
        timeout_ms: int,
        *,
        wait_for_commit: bool = True,
    ) -> None:
        """Lets a controller that follows the log vote. The response's ``error`` says why not (``message``: and what to do):
        NOT_LEADER_OR_FOLLOWER, DUPLICATE_VOTER, INVALID_REQUEST (a plain broker), INVALID_VOTER_KEY (another listens
        there), REQUEST_TIMED_OUT (not caught up, not reached, another change under way, or no answer)."""
        fields = self._fields()
        request = AddVoterRequest(voter=voter, endpoint=endpoint, ack_when_committed=wait_for_commit, **fields)
        self._ask(request, on_done, timeout_ms)

    def remove(self, voter: ReplicaKey, on_done: OnChanged, timeout_ms: int) -> None:
        """Takes a voter's vote away, be it the leader's own. VOTER_NOT_FOUND besides what `add` answers."""
        self._ask(RemoveVoterRequest(voter=voter, **self._fields()), on_done, timeout_ms)

    def _fields(self) -> dict[str, Any]:
        state = self._state
        return {"cluster_id": state.settings.cluster_id, "epoch": state.epoch, "sender": state.key}

    def _ask(self, request: Request, on_done: OnChanged, timeout_ms: int) -> None:
        state = self._state
        leader, endpoint = state.known_leader_id, state.leader_endpoint()
        answer = _Once(lambda message: on_done(self._read(message)))
        if leader is None or leader == state.key.id or endpoint is None:
            asyncio.get_running_loop().call_later(timeout_ms / 1000, answer, None)
            self.decide(request, answer)
        else:
            self._peers.call(leader, endpoint, messages_proto.request_to_proto(request), answer, timeout_ms)

    def _read(self, message: pb.QuorumResponse | None) -> VoterChangeResponse:
        if message is not None:
            response = messages_proto.response_from_proto(message, parse_batches)
            assert isinstance(response, VoterChangeResponse)
            return response
        return VoterChangeResponse(error=ErrorCode.REQUEST_TIMED_OUT, epoch=self._state.epoch, message=NO_ANSWER)


class _Once:
    """The first answer counts: the core's, or the timer's."""

    def __init__(self, on_done: Callable[[pb.QuorumResponse | None], None]) -> None:
        self._on_done: Callable[[pb.QuorumResponse | None], None] | None = on_done

    def __call__(self, message: pb.QuorumResponse | None) -> None:
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(message)
