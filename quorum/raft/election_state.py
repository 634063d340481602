"""What must survive a crash for elections to be safe (kraft.md 1.3)."""

import msgspec

from ottla.quorum.raft.voters import ReplicaKey


class ElectionState(msgspec.Struct, frozen=True):
    """What a replica promised, and whom it follows. Epoch 0 without leader and vote is the primordial state: what a missing
    file means."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None
