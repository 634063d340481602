"""How a replica becomes what it becomes: the effects of each change of role. Whether one is legal, transitions.py says."""

from ottla.quorum.raft import rules
from ottla.quorum.raft.instructions import (
    AppendControl,
    Fault,
    FaultKind,
    KRaftVersion,
    LeaderChange,
    LeaderChanged,
    PersistElection,
    Respond,
    Sync,
    Voters,
)
from ottla.quorum.raft.messages import FetchResponse, VoterChangeResponse
from ottla.quorum.raft.roles.candidate import Candidate
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader, Progress
from ottla.quorum.raft.roles.prospective import Prospective
from ottla.quorum.raft.roles.resigned import Resigned
from ottla.quorum.raft.roles.tally import Tally
from ottla.quorum.raft.roles.unattached import Unattached
from ottla.quorum.raft.state import RaftState, Role
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.transitions import Cause, RoleName, check
from ottla.quorum.raft.voters import VOTERS_IN_LOG, Endpoint, ReplicaKey, Voter
from ottla.runtime.errors import ErrorCode


def become(state: RaftState, role: Role, cause: Cause) -> None:
    """Checks, persists, and only then changes. What was under way for the old role is forgotten."""
    old, announced = state.role, (state.epoch, state.known_leader_id)
    check(RoleName(type(old).__name__), old.epoch, cause, RoleName(type(role).__name__), role.epoch)
    persist(state, role)
    state.role = role
    state.inflight.clear()
    state.backing_off.clear()
    for pause in state.pauses.values():
        pause.until_ms = 0
    state.timers.clear()
    fail_parked(state)
    fail_change(state, old)
    if announced != (state.epoch, state.known_leader_id):
        announce(state)


def persist(state: RaftState, role: Role) -> None:
    """Becoming prospective or resigned changes nothing that is persisted."""
    wanted = role.election_state()
    if wanted != state.election:
        state.election = wanted
        state.emit(PersistElection(wanted))


def announce(state: RaftState) -> None:
    """Own leadership is announced once the epoch's first record is committed: then all before it is, and was delivered."""
    role = state.role
    after = role.epoch_start + 1 if isinstance(role, Leader) else 0
    state.emit(LeaderChanged(state.known_leader_id, role.epoch, after))


def fail_parked(state: RaftState) -> None:
    """Whoever waits here for records is told to ask another."""
    for parked in state.parked.values():
        fields = state.response_fields(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        state.emit(Respond(parked.token, FetchResponse(**fields)))
    state.parked.clear()


def fail_change(state: RaftState, old: Role) -> None:
    """Whether the change of voters will be committed is for the next leader to see."""
    if isinstance(old, Leader) and old.change is not None and old.change.token is not None:
        fields = state.response_fields(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        message = (
            "the leadership moved on before the change was committed: see ottla quorum describe whether it was made"
        )
        state.emit(Respond(old.change.token, VoterChangeResponse(message=message, undecided=True, **fields)))


def become_unattached(
    state: RaftState, epoch: int, cause: Cause, leader_id: int | None = None, voted: ReplicaKey | None = None
) -> None:
    """An epoch without a leader has nobody to be patient with, so this replica asks for pre-votes soon; once it has given
    its vote, it waits a whole timeout for whom it voted for. What was left of an earlier timeout is not put off: a stream of
    higher epochs cannot delay an election for ever (kraft.md 1.2)."""
    remaining = state.timers.get(Timer.ELECTION)
    become(state, Unattached(epoch, leader_id, voted), cause)
    if not state.may_campaign:
        return
    if leader_id is not None or cause in (Cause.PRE_VOTES_LOST, Cause.NO_VOTER):
        state.arm(Timer.ELECTION, state.election_timeout_ms())
        return
    state.arm(Timer.ELECTION, early_election_ms(state))
    if remaining is not None:
        state.arm_earlier(Timer.ELECTION, max(0, remaining - state.now_ms))


def early_election_ms(state: RaftState) -> int:
    """A short random wait: PreVote makes it harmless, jitter keeps rivals apart."""
    return state.random_between(state.settings.early_election_min_ms, state.settings.early_election_max_ms)


def become_prospective(state: RaftState, cause: Cause) -> None:
    role, endpoint = state.role, state.leader_endpoint()
    tally = new_tally(state)
    become(state, Prospective(role.epoch, tally, role.leader_id, endpoint, role.voted), cause)
    state.arm(Timer.ELECTION, state.election_timeout_ms())


def become_candidate(state: RaftState) -> None:
    become(state, Candidate(rules.next_epoch(state.epoch), new_tally(state), state.key), Cause.PRE_VOTES_WON)
    state.arm(Timer.ELECTION, state.election_timeout_ms())
    state.candidacies += 1


def new_tally(state: RaftState) -> Tally:
    """A new tally, with the node's own vote in it."""
    tally = Tally(state.voters.latest.ids(), {})
    tally.record(state.key.id, True)
    return tally


def become_leader(state: RaftState) -> None:
    """The first record of the epoch is appended at once: with it, everything before is committed too."""
    candidate = state.role
    assert isinstance(candidate, Candidate)
    granting = candidate.tally.granting()
    others = {voter.key.id: Progress(voter.key) for voter in state.voters.latest.others(state.key.id)}
    role = Leader(candidate.epoch, state.key.id, state.endpoint, state.log.end, others, {}, {}, granting)
    become(state, role, Cause.VOTES_WON)
    state.candidacies = 0
    voters = tuple(voter.key for voter in state.voters.latest.voters)
    mark = rules.epoch_mark(state.key.id, state.now_ms) if state.settings.marks_epochs else 0
    append_control(state, role.epoch, mark, LeaderChange(state.key.id, voters, granting), *_missing_voters(state))
    if len(others) > 0:
        state.arm(Timer.CHECK_QUORUM, check_quorum_ms(state))
        state.arm(Timer.BEGIN_QUORUM, state.settings.fetch_timeout_ms // 2)


def check_quorum_ms(state: RaftState) -> int:
    return state.settings.fetch_timeout_ms * 3 // 2


def _missing_voters(state: RaftState) -> tuple[KRaftVersion | Voters, ...]:
    """The voter set that the leader's first batch brings to the log. The members stay the same: it is no voter change."""
    own = Voter(state.key, state.endpoint)
    if not rules.must_write_voters(state.voters, own):
        return ()
    return (KRaftVersion(VOTERS_IN_LOG), Voters(state.voters.latest.with_voter(own)))


def append_control(state: RaftState, epoch: int, mark: int, *records: LeaderChange | KRaftVersion | Voters) -> None:
    """Appends one control batch, in force at once."""
    offset = state.log.end
    state.emit(AppendControl(offset, epoch, records, mark))
    state.log.append(epoch, offset, offset + len(records), mark)
    for record in records:
        if isinstance(record, Voters):
            state.voters.append(offset, record.voters)
    state.emit(Sync(state.log.end))


def become_resigned(state: RaftState, cause: Cause) -> None:
    """The successors are ranked by how much of the log they have."""
    leader = state.role
    assert isinstance(leader, Leader)
    ranked = sorted(leader.voters.values(), key=lambda progress: (-progress.end_offset, progress.key.id))
    told = dict.fromkeys(sorted(leader.voters), True)
    become(state, Resigned(leader.epoch, leader.leader_id, tuple(p.key for p in ranked), told), cause)
    state.arm(Timer.ELECTION, state.election_timeout_ms())


def become_follower(state: RaftState, epoch: int, leader_id: int, endpoint: Endpoint, cause: Cause) -> None:
    voted = state.role.voted if epoch == state.epoch else None
    become(state, Follower(epoch, leader_id, endpoint, voted), cause)
    state.candidacies = 0
    if state.settings.can_vote:
        state.arm(Timer.FETCH, state.settings.fetch_timeout_ms)
        state.arm(Timer.UPDATE_VOTER, state.settings.fetch_timeout_ms)


def follow_epoch(state: RaftState, epoch: int, leader_id: int | None, endpoint: Endpoint | None) -> None:
    """What a message with ``epoch`` not below ours teaches: a higher epoch, or the leader of this one (kraft.md 1.4).

    A replica never follows itself: one that is told it leads an epoch it does not know lost its disk."""
    if leader_id is not None and endpoint is None:
        endpoint = state.voters.latest.endpoint(leader_id)
    followable = leader_id is not None and leader_id != state.key.id and endpoint is not None
    if rules.must_follow_epoch(epoch, state.epoch):
        if followable:
            assert leader_id is not None
            assert endpoint is not None
            become_follower(state, epoch, leader_id, endpoint, Cause.HIGHER_EPOCH)
        else:
            become_unattached(state, epoch, Cause.HIGHER_EPOCH, leader_id)
    elif epoch == state.epoch and leader_id is not None:
        _learn_leader(state, leader_id, endpoint)


def _learn_leader(state: RaftState, leader_id: int, endpoint: Endpoint | None) -> None:
    role = state.role
    if role.leader_id is not None and role.leader_id != leader_id:
        state.emit(Fault(FaultKind.TWO_LEADERS, f"epoch {role.epoch}: {role.leader_id} and {leader_id}"))
        return
    if leader_id == state.key.id or endpoint is None or isinstance(role, Leader | Resigned):
        return
    if isinstance(role, Follower):
        if role.endpoint != endpoint:
            role.endpoint = endpoint
        return
    if isinstance(role, Prospective) and role.leader_id is not None:
        role.leader_endpoint = endpoint  # it left this leader on purpose; losing the pre-vote leads back
        return
    become_follower(state, state.epoch, leader_id, endpoint, Cause.LEADER_KNOWN)
