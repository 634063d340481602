"""Prospective: asks whether it would be elected, before it disturbs anyone with a new epoch (KIP-996)."""

import msgspec

from ottla.quorum.raft import rules
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.roles.tally import Tally
from ottla.quorum.raft.voters import Endpoint, ReplicaKey


class Prospective(msgspec.Struct):
    """Who asks whether it would be elected. Same epoch, leader and vote as before: becoming prospective promises nothing
    and is not persisted."""

    epoch: int
    tally: Tally
    leader_id: int | None = None
    leader_endpoint: Endpoint | None = None
    voted: ReplicaKey | None = None

    def election_state(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted)

    def grants_vote(self, candidate: ReplicaKey, up_to_date: bool) -> bool:
        return rules.may_vote_for(candidate, self.voted, self.leader_id, up_to_date)

    def grants_pre_vote(self, up_to_date: bool) -> bool:
        return up_to_date
