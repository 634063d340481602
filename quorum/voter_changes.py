"""Voter changes that an administrator asks for, of any node: whoever leads the quorum decides."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from ottla.proto import quorum_pb2 as pb
from ottla.quorum import messages_proto
from ottla.quorum.batches import parse_batches
from ottla.quorum.peers import Peers
from ottla.quorum.raft.events import Event, RequestReceived, UpgradeRequested
from ottla.quorum.raft.messages import AddVoterRequest, RemoveVoterRequest, Request, VoterChangeResponse
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.voters import VOTERS_IN_LOG, Endpoint, ReplicaKey
from ottla.quorum.rpc.transport import RpcTransport
from ottla.quorum.voter_probe import Complaint, probe
from ottla.runtime.errors import ErrorCode, KafkaError

OnChanged = Callable[[VoterChangeResponse], None]
OnAnswer = Callable[[pb.QuorumResponse | None], None]
Change = AddVoterRequest | RemoveVoterRequest
WhoCannotRead = Callable[[int, int], str | None]

RETRY_MS = 10
RETRY_MAX_MS = 200
ATTEMPT_TIMEOUT_MS = 5000
SETTLE_MS = 5000

NO_ANSWER = "the quorum's leader did not answer in time: the voters may have changed or not, see ottla quorum describe"


def _everybody_reads(_level: int, _leaving: int) -> None:
    return None


class VoterChanges:
    """Asks the local core when this node leads, else the leader, until that has decided. Each ``on_done`` is called once.

    ``who_cannot_read``: given a level of kraft.version and a node that is about to leave (-1: none), who keeps the cluster from
    it and what to do; KafkaError while that cannot be said."""

    def __init__(
        self, state: RaftState, peers: Peers, transport: RpcTransport, handle: Callable[[Event], None]
    ) -> None:
        self._state = state
        self._peers = peers
        self._transport = transport
        self._handle = handle
        self.who_cannot_read: WhoCannotRead = _everybody_reads

    def decide(self, request: Request, reply: Callable[[pb.QuorumResponse], None]) -> None:
        """A request that came to this node. A leader first looks whether a new voter can be reached."""
        if not isinstance(request, AddVoterRequest) or not isinstance(self._state.role, Leader):
            self._decide_now(request, reply)
            return

        def probed(complaint: Complaint | None) -> None:
            if complaint is None:
                self._decide_now(request, reply)
            else:
                self._refuse(reply, *complaint)

        probe(self._transport, request, probed)

    def _decide_now(self, request: Request, reply: Callable[[pb.QuorumResponse], None]) -> None:
        """Before the first change of a static quorum everybody has to read what that writes."""
        if isinstance(request, AddVoterRequest | RemoveVoterRequest) and self._is_first_change:
            leaving = request.voter.id if isinstance(request, RemoveVoterRequest) else -1
            try:
                reason = self.who_cannot_read(VOTERS_IN_LOG, leaving)
            except KafkaError as error:
                self._refuse(reply, ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
                return
            if reason is not None:
                self._refuse(reply, ErrorCode.UNSUPPORTED_VERSION, reason)
                return
        self._handle(RequestReceived(request, reply))

    @property
    def _is_first_change(self) -> bool:
        state = self._state
        return isinstance(state.role, Leader) and state.voters.kraft_version < VOTERS_IN_LOG

    def _refuse(self, reply: Callable[[pb.QuorumResponse], None], error: ErrorCode, message: str) -> None:
        response = VoterChangeResponse(message=message, **self._state.response_fields(error))
        reply(messages_proto.response_to_proto(response))

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
        NOT_LEADER_OR_FOLLOWER (nobody led in time), DUPLICATE_VOTER, INVALID_REQUEST (a plain broker, or software too old),
        INVALID_VOTER_KEY (another listens there), UNSUPPORTED_VERSION (somebody does not read kraft.version 1),
        REQUEST_TIMED_OUT (not caught up, not reached, another change under way, or no answer)."""
        fields = self._fields()
        request = AddVoterRequest(voter=voter, endpoint=endpoint, ack_when_committed=wait_for_commit, **fields)
        self._ask(request, on_done, timeout_ms)

    def remove(self, voter: ReplicaKey, on_done: OnChanged, timeout_ms: int) -> None:
        """Takes a voter's vote away, be it the leader's own. VOTER_NOT_FOUND besides what `add` answers."""
        self._ask(RemoveVoterRequest(voter=voter, **self._fields()), on_done, timeout_ms)

    def upgrade(self, on_done: OnChanged, *, validate_only: bool) -> None:
        """On the leader: raises kraft.version to 1. NOT_LEADER_OR_FOLLOWER, INVALID_UPDATE_VERSION, REQUEST_TIMED_OUT."""
        self._handle(UpgradeRequested(lambda message: on_done(read(message)), validate_only))

    def _fields(self) -> dict[str, Any]:
        state = self._state
        return {"cluster_id": state.settings.cluster_id, "epoch": state.epoch, "sender": state.key}

    def _ask(self, request: Change, on_done: OnChanged, timeout_ms: int) -> None:
        _Call(self, request, on_done, timeout_ms).attempt()

    def send(self, request: Request, answer: OnAnswer, timeout_ms: int) -> bool:
        """One attempt, answered at most once. False: nobody is known to lead."""
        state = self._state
        leader, endpoint = state.known_leader_id, state.leader_endpoint()
        if leader is None or endpoint is None:
            return False
        if leader == state.key.id:
            self.decide(request, answer)
        else:
            self._peers.call(leader, endpoint, messages_proto.request_to_proto(request), answer, timeout_ms)
        return True

    def nobody_leads(self) -> VoterChangeResponse:
        fields = self._state.response_fields(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return VoterChangeResponse(message="nobody leads the quorum: most voters have to be there", **fields)

    def no_answer(self) -> VoterChangeResponse:
        return VoterChangeResponse(**self._state.response_fields(ErrorCode.REQUEST_TIMED_OUT), message=NO_ANSWER)


def read(message: pb.QuorumResponse) -> VoterChangeResponse:
    response = messages_proto.response_from_proto(message, parse_batches)
    assert isinstance(response, VoterChangeResponse)
    return response


class _Call:
    """One change until it is decided: elections, changes under way and starting nodes are waited for. A change whose fate is not known is asked
    for again as such, so that whoever asked is not told that it cannot be made because it was."""

    def __init__(self, changes: VoterChanges, request: Change, on_done: OnChanged, timeout_ms: int) -> None:
        self._changes = changes
        self._request = request
        self._on_done: OnChanged | None = on_done
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout_ms / 1000
        self._settled = self._loop.time() + SETTLE_MS / 1000
        self._timer = self._loop.call_at(self._deadline, self._give_up)
        self._attempts = 0
        self._refusal: VoterChangeResponse | None = None
        self._undecided = False

    def attempt(self) -> None:
        if self._on_done is None:
            return
        self._attempts += 1
        turn = self._attempts
        left_ms = max(1, int((self._deadline - self._loop.time()) * 1000))
        request = msgspec.structs.replace(self._request, asked_before=self._undecided)
        if not self._changes.send(
            request, lambda message: self._answered(turn, message), min(left_ms, ATTEMPT_TIMEOUT_MS)
        ):
            self._refusal = self._changes.nobody_leads()
            self._again()

    def _answered(self, turn: int, message: pb.QuorumResponse | None) -> None:
        """Answers of an attempt that was given up are ignored."""
        if turn != self._attempts:
            return
        response = None if message is None else read(message)
        self._undecided |= response is None or response.undecided
        if response is None or response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER or self._may_pass(response):
            self._refusal = response
            self._again()
        else:
            self._finish(response)

    def _may_pass(self, response: VoterChangeResponse) -> bool:
        """A node that was started a moment ago is not there yet; whoever mistyped its address does not want to wait long."""
        settling = response.error is ErrorCode.REQUEST_TIMED_OUT and self._loop.time() < self._settled
        return response.try_again or settling

    def _again(self) -> None:
        pause_ms = min(RETRY_MS << min(self._attempts, 8), RETRY_MAX_MS)
        self._loop.call_later(pause_ms / 1000, self.attempt)

    def _give_up(self) -> None:
        self._finish(self._changes.no_answer() if self._undecided or self._refusal is None else self._refusal)

    def _finish(self, response: VoterChangeResponse) -> None:
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            self._timer.cancel()
            on_done(response)
