"""Follower: fetches from the leader of its epoch. As an observer (not in the voter set) it only ever does that."""

import msgspec

from ottla.quorum.raft import rules
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.voters import Endpoint, ReplicaKey


class Download(msgspec.Struct):
    """A snapshot on its way from ``source``: ``position`` bytes are held of the one with ``checksum`` (two nodes' snapshots of one
    place need not be the same bytes). ``failures``: requests in a row that brought nothing. ``installing``: all bytes are here, and the
    shell is checking them."""

    snapshot: OffsetAndEpoch
    source: int
    endpoint: Endpoint
    position: int = 0
    checksum: int | None = None
    failures: int = 0
    installing: bool = False


class Follower(msgspec.Struct):
    """Who follows the epoch's leader. ``has_fetched``: a fetch of this follower succeeded, so a leader exists and pre-votes
    are refused, unless ``leader_suspected``: the leader said good-bye, disowned the epoch, or its stream broke."""

    epoch: int
    leader_id: int
    endpoint: Endpoint
    voted: ReplicaKey | None = None
    has_fetched: bool = False
    leader_suspected: bool = False
    download: Download | None = None
    damaged_downloads: int = 0  # in a row
    source: int | None = None  # observers: the voter fetched from, when not the leader

    def election_state(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted)

    def grants_vote(self, candidate: ReplicaKey, up_to_date: bool) -> bool:
        return False

    def grants_pre_vote(self, up_to_date: bool) -> bool:
        return rules.follower_grants_pre_vote(up_to_date, self.has_fetched, self.leader_suspected)
