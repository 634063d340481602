"""BeginQuorumEpoch and EndQuorumEpoch: a leader says hello and good-bye (KIP-595; kraft.md 1.5)."""

from ottla.quorum.raft import becoming, rules
from ottla.quorum.raft.events import RequestReceived, ResponseReceived
from ottla.quorum.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import UNKNOWN_OFFSET, Leader, Progress
from ottla.quorum.raft.roles.prospective import Prospective
from ottla.quorum.raft.roles.resigned import Resigned
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.transitions import Cause
from ottla.quorum.raft.voters import ReplicaKey
from ottla.runtime.errors import ErrorCode

Announcement = BeginQuorumEpochRequest | EndQuorumEpochRequest


def _receive(state: RaftState, request: Announcement) -> ErrorCode:
    if request.sender.id < 0:
        return ErrorCode.INVALID_REQUEST
    if rules.is_fenced(request.epoch, state.epoch):
        return ErrorCode.FENCED_LEADER_EPOCH
    becoming.follow_epoch(state, request.epoch, request.sender.id, request.endpoint)
    if request.receiver is not None and not request.receiver.matches(state.key):
        return ErrorCode.INVALID_VOTER_KEY
    return ErrorCode.NONE


def handle_begin(state: RaftState, event: RequestReceived) -> None:
    """A leader that still greets is alive: who had begun to ask for pre-votes goes back to it."""
    request = event.request
    assert isinstance(request, BeginQuorumEpochRequest)
    error = _receive(state, request)
    role = state.role
    if error is ErrorCode.NONE and isinstance(role, Prospective) and role.leader_id == request.sender.id:
        becoming.become_follower(state, role.epoch, request.sender.id, request.endpoint, Cause.LEADER_KNOWN)
    state.respond(event.token, BeginQuorumEpochResponse(voter=state.key, **state.response_fields(error)))


def handle_begin_response(state: RaftState, event: ResponseReceived) -> None:
    role, response = state.role, event.response
    assert isinstance(response, BeginQuorumEpochResponse)
    if isinstance(role, Leader) and event.peer in role.voters and response.error is ErrorCode.NONE:
        progress = role.voters[event.peer]
        progress.knows_leader = True
        if response.voter is not None and response.voter.id == event.peer:
            _note_identity(progress, response.voter)


def _note_identity(progress: Progress, voter: ReplicaKey) -> None:
    """Whoever answers where a voter listens is that voter: a twin that fetched first, from elsewhere, is not."""
    if not progress.key.matches(voter):
        progress.end_offset = UNKNOWN_OFFSET
    progress.key = voter


def begin_quorum_timeout(state: RaftState) -> None:
    """Voters that do not fetch may never have heard of this leader."""
    role = state.role
    assert isinstance(role, Leader)
    interval = state.settings.fetch_timeout_ms // 2
    for progress in role.voters.values():
        if state.now_ms - progress.last_fetch_ms >= interval:
            progress.knows_leader = False
    state.arm(Timer.BEGIN_QUORUM, interval)


def wanted_greetings(state: RaftState) -> None:
    """BeginQuorumEpoch to every voter that does not seem to know."""
    role = state.role
    if not isinstance(role, Leader):
        return
    for node_id, progress in role.voters.items():
        voter = None if progress.knows_leader else state.voters.latest.get(node_id)
        if voter is None or not state.may_send(node_id, BeginQuorumEpochRequest):
            continue
        request = BeginQuorumEpochRequest(
            cluster_id=state.settings.cluster_id,
            epoch=role.epoch,
            sender=state.key,
            receiver=voter.key,
            endpoint=state.endpoint,
        )
        state.send(voter.key.id, voter.endpoint, request)


def handle_end(state: RaftState, event: RequestReceived) -> None:
    """The followers campaign in the order the leader gave, so that they do not split the votes."""
    request = event.request
    assert isinstance(request, EndQuorumEpochRequest)
    error = _receive(state, request)
    role = state.role
    if error is ErrorCode.NONE and isinstance(role, Follower) and role.leader_id == request.sender.id:
        role.leader_suspected = True
        if state.may_campaign:
            state.arm(Timer.FETCH, succession_delay_ms(state.key, request.preferred, state.settings))
    state.respond(event.token, EndQuorumEpochResponse(**state.response_fields(error)))


def succession_delay_ms(key: ReplicaKey, preferred: tuple[ReplicaKey, ...], settings: RaftSettings) -> int:
    """The first of the ranking campaigns at once, each further one waits twice as long, the unranked longest. Kafka's second
    waits for half of election.backoff.max; PreVote makes it harmless to come too early, so ours waits for an election only."""
    rank = next((index for index, other in enumerate(preferred) if other.matches(key)), None)
    if rank is None:
        return settings.election_backoff_max_ms
    if rank == 0:
        return 0
    return min(settings.election_backoff_max_ms, settings.succession_step_ms << min(rank - 1, 16))


def handle_end_response(state: RaftState, event: ResponseReceived) -> None:
    role = state.role
    if isinstance(role, Resigned):
        role.unacknowledged.pop(event.peer, None)


def wanted_farewells(state: RaftState) -> None:
    """EndQuorumEpoch to every voter until it is acknowledged."""
    role = state.role
    if not isinstance(role, Resigned):
        return
    for voter in state.voters.latest.others(state.key.id):
        if voter.key.id not in role.unacknowledged or not state.may_send(voter.key.id, EndQuorumEpochRequest):
            continue
        request = EndQuorumEpochRequest(
            cluster_id=state.settings.cluster_id,
            epoch=role.epoch,
            sender=state.key,
            receiver=voter.key,
            endpoint=state.endpoint,
            preferred=role.preferred,
        )
        state.send(voter.key.id, voter.endpoint, request)
