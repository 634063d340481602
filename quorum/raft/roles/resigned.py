"""Resigned: was leader of this epoch and will not be again; it names itself so that it votes for no other in it."""

import msgspec

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.voters import ReplicaKey


class Resigned(msgspec.Struct):
    """Who led this epoch and leads no more. Also how a leader comes back after a crash: it may have lost records it
    appended but had not synced, and must not give their (offset, epoch) names to others. ``unacknowledged``: voters that
    have not confirmed EndQuorumEpoch."""

    epoch: int
    leader_id: int  # itself
    preferred: tuple[ReplicaKey, ...]
    unacknowledged: dict[int, bool]

    @property
    def voted(self) -> None:
        return None

    def election_state(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, None)

    def grants_vote(self, candidate: ReplicaKey, up_to_date: bool) -> bool:
        return False

    def grants_pre_vote(self, up_to_date: bool) -> bool:
        return up_to_date
