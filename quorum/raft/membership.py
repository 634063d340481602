"""Voters come and go at run time, one at a time (dissertation 4.1, KIP-853; kraft.md 1.11).

The newest voter set in the log is in force as soon as it is appended. Old and new set differ by one voter, so any majority of
one shares a voter with any majority of the other, and no two leaders can be elected past each other.
"""

from collections.abc import Callable
from typing import Any

from ottla.quorum.raft import commitment, parking, rules, voter_tracking
from ottla.quorum.raft.events import Event, RequestReceived, ResponseReceived
from ottla.quorum.raft.instructions import AppendControl, Sync, Voters
from ottla.quorum.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    Request,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader, VoterChange
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import Voter, VoterSet
from ottla.runtime.errors import ErrorCode


class Refused(Exception):
    """A change that cannot be made (now)."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


def is_voter_change(event: Event) -> bool:
    """Whether the leader may append a voter set because of it."""
    return isinstance(event, RequestReceived) and isinstance(
        event.request, AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
    )


def handle_add(state: RaftState, event: RequestReceived) -> None:
    """Answered when the new set is committed."""
    request = event.request
    assert isinstance(request, AddVoterRequest)
    _change(state, event, lambda leader: _with_added(state, leader, request))


def handle_remove(state: RaftState, event: RequestReceived) -> None:
    """Answered when the new set is committed; a leader that removes itself resigns then."""
    request = event.request
    assert isinstance(request, RemoveVoterRequest)
    _change(state, event, lambda leader: _without(state, leader, request))


def handle_update(state: RaftState, event: RequestReceived) -> None:
    """A voter listens elsewhere than the log says."""
    request = event.request
    assert isinstance(request, UpdateVoterRequest)
    _change(state, event, lambda leader: _with_moved(state, leader, request))


def _change(state: RaftState, event: RequestReceived, decide: Callable[[Leader], VoterSet]) -> None:
    """Administrators know no epoch: theirs is not looked at."""
    role = state.role
    if not isinstance(role, Leader):
        fields = state.response_fields(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        state.respond(event.token, VoterChangeResponse(**fields))
        return
    try:
        _check_ready(state, role)
        voters = decide(role)
    except Refused as refused:
        fields = state.response_fields(refused.error)
        state.respond(event.token, VoterChangeResponse(message=str(refused), **fields))
        return
    append_voters(state, role, voters, event.token)


def _check_ready(state: RaftState, role: Leader) -> None:
    ready = rules.may_change_voters(
        role.change is not None, role.high_watermark_known, state.voters.latest_offset, state.high_watermark
    )
    if not ready:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "another change is not committed yet; try again")


def _with_added(state: RaftState, role: Leader, request: AddVoterRequest) -> VoterSet:
    voters = state.voters.latest
    if voters.get(request.voter.id) is not None:
        raise Refused(ErrorCode.DUPLICATE_VOTER, f"node {request.voter.id} is a voter already")
    progress = role.observers.get(request.voter)
    if progress is None or not rules.may_join(progress.last_caught_up_ms, progress.last_fetch_ms, state.now_ms):
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, f"node {request.voter.id} has not caught up with the log")
    return _known(role, voters).with_voter(Voter(request.voter, request.endpoint))


def _without(state: RaftState, role: Leader, request: RemoveVoterRequest) -> VoterSet:
    voters = state.voters.latest
    if not voters.contains(request.voter):
        raise Refused(ErrorCode.VOTER_NOT_FOUND, f"node {request.voter.id} with that directory is no voter")
    if len(voters) < 2:
        raise Refused(ErrorCode.VOTER_NOT_FOUND, "the last voter cannot be removed")
    return _known(role, voters).without(request.voter.id)


def _with_moved(state: RaftState, role: Leader, request: UpdateVoterRequest) -> VoterSet:
    voters = state.voters.latest
    if not voters.contains(request.sender):
        raise Refused(ErrorCode.VOTER_NOT_FOUND, f"node {request.sender.id} with that directory is no voter")
    return _known(role, voters).with_voter(Voter(request.sender, request.endpoint))


def _known(role: Leader, voters: VoterSet) -> VoterSet:
    """With the directory ids that the fetches have told: a static set knows none."""
    known = {progress.key.id: progress.key for progress in role.voters.values()}
    return VoterSet.of(Voter(known.get(voter.key.id, voter.key), voter.endpoint) for voter in voters.voters)


def append_voters(state: RaftState, role: Leader, voters: VoterSet, token: Any) -> None:
    """In force at once."""
    offset = state.log.end
    state.emit(AppendControl(offset, role.epoch, (Voters(voters),)))
    state.log.append(role.epoch, offset, offset + 1)
    state.voters.append(offset, voters)
    role.change = VoterChange(offset, token)
    voter_tracking.voters_changed(state)
    parking.complete_parked(state)
    state.emit(Sync(state.log.end))
    commitment.update_leader_high_watermark(state)


def update_timeout(state: RaftState) -> None:
    """Now and then a follower compares what the log says of it with what it is."""
    state.arm(Timer.UPDATE_VOTER, state.settings.fetch_timeout_ms)
    role = state.role
    if not isinstance(role, Follower) or not state.settings.can_vote:
        return
    request = _wanted_change(state)
    if request is not None and state.may_send(role.leader_id, type(request)):
        state.send(role.leader_id, role.endpoint, request)


def _wanted_change(state: RaftState) -> Request | None:
    voters = state.voters.latest
    fields: dict[str, Any] = {"cluster_id": state.settings.cluster_id, "epoch": state.epoch, "sender": state.key}
    stale = voters.get(state.key.id)
    if state.is_voter:
        moved = state.voters.latest_offset >= 0 and voters.endpoint(state.key.id) != state.endpoint
        return UpdateVoterRequest(endpoint=state.endpoint, **fields) if moved else None
    if not state.settings.auto_join:
        return None
    if stale is not None:
        return RemoveVoterRequest(voter=stale.key, **fields)  # this node's former disk
    return AddVoterRequest(voter=state.key, endpoint=state.endpoint, **fields)


def handle_change_response(state: RaftState, event: ResponseReceived) -> None:
    """Nothing to do: what came of it is in the log, and what did not is asked for again."""
