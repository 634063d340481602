"""The high watermark: what is committed, and who is told (kraft.md 1.6)."""

from ottla.quorum.raft import leaving, parking, rules, voter_tracking
from ottla.quorum.raft.instructions import CommitAdvanced
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.state import RaftState


def update_leader_high_watermark(state: RaftState) -> None:
    """Called whenever an acknowledgement arrived: a voter's fetch, or the end of the leader's own sync."""
    role = state.role
    if not isinstance(role, Leader):
        return
    offset = rules.committed_offset(_acknowledged_ends(state, role))
    if rules.may_commit(offset, role.epoch_start):
        role.high_watermark_known = True
        raise_high_watermark(state, offset)
        voter_tracking.conclude_change(state, role)
        leaving.hand_over_when_ready(state)


def _acknowledged_ends(state: RaftState, role: Leader) -> list[int]:
    own = rules.acknowledged_by_leader(state.log)
    counting = rules.counting_voters(state.voters.latest)
    return [own if voter_id == state.key.id else role.voters[voter_id].end_offset for voter_id in counting]


def raise_high_watermark(state: RaftState, offset: int) -> None:
    """Tells the application and every fetch that waits to hear of it."""
    raised = rules.raised_high_watermark(state.high_watermark, offset)
    if raised != state.high_watermark:
        state.high_watermark = raised
        state.emit(CommitAdvanced(raised))
        parking.complete_parked(state)


def handle_synced(state: RaftState, end_offset: int) -> None:
    """A sync may end after the log was cut: it says nothing about what lies beyond."""
    state.log.durable_end = max(state.log.durable_end, min(end_offset, state.log.end))
    update_leader_high_watermark(state)
