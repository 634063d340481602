"""What a new voter set means for a replica: whom the leader counts, and whether this replica votes."""

from ottla.quorum.raft import becoming, rules, serving
from ottla.quorum.raft.messages import VoterChangeResponse
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader, Progress
from ottla.quorum.raft.roles.unattached import Unattached
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.transitions import Cause
from ottla.quorum.raft.voters import ReplicaKey


def voters_changed(state: RaftState) -> None:
    """The leader counts other replicas now; who follows, or has nobody to follow, may have become a voter, or none."""
    role = state.role
    if isinstance(role, Leader):
        _follow_voters(state, role)
    elif isinstance(role, Follower) and state.may_campaign and Timer.FETCH not in state.timers:
        state.arm(Timer.FETCH, state.settings.fetch_timeout_ms)  # it expired while there was no vote to campaign with
    elif isinstance(role, Unattached) and state.may_campaign and Timer.ELECTION not in state.timers:
        state.arm(Timer.ELECTION, state.election_timeout_ms())


def _follow_voters(state: RaftState, role: Leader) -> None:
    before = {progress.key: progress for progress in (*role.voters.values(), *role.observers.values())}
    others = state.voters.latest.others(state.key.id)
    role.voters = {voter.key.id: _progress(voter.key, before) for voter in others}
    tracked = [progress.key for progress in role.voters.values()]
    role.observers = {
        key: progress
        for key, progress in before.items()
        if key not in tracked and (key in role.observers or serving.is_in_touch(state, progress))
    }
    role.heard_from = {node: True for node in role.heard_from if node in role.voters}
    if not others:
        state.disarm(Timer.CHECK_QUORUM)
    elif Timer.CHECK_QUORUM not in state.timers:
        state.arm(Timer.CHECK_QUORUM, becoming.check_quorum_ms(state))
        state.arm(Timer.BEGIN_QUORUM, state.settings.fetch_timeout_ms // 2)


def _progress(key: ReplicaKey, before: dict[ReplicaKey, Progress]) -> Progress:
    return next((progress for other, progress in before.items() if other.matches(key)), None) or Progress(key)


def conclude_change(state: RaftState, role: Leader) -> None:
    """Called when the high watermark rose: who asked for a change is answered, and a leader that removed itself goes."""
    change = role.change
    if change is not None and rules.change_is_committed(change.offset, state.high_watermark):
        role.change = None
        if change.token is not None:
            state.respond(change.token, VoterChangeResponse(**state.response_fields()))
    removed = not state.is_voter and rules.change_is_committed(state.voters.latest_offset, state.high_watermark)
    if removed:
        becoming.become_resigned(state, Cause.REMOVED)
