"""Candidate: has voted for itself in a new epoch and asks the others to."""

import msgspec

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.roles.tally import Tally
from ottla.quorum.raft.voters import ReplicaKey


class Candidate(msgspec.Struct):
    """Who stands for election. A rejected candidate stays one until its timer expires: that is the back-off."""

    epoch: int
    tally: Tally
    voted: ReplicaKey  # itself
    leader_id: None = None

    def election_state(self) -> ElectionState:
        return ElectionState(self.epoch, None, self.voted)

    def grants_vote(self, candidate: ReplicaKey, up_to_date: bool) -> bool:
        return False  # its vote is its own

    def grants_pre_vote(self, up_to_date: bool) -> bool:
        return up_to_date
