"""Unattached: knows the epoch and follows nobody in it."""

import msgspec

from ottla.quorum.raft import rules
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.voters import ReplicaKey


class Unattached(msgspec.Struct):
    """Who follows nobody yet. ``leader_id`` may be known while its endpoint is not; ``voted`` is the vote cast in this
    epoch."""

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None

    def election_state(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted)

    def grants_vote(self, candidate: ReplicaKey, up_to_date: bool) -> bool:
        return rules.may_vote_for(candidate, self.voted, self.leader_id, up_to_date)

    def grants_pre_vote(self, up_to_date: bool) -> bool:
        return up_to_date
