"""Voters come and go at run time, one at a time (dissertation 4.1, KIP-853; kraft.md 1.11).

The newest voter set in the log is in force as soon as it is appended. Old and new set differ by one voter, so any majority of
one shares a voter with any majority of the other, and no two leaders can be elected past each other.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ottla.quorum.raft import parking, rules, serving, voter_tracking
from ottla.quorum.raft.events import Event, RequestReceived, ResponseReceived, UpgradeRequested
from ottla.quorum.raft.instructions import AppendControl, KRaftVersion, Sync, Voters
from ottla.quorum.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    Request,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader, Progress, VoterChange
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import VOTERS_IN_LOG, ReplicaKey, Voter, VoterSet
from ottla.runtime.errors import ErrorCode


class Refused(Exception):
    """A change that cannot be made (now). ``try_again``: what is in the way goes away by itself."""

    def __init__(self, error: ErrorCode, message: str, *, try_again: bool = False) -> None:
        super().__init__(message)
        self.error = error
        self.try_again = try_again


def is_voter_change(event: Event) -> bool:
    """Whether the leader may append a voter set because of it."""
    if isinstance(event, UpgradeRequested):
        return True
    return isinstance(event, RequestReceived) and isinstance(
        event.request, AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
    )


def handle_add(state: RaftState, event: RequestReceived) -> None:
    """Answered when the new set is committed, unless the asker does not want to wait."""
    request = event.request
    assert isinstance(request, AddVoterRequest)
    _change(state, event, lambda leader: _with_added(state, leader, request), at_once=not request.ack_when_committed)


def handle_remove(state: RaftState, event: RequestReceived) -> None:
    """Answered when the new set is committed; a leader that removes itself resigns then."""
    request = event.request
    assert isinstance(request, RemoveVoterRequest)
    _change(state, event, lambda leader: _without(state, leader, request))


def handle_update(state: RaftState, event: RequestReceived) -> None:
    """A voter listens elsewhere than the log says, or has a directory id that the log does not know. What it said in an
    earlier epoch may be old news."""
    request = event.request
    assert isinstance(request, UpdateVoterRequest)
    error = serving.leadership_refusal(state, request.epoch, request.sender)
    if error is not ErrorCode.NONE:
        state.respond(event.token, VoterChangeResponse(**state.response_fields(error)))
        return
    _change(state, event, lambda leader: _with_moved(state, leader, request))


def handle_upgrade(state: RaftState, event: UpgradeRequested) -> None:
    """Raises kraft.version from 0 to 1: the voters stay who they are. Done already: nothing is written."""
    _change(state, event, lambda leader: _with_directories(state, leader), validate_only=event.validate_only)


def _change(
    state: RaftState,
    event: RequestReceived | UpgradeRequested,
    decide: Callable[[Leader], VoterSet],
    *,
    at_once: bool = False,
    validate_only: bool = False,
) -> None:
    """Administrators know no epoch: theirs is not looked at."""
    role = state.role
    if not isinstance(role, Leader) or state.shutting_down:
        fields = state.response_fields(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        message = f"node {state.key.id} does not lead the quorum: ask again in a moment"
        state.respond(event.token, VoterChangeResponse(message=message, **fields))
        return
    try:
        _check_ready(state, role)
        voters = decide(role)
        changes = voters != state.voters.latest
        if changes:
            _check_survives(state, role, voters)
    except Refused as refused:
        fields = state.response_fields(refused.error)
        response = VoterChangeResponse(message=str(refused), try_again=refused.try_again, **fields)
        state.respond(event.token, response)
        return
    if changes and not validate_only:
        append_voters(state, role, voters, None if at_once else event.token)
        if not at_once:
            return
    state.respond(event.token, VoterChangeResponse(**state.response_fields()))


def _check_ready(state: RaftState, role: Leader) -> None:
    ready = rules.may_change_voters(
        role.change is not None, role.high_watermark_known, state.voters.latest_offset, state.high_watermark
    )
    if not ready:
        what = "another change of voters" if role.high_watermark_known else "the new leader's first record"
        message = f"{what} is not committed yet: try again in a moment"
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, message, try_again=True)


def _check_survives(state: RaftState, role: Leader, voters: VoterSet) -> None:
    followers = (*role.voters.values(), *role.observers.values())
    in_touch = [each.key for each in followers if serving.is_in_touch(state, each)]
    silent = [voter.key.id for voter in voters.voters if voter.key not in (state.key, *in_touch)]
    if not rules.quorum_survives(len(voters) - len(silent), len(voters)):
        what = f"of the voters {_names(voters.ids())} most have to be there; {_names(silent)} did not fetch lately"
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, f"{what}: start them, then try again")


def _names(nodes: Iterable[int]) -> str:
    return ", ".join(str(node) for node in nodes)


def _with_added(state: RaftState, role: Leader, request: AddVoterRequest) -> VoterSet:
    voters = _known(state, role)
    known = voters.get(request.voter.id)
    if request.asked_before and known == Voter(request.voter, request.endpoint):
        return voters
    if known is not None:
        raise Refused(ErrorCode.DUPLICATE_VOTER, _already(voters, request.voter))
    progress = role.observers.get(request.voter) or Progress(request.voter)
    in_touch = serving.is_in_touch(state, progress)
    if not rules.may_join(progress.can_vote, progress.last_caught_up_ms, in_touch):
        raise _why_not(role, progress, in_touch)
    return voters.with_voter(Voter(request.voter, request.endpoint))


def _already(voters: VoterSet, asked: ReplicaKey) -> str:
    if voters.contains(asked):
        return f"node {asked.id} is a voter already"
    return f"node {asked.id} is a voter with another directory: remove that voter first, if its disk is gone"


def _why_not(role: Leader, progress: Progress, in_touch: bool) -> Refused:
    """What a node that may not join lacks, and what to do."""
    node, error = progress.key.id, ErrorCode.REQUEST_TIMED_OUT
    if not progress.can_vote:
        message = f"node {node} is no controller: add controller to its process.roles first"
        return Refused(ErrorCode.INVALID_REQUEST, message)
    if in_touch:
        return Refused(error, f"node {node} has not caught up with the log yet: try again in a moment", try_again=True)
    if any(key.id == node for key in role.observers if key != progress.key):
        what = f"node {node} follows the log with another directory id"
        return Refused(error, f"{what}: take the id from its meta.properties or from the replicas described")
    return Refused(error, f"node {node} does not follow the log: start it as controller, then try again")


def _without(state: RaftState, role: Leader, request: RemoveVoterRequest) -> VoterSet:
    voters = _known(state, role)
    voter = voters.get(request.voter.id)
    if voter is None and request.asked_before:
        return voters
    if voter is None:
        raise Refused(
            ErrorCode.VOTER_NOT_FOUND, f"node {request.voter.id} is no voter: the voters are {_names(voters.ids())}"
        )
    if not rules.names_voter(request.voter, voter.key):
        raise Refused(ErrorCode.VOTER_NOT_FOUND, f"voter {voter.key.id} has another directory id than the one given")
    if len(voters) < 2:
        raise Refused(ErrorCode.VOTER_NOT_FOUND, "the last voter cannot be removed: add another one first")
    if serving.is_twin(state, role, request.sender):
        message = f"voter {voter.key.id} lives: only an administrator may remove it"
        raise Refused(ErrorCode.DUPLICATE_VOTER, message)  # to whom its disk seems to be replaced, and is not
    return voters.without(request.voter.id)


def _with_moved(state: RaftState, role: Leader, request: UpdateVoterRequest) -> VoterSet:
    if state.voters.kraft_version < VOTERS_IN_LOG:
        message = "the voters are those of controller.quorum.voters: change that, on every node"
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, message)
    if not state.voters.latest.contains(request.sender):
        raise Refused(ErrorCode.VOTER_NOT_FOUND, f"node {request.sender.id} with that directory is no voter")
    return _known(state, role).with_voter(Voter(request.sender, request.endpoint))


def _with_directories(state: RaftState, role: Leader) -> VoterSet:
    """Every voter must have told its own: from now on another directory is another voter (KIP-853)."""
    voters = _known(state, role)
    unknown = [voter.key.id for voter in voters.voters if voter.key.directory_id is None]
    if unknown:
        what = f"voters {_names(unknown)} never told their directory ids"
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"{what}: start them, or remove them from the quorum")
    return voters


def _known(state: RaftState, role: Leader) -> VoterSet:
    """The latest voters with the directory ids that the fetches have told: a static set knows none."""
    known = {key.id: key for key in (*(progress.key for progress in role.voters.values()), state.key)}
    return VoterSet.of(Voter(known[voter.key.id], voter.endpoint) for voter in state.voters.latest.voters)


def append_voters(state: RaftState, role: Leader, voters: VoterSet, token: Any) -> None:
    """Appends a voter set, which is in force at once."""
    offset = state.log.end
    records: tuple[KRaftVersion | Voters, ...] = (Voters(voters),)
    if rules.must_write_kraft_version(state.voters.latest_offset):
        records = (KRaftVersion(VOTERS_IN_LOG), *records)
    state.emit(AppendControl(offset, role.epoch, records))
    state.log.append(role.epoch, offset, offset + len(records))
    state.voters.append(offset, voters)
    role.change = VoterChange(offset, token)
    voter_tracking.voters_changed(state)
    parking.complete_parked(state)
    # A smaller set may have committed more with that. The sync will tell: whoever hears of a commit may append, and this batch is not written yet.
    state.emit(Sync(state.log.end))


def update_timeout(state: RaftState) -> None:
    """Now and then a follower compares what the log says of it with what it is. One that has to fetch a snapshot first knows neither."""
    state.arm(Timer.UPDATE_VOTER, state.settings.fetch_timeout_ms)
    role = state.role
    if not isinstance(role, Follower) or not state.settings.can_vote or role.download is not None:
        return
    request = _wanted_change(state)
    if request is not None and state.may_send(role.leader_id, type(request)):
        state.send(role.leader_id, role.endpoint, request)


def _wanted_change(state: RaftState) -> Request | None:
    fields: dict[str, Any] = {"cluster_id": state.settings.cluster_id, "epoch": state.epoch, "sender": state.key}
    stale = state.voters.latest.get(state.key.id)
    if state.is_voter:
        moved = state.voters.latest_offset >= 0 and stale != Voter(state.key, state.endpoint)
        return UpdateVoterRequest(endpoint=state.endpoint, **fields) if moved else None
    if not state.settings.auto_join:
        return None
    if stale is not None:
        return RemoveVoterRequest(voter=stale.key, **fields)  # this node's former disk
    return AddVoterRequest(voter=state.key, endpoint=state.endpoint, **fields)


def handle_change_response(state: RaftState, event: ResponseReceived) -> None:
    """Nothing to do: what came of it is in the log, and what did not is asked for again."""
