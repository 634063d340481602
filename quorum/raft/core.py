"""The consensus core: one event in, a list of instructions out. No clock, no socket, no disk, no thread.

The same state and the same event always give the same instructions (the election jitter comes from the generator that was
given). Tests, the model checker and the simulator call nothing else.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.quorum.raft import (
    announcements,
    appending,
    becoming,
    commitment,
    elections,
    fetching,
    leaving,
    membership,
    observing,
    parking,
    responses,
    rules,
    serving,
    snapshots,
)
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import (
    AppendRequested,
    Event,
    LogSynced,
    PeerDisconnected,
    RackMatesLearned,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    SnapshotInstalled,
    SnapshotTaken,
    Started,
    Ticked,
    TimerExpired,
    UpgradeRequested,
)
from ottla.quorum.raft.instructions import Instruction, PersistElection
from ottla.quorum.raft.log_summary import LogSummary
from ottla.quorum.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.quorum.raft.roles.candidate import Candidate
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.roles.prospective import Prospective
from ottla.quorum.raft.roles.resigned import Resigned
from ottla.quorum.raft.roles.unattached import Unattached
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.state import RaftState, Role
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.transitions import Cause
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, VoterHistory
from ottla.runtime.errors import ErrorCode

if TYPE_CHECKING:
    from random import Random


class RaftCore:
    """One replica. ``handle`` an event; perform what it returns; ask ``next_deadline_ms`` when to tick."""

    __slots__ = ("state",)

    def __init__(
        self,
        settings: RaftSettings,
        key: ReplicaKey,
        endpoint: Endpoint,
        rng: "Random",
        log: LogSummary,
        voters: VoterHistory,
        election: ElectionState,
    ) -> None:
        self.state = RaftState(settings, key, endpoint, rng, log, voters, election)

    def handle(self, event: Event, now_ms: int) -> list[Instruction]:
        """Takes an event, and says what is to be done. ``now_ms``: the monotonic clock, milliseconds."""
        state = self.state
        state.now_ms = now_ms
        _HANDLERS[type(event)](state, event)
        send_wanted(state)
        instructions, state.out = state.out, []
        return _persist_once(instructions)

    def next_deadline_ms(self) -> int | None:
        """When a Ticked event would do something; None if never."""
        return min(self.state.timers.values(), default=None)


def _persist_once(instructions: list[Instruction]) -> list[Instruction]:
    """An event that changes the election state twice (follows an epoch, then votes in it) costs one fsync: the last state is
    written where the first would have been. Nothing of the list leaves the node in between."""
    if len(instructions) < 2:
        return instructions
    states = [instruction for instruction in instructions if isinstance(instruction, PersistElection)]
    if len(states) < 2:
        return instructions
    first = instructions.index(states[0])
    rest = [instruction for instruction in instructions[first:] if not isinstance(instruction, PersistElection)]
    return [*instructions[:first], states[-1], *rest]


def send_wanted(state: RaftState) -> None:
    """What ought to be asked follows from the state alone, so a lost request is asked again without being remembered."""
    for ask in _WANTED[type(state.role)]:
        ask(state)


def _started(state: RaftState, event: Any) -> None:
    """Takes up where the last life left off (kraft.md 1.2): never as leader."""
    election = rules.restored_epoch(state.election, state.log)
    if election.leader_id is not None and rules.returns_resigned(election, state.key.id):
        told: dict[int, bool] = {}
        state.role = Resigned(election.epoch, state.key.id, (), told)
    elif rules.returns_candidate(election, state.key) and state.may_campaign:
        assert election.voted is not None
        state.role = Candidate(election.epoch, becoming.new_tally(state), election.voted)
    else:
        state.role = _follower_or_unattached(state, election)
    if election != state.election:
        state.election = election
        state.emit(PersistElection(election))
    becoming.announce(state)
    _arm_at_start(state)


def _follower_or_unattached(state: RaftState, election: ElectionState) -> Follower | Unattached:
    leader = None if election.leader_id is None else state.voters.latest.get(election.leader_id)
    if leader is None:
        return Unattached(election.epoch, election.leader_id, election.voted)
    return Follower(election.epoch, leader.key.id, leader.endpoint, election.voted)


def _arm_at_start(state: RaftState) -> None:
    """There is no leader yet to be patient with, or the first fetch will tell: an election may come early."""
    role, settings = state.role, state.settings
    if isinstance(role, Follower) and settings.can_vote:
        state.arm(Timer.FETCH, settings.fetch_timeout_ms)
        state.arm(Timer.UPDATE_VOTER, settings.fetch_timeout_ms)
    if not state.may_campaign:
        return
    if state.is_sole_voter:
        _take_the_lead(state)
    elif isinstance(role, Candidate):
        state.arm(Timer.ELECTION, state.election_timeout_ms())
    elif not isinstance(role, Follower):
        state.arm(Timer.ELECTION, becoming.early_election_ms(state))


def _take_the_lead(state: RaftState) -> None:
    """The only voter has nobody to wait for; a former leader still moves on to a new epoch first."""
    if isinstance(state.role, Resigned):
        becoming.become_unattached(state, rules.next_epoch(state.epoch), Cause.ELECTION_TIMEOUT)
    if isinstance(state.role, Candidate):
        elections.conclude(state)
    else:
        elections.campaign(state, Cause.SINGLE_VOTER)


def _ticked(state: RaftState, event: Any) -> None:
    """Expires what is due, earliest first; what expires may arm or disarm the others."""
    for _ in range(len(Timer)):
        due = [(deadline, timer) for timer, deadline in state.timers.items() if deadline <= state.now_ms]
        if not due:
            return
        _expired(state, TimerExpired(min(due)[1]))


def _expired(state: RaftState, event: Any) -> None:
    state.disarm(event.timer)
    _TIMERS[event.timer](state)


def _retry(state: RaftState) -> None:
    state.backing_off.clear()
    waits = [pause.until_ms - state.now_ms for pause in state.pauses.values() if pause.until_ms > state.now_ms]
    if waits:
        state.arm(Timer.RETRY, min(waits))


def _check_quorum(state: RaftState) -> None:
    """A leader that no majority fetches from cannot commit: it makes way (dissertation 6.2)."""
    becoming.become_resigned(state, Cause.LOST_QUORUM)


_TIMERS: dict[Timer, Callable[[RaftState], None]] = {
    Timer.ELECTION: elections.election_timeout,
    Timer.FETCH: elections.fetch_timeout,
    Timer.CHECK_QUORUM: _check_quorum,
    Timer.BEGIN_QUORUM: announcements.begin_quorum_timeout,
    Timer.RETRY: _retry,
    Timer.PARKED: parking.parked_timeout,
    Timer.HAND_OVER: leaving.waited_long_enough,
    Timer.UPDATE_VOTER: membership.update_timeout,
}

_WANTED: dict[type[Role], tuple[Callable[[RaftState], None], ...]] = {
    Unattached: (fetching.wanted_fetch,),
    Prospective: (elections.wanted_votes,),
    Candidate: (elections.wanted_votes,),
    Leader: (announcements.wanted_greetings,),
    Resigned: (announcements.wanted_farewells, fetching.wanted_fetch),
    Follower: (fetching.wanted_fetch, snapshots.wanted_snapshot),
}

_REQUESTS: dict[type[Request], tuple[Callable[[RaftState, RequestReceived], None], Callable[..., Response]]] = {
    VoteRequest: (elections.handle_vote_request, lambda **fields: VoteResponse(granted=False, **fields)),
    BeginQuorumEpochRequest: (announcements.handle_begin, BeginQuorumEpochResponse),
    EndQuorumEpochRequest: (announcements.handle_end, EndQuorumEpochResponse),
    FetchRequest: (serving.handle_fetch, FetchResponse),
    FetchSnapshotRequest: (snapshots.handle_fetch_snapshot, FetchSnapshotResponse),
    AddVoterRequest: (membership.handle_add, VoterChangeResponse),
    RemoveVoterRequest: (membership.handle_remove, VoterChangeResponse),
    UpdateVoterRequest: (membership.handle_update, VoterChangeResponse),
}


def _request_received(state: RaftState, event: Any) -> None:
    """A stranger's request is refused before it can change anything."""
    handler, response = _REQUESTS[type(event.request)]
    if event.request.cluster_id != state.settings.cluster_id:
        fields = state.response_fields(ErrorCode.INCONSISTENT_CLUSTER_ID)
        state.respond(event.token, response(**fields))
        return
    handler(state, event)


def _disconnected(state: RaftState, event: Any) -> None:
    if isinstance(state.role, Follower) and event.peer == state.role.leader_id:
        fetching.suspect_leader(state)


def _resign(state: RaftState, event: Any) -> None:
    if isinstance(state.role, Leader) and state.role.epoch == event.epoch:
        becoming.become_resigned(state, Cause.RESIGN)


_HANDLERS: dict[type, Callable[[RaftState, Any], None]] = {
    Started: _started,
    Ticked: _ticked,
    TimerExpired: _expired,
    RequestReceived: _request_received,
    ResponseReceived: responses.handle_response,
    PeerDisconnected: _disconnected,
    AppendRequested: appending.handle_append,
    LogSynced: lambda state, event: commitment.handle_synced(state, event.end_offset),
    ShutdownRequested: lambda state, event: leaving.shut_down(state),
    ResignRequested: _resign,
    SnapshotTaken: snapshots.handle_taken,
    SnapshotInstalled: snapshots.handle_installed,
    UpgradeRequested: membership.handle_upgrade,
    RackMatesLearned: observing.handle_rack_mates,
}
