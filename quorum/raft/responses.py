"""Answers: what every one of them teaches, before its kind matters (kraft.md 1.4)."""

from collections.abc import Callable

from ottla.quorum.raft import announcements, becoming, elections, fetching, membership, observing, rules, snapshots
from ottla.quorum.raft.events import ResponseReceived
from ottla.quorum.raft.instructions import Fault, FaultKind
from ottla.quorum.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
)
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.state import RaftState
from ottla.runtime.errors import ErrorCode

Handler = Callable[[RaftState, ResponseReceived], None]

HANDLERS: dict[type[Request], Handler] = {
    VoteRequest: elections.handle_vote_response,
    BeginQuorumEpochRequest: announcements.handle_begin_response,
    EndQuorumEpochRequest: announcements.handle_end_response,
    FetchRequest: fetching.handle_fetch_response,
    FetchSnapshotRequest: snapshots.handle_fetch_snapshot_response,
    AddVoterRequest: membership.handle_change_response,
    RemoveVoterRequest: membership.handle_change_response,
    UpdateVoterRequest: membership.handle_change_response,
}


def handle_response(state: RaftState, event: ResponseReceived) -> None:
    """Only the answer that is waited for is listened to: whatever an earlier role asked was forgotten with it."""
    request, response = event.request, event.response
    if not rules.answers_request(state.awaited(event.peer, request), request):
        return
    state.forget_request(event.peer, request)
    if response is None:
        state.back_off(event.peer)
        observing.note_outcome(state, event.peer, request, None)
        if isinstance(request, FetchSnapshotRequest):
            snapshots.note_failure(state)
        elections.hurry_if_hopeless(state)
        return
    role = state.role
    _learn(state, event.peer, request, response)
    if state.role is role:
        if response.error is not ErrorCode.NONE or rules.is_fenced(response.epoch, state.epoch):
            state.back_off(event.peer)
        _note_refusal(state, event.peer, request, response)
        observing.note_outcome(state, event.peer, request, response)
        if not rules.is_fenced(response.epoch, state.epoch):
            HANDLERS[type(request)](state, event)


def _note_refusal(state: RaftState, peer: int, request: Request, response: Response) -> None:
    """A twin, or a node that lost its disk: that does not mend itself within a retry."""
    if response.error in (ErrorCode.DUPLICATE_VOTER, ErrorCode.INVALID_VOTER_KEY):
        state.pause(peer, request)
    elif state.pauses:
        state.pauses.pop((peer, type(request).__name__), None)


def _learn(state: RaftState, peer: int, request: Request, response: Response) -> None:
    # Of a voter change it is a reason like any other: what is said of it now may be told otherwise in a moment.
    if response.error is ErrorCode.INVALID_REQUEST and not isinstance(response, VoterChangeResponse):
        state.emit(Fault(FaultKind.REJECTED_REQUEST, f"{type(request).__name__} to {peer}"))
        return
    if response.error is ErrorCode.UNKNOWN_LEADER_EPOCH or rules.is_fenced(response.epoch, state.epoch):
        return
    becoming.follow_epoch(state, response.epoch, response.leader_id, response.leader_endpoint)
    role = state.role
    if isinstance(role, Follower) and peer == role.leader_id and rules.leader_is_gone(request, response):
        fetching.suspect_leader(state)
