"""Leader: appends, counts who has fetched what, and from that knows what is committed."""

import msgspec

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.voters import Endpoint, ReplicaKey

UNKNOWN_OFFSET = -1


class Progress(msgspec.Struct):
    """What a replica's fetches have told. Times are ms on the leader's clock, -1 never."""

    key: ReplicaKey
    end_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    knows_leader: bool = False  # it acknowledged BeginQuorumEpoch, or fetched in this epoch
    can_vote: bool = True  # a controller, not a plain broker


class VoterChange(msgspec.Struct):
    """A change of the voter set that is appended and not yet committed; ``token`` waits for the commit."""

    offset: int
    token: object = None


class Leader(msgspec.Struct):
    """Who leads the epoch. ``epoch_start`` is the log end when elected; the first record of the epoch lies there."""

    epoch: int
    leader_id: int  # itself
    endpoint: Endpoint
    epoch_start: int
    voters: dict[int, Progress]  # the other voters, by node id
    observers: dict[ReplicaKey, Progress]
    heard_from: dict[int, bool]  # voters that fetched since the check-quorum timer was last reset
    granting: tuple[int, ...] = ()
    high_watermark_known: bool = False  # something of this epoch is committed
    change: VoterChange | None = None

    @property
    def voted(self) -> None:
        return None

    def election_state(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, None)

    def grants_vote(self, candidate: ReplicaKey, up_to_date: bool) -> bool:
        return False

    def grants_pre_vote(self, up_to_date: bool) -> bool:
        return False
