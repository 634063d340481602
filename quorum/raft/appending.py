"""The leader's side of the log: what the application appends."""

from ottla.quorum.raft import parking, rules
from ottla.quorum.raft.events import AppendRequested
from ottla.quorum.raft.instructions import AppendBatches, Sync
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.state import RaftState


def handle_append(state: RaftState, event: AppendRequested) -> None:
    """Followers are given the records before the leader's own sync is through: both happen at once."""
    role = state.role
    leading = role.epoch if isinstance(role, Leader) and not state.shutting_down else None
    if not rules.may_append(event.epoch, leading):
        return
    state.emit(AppendBatches(event.data, event.batches))
    for batch in event.batches:
        state.log.append(batch.epoch, batch.base_offset, batch.last_offset + 1)
    parking.complete_parked(state)
    state.emit(Sync(state.log.end))
