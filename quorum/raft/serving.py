"""Taking fetches: the leader for everyone, followers for observers (KIP-595; kraft.md 1.5)."""

from ottla.quorum.raft import becoming, commitment, parking, rules
from ottla.quorum.raft.events import RequestReceived
from ottla.quorum.raft.messages import FetchRequest, FetchResponse
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader, Progress
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.transitions import Cause
from ottla.quorum.raft.voters import ReplicaKey
from ottla.runtime.errors import ErrorCode

MAX_OBSERVERS = 100_000  # a bound for what strangers can make a leader remember


def handle_fetch(state: RaftState, event: RequestReceived) -> None:
    """Refuse, send elsewhere (diverging, snapshot), answer, or let wait. Only a valid fetch is an acknowledgement."""
    request = event.request
    assert isinstance(request, FetchRequest)
    error = _refusal(state, request)
    _note_kind(state, request)
    if error is not ErrorCode.NONE:
        give_way(state, error, request.epoch)
        state.respond(event.token, FetchResponse(**state.response_fields(error)))
    elif not parking.may_judge(state, request):
        parking.park(state, request, event.token)
    elif not parking.redirect(state, request, event.token):
        _acknowledge(state, request)
        if not isinstance(state.role, Leader | Follower):  # that was what a leaving leader waited for
            state.respond(event.token, FetchResponse(**state.response_fields(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
        elif parking.has_news(state, request) or request.max_wait_ms == 0:
            parking.answer(state, request, event.token)
        else:
            parking.park(state, request, event.token)


def _refusal(state: RaftState, request: FetchRequest) -> ErrorCode:
    if request.max_wait_ms < 0 or request.offset < 0 or not 0 <= request.last_epoch <= request.epoch:
        return ErrorCode.INVALID_REQUEST
    return leadership_refusal(state, request.epoch, request.sender)


def leadership_refusal(state: RaftState, epoch: int, sender: ReplicaKey) -> ErrorCode:
    """Why a leader's business is refused here. FENCED: the asker is behind. UNKNOWN: we are. NOT_LEADER: neither, and still
    the wrong door (kraft.md 1.4). DUPLICATE_VOTER: there is another replica with this node id.

    Followers of the epoch take observers, but not voters: theirs are acknowledgements, which only the leader counts."""
    if rules.is_fenced(epoch, state.epoch):
        return ErrorCode.FENCED_LEADER_EPOCH
    if rules.must_follow_epoch(epoch, state.epoch):
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if isinstance(state.role, Leader):
        return ErrorCode.DUPLICATE_VOTER if is_twin(state, state.role, sender) else ErrorCode.NONE
    return ErrorCode.NONE if _serves_observer(state, sender) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def give_way(state: RaftState, refusal: ErrorCode, epoch: int) -> None:
    """A leader that is asked in a higher epoch leads no more (dissertation 3.3): in its own nobody who heard of that one can be served, and an
    observer, which never campaigns, would be refused for ever. A candidate that is lost for good may have left it there, or all the voters
    that were lost before a recovery. (Kafka's leader goes on.)"""
    if refusal is ErrorCode.UNKNOWN_LEADER_EPOCH and isinstance(state.role, Leader):
        becoming.become_unattached(state, epoch, Cause.HIGHER_EPOCH)


def _note_kind(state: RaftState, request: FetchRequest) -> None:
    """Whether it may vote, an observer says also where it is refused, or sent to a snapshot: it was another kind of node before."""
    role = state.role
    if isinstance(role, Leader) and request.sender in role.observers:
        role.observers[request.sender].can_vote = request.can_vote


def is_twin(state: RaftState, role: Leader, sender: ReplicaKey) -> bool:
    """Whether another replica with the sender's node id is a voter, and lives: the leader itself does."""
    if sender.id == state.key.id:
        return rules.is_twin(sender, state.key, True)
    progress = role.voters.get(sender.id)
    return progress is not None and rules.is_twin(
        sender, progress.key, progress.knows_leader or is_in_touch(state, progress)
    )


def is_in_touch(state: RaftState, progress: Progress) -> bool:
    return rules.is_in_touch(progress.last_fetch_ms, state.now_ms, state.settings.fetch_timeout_ms)


def _serves_observer(state: RaftState, sender: ReplicaKey) -> bool:
    role = state.role
    if not isinstance(role, Follower) or not state.is_voter or rules.is_voter(state.voters.latest, sender):
        return False
    return rules.may_serve_observers(role.has_fetched, role.leader_suspected)


def _acknowledge(state: RaftState, request: FetchRequest) -> None:
    role = state.role
    if not isinstance(role, Leader):
        return
    if rules.is_voter(state.voters.latest, request.sender):
        if request.sender.id in role.voters:
            _note_progress(state, role.voters[request.sender.id], request)
            note_contact(state, role, request.sender.id)
            commitment.update_leader_high_watermark(state)
        return
    if len(role.observers) >= MAX_OBSERVERS and request.sender not in role.observers:
        role.observers = living_observers(state, role, state.now_ms)
    if len(role.observers) < MAX_OBSERVERS or request.sender in role.observers:
        progress = role.observers.setdefault(request.sender, Progress(request.sender))
        _note_progress(state, progress, request)


def living_observers(state: RaftState, role: Leader, now_ms: int) -> dict[ReplicaKey, Progress]:
    """Those that fetched within the observer session. A plain broker that fetches no more has turned to a follower."""
    session_ms, short_ms = state.settings.observer_session_ms, 2 * state.settings.fetch_timeout_ms
    return {
        key: progress
        for key, progress in role.observers.items()
        if not rules.is_forgotten(progress.last_fetch_ms, now_ms, session_ms if progress.can_vote else short_ms)
    }


def _note_progress(state: RaftState, progress: Progress, request: FetchRequest) -> None:
    progress.key = request.sender
    progress.end_offset = request.offset
    progress.last_fetch_ms = state.now_ms
    progress.knows_leader = True
    progress.can_vote = request.can_vote
    if request.offset >= parking.read_limit(state, request.sender):
        progress.last_caught_up_ms = state.now_ms


def note_contact(state: RaftState, role: Leader, voter_id: int) -> None:
    """Notes that a voter was heard from. Check-quorum: each majority heard from gives the leader another 1.5 fetch timeouts
    (kraft.md 1.7)."""
    role.heard_from[voter_id] = True
    if rules.has_quorum(len(role.heard_from), len(state.voters.latest), state.is_voter):
        role.heard_from.clear()
        state.arm(Timer.CHECK_QUORUM, becoming.check_quorum_ms(state))
