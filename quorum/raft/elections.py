"""Votes: asking, answering, counting (KIP-595, KIP-996; kraft.md 1.5)."""

from ottla.quorum.raft import becoming, rules
from ottla.quorum.raft.events import RequestReceived, ResponseReceived
from ottla.quorum.raft.instructions import PersistElection
from ottla.quorum.raft.majority import VoteResult
from ottla.quorum.raft.messages import VoteRequest, VoteResponse
from ottla.quorum.raft.roles.candidate import Candidate
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.prospective import Prospective
from ottla.quorum.raft.roles.unattached import Unattached
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.transitions import Cause
from ottla.quorum.raft.voters import ReplicaKey
from ottla.runtime.errors import ErrorCode

CANDIDATE_BACKOFF_MS = 25  # doubled with each candidacy in a row: rivals must draw apart by more than a round of votes


def handle_vote_request(state: RaftState, event: RequestReceived) -> None:
    """Answers in the order of kraft.md 1.5; the epoch is followed even when the receiver turns out not to be meant."""
    request = event.request
    assert isinstance(request, VoteRequest)
    error = _refusal(state, request)
    if error is ErrorCode.NONE:
        becoming.follow_epoch(state, request.epoch, None, None)
        if request.receiver is not None and not request.receiver.matches(state.key):
            error = ErrorCode.INVALID_VOTER_KEY
    granted = error is ErrorCode.NONE and _grant(state, request)
    state.respond(event.token, VoteResponse(granted=granted, **state.response_fields(error)))


def _refusal(state: RaftState, request: VoteRequest) -> ErrorCode:
    newest_legal = request.epoch if request.pre_vote else request.epoch - 1
    if request.last.offset < 0 or not 0 <= request.last.epoch <= newest_legal or request.sender.id < 0:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.FENCED_LEADER_EPOCH if rules.is_fenced(request.epoch, state.epoch) else ErrorCode.NONE


def _grant(state: RaftState, request: VoteRequest) -> bool:
    up_to_date = rules.is_up_to_date(request.last, rules.voter_end(state.log))
    role = state.role
    if request.pre_vote:
        return role.grants_pre_vote(up_to_date)
    granted = role.grants_vote(request.sender, up_to_date)
    if granted and rules.vote_must_be_recorded(role.voted):
        record_vote(state, request.sender)
    return granted


def record_vote(state: RaftState, candidate: ReplicaKey) -> None:
    """Durable before the answer leaves. Whoever voted gives its candidate a whole election timeout."""
    role = state.role
    assert isinstance(role, Unattached | Prospective)
    role.voted = candidate
    state.election = role.election_state()
    state.emit(PersistElection(state.election))
    if state.may_campaign:
        state.arm(Timer.ELECTION, state.election_timeout_ms())


def handle_vote_response(state: RaftState, event: ResponseReceived) -> None:
    """Counts the answer to the election that is on (late ones were dropped before)."""
    role, response = state.role, event.response
    assert isinstance(event.request, VoteRequest)
    assert isinstance(response, VoteResponse)
    if not isinstance(role, Prospective | Candidate) or response.error is not ErrorCode.NONE:
        return
    if event.request.pre_vote is not isinstance(role, Prospective):
        return
    role.tally.record(event.peer, response.granted)
    conclude(state)


def conclude(state: RaftState) -> None:
    """Acts on the result of the election that is on, if there is one."""
    role = state.role
    if isinstance(role, Prospective):
        result = role.tally.result()
        if result is VoteResult.WON:
            becoming.become_candidate(state)
            conclude(state)  # a single voter has won already
        elif result is VoteResult.LOST:
            give_up_pre_vote(state)
    elif isinstance(role, Candidate) and role.tally.result() is VoteResult.WON:
        becoming.become_leader(state)
    hurry_if_hopeless(state)


def hurry_if_hopeless(state: RaftState) -> None:
    """A candidate that cannot win now (the others refused, or are not there to be asked) need not sit out its timeout:
    it tries again after a short random back-off, longer each time. PreVote keeps that harmless."""
    role = state.role
    if not isinstance(role, Candidate):
        return
    reachable = [voter for voter in role.tally.unanswered() if voter not in state.backing_off]
    if rules.election_result(len(role.tally.voters), len(role.tally.granting()), len(reachable)) is VoteResult.LOST:
        longest = min(state.settings.election_backoff_max_ms, CANDIDATE_BACKOFF_MS << min(state.candidacies, 8))
        state.arm_earlier(Timer.ELECTION, state.random_between(state.settings.retry_backoff_ms // 2, longest))


def give_up_pre_vote(state: RaftState) -> None:
    """Back to the leader it left, if there is one; else wait for the next chance (kraft.md 1.2)."""
    role = state.role
    assert isinstance(role, Prospective)
    if role.leader_id is not None and role.leader_id != state.key.id and role.leader_endpoint is not None:
        becoming.become_follower(state, role.epoch, role.leader_id, role.leader_endpoint, Cause.PRE_VOTES_LOST)
    else:
        becoming.become_unattached(state, role.epoch, Cause.PRE_VOTES_LOST, role.leader_id, role.voted)


def ask_again_soon(state: RaftState) -> None:
    """A pre-vote that was not answered was lost on the way: whoever asked has waited long enough already (ours; KIP-996 waits
    another election timeout)."""
    if isinstance(state.role, Unattached) and Timer.ELECTION in state.timers:
        state.arm_earlier(Timer.ELECTION, becoming.early_election_ms(state))


def election_timeout(state: RaftState) -> None:
    """Nobody leads, or nobody was elected, for an election timeout."""
    role = state.role
    if isinstance(role, Prospective):
        give_up_pre_vote(state)
        ask_again_soon(state)
    elif isinstance(role, Candidate):
        campaign(state, Cause.CANDIDACY_OVER)
    elif isinstance(role, Unattached):
        campaign(state, Cause.ELECTION_TIMEOUT)
    else:
        becoming.become_unattached(state, rules.next_epoch(state.epoch), Cause.ELECTION_TIMEOUT)


def fetch_timeout(state: RaftState) -> None:
    """The leader was silent too long, or is known to be gone."""
    role = state.role
    assert isinstance(role, Follower)
    role.leader_suspected = True
    campaign(state, Cause.FETCH_TIMEOUT)


def campaign(state: RaftState, cause: Cause) -> None:
    """Asks for pre-votes, unless this replica may not be elected or is leaving."""
    if state.may_campaign and not state.shutting_down:
        becoming.become_prospective(state, cause)
        conclude(state)


def leave_campaign(state: RaftState) -> None:
    """Called when the voter set changed: who is a voter no longer stops asking."""
    role = state.role
    if isinstance(role, Prospective | Candidate) and not state.may_campaign:
        becoming.become_unattached(state, role.epoch, Cause.NO_VOTER, role.leader_id, role.voted)


def wanted_votes(state: RaftState) -> None:
    """Asks every voter that has not answered, until the election is decided."""
    role = state.role
    if not isinstance(role, Prospective | Candidate) or role.tally.result() is not VoteResult.PENDING:
        return
    for voter in state.voters.latest.others(state.key.id):
        if voter.key.id in role.tally.unanswered() and state.may_send(voter.key.id, VoteRequest):
            request = VoteRequest(
                cluster_id=state.settings.cluster_id,
                epoch=role.epoch,
                sender=state.key,
                receiver=voter.key,
                last=rules.candidate_end(state.log),
                pre_vote=isinstance(role, Prospective),
            )
            state.send(voter.key.id, voter.endpoint, request)
