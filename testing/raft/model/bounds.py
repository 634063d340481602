"""How much may happen in a walk, and what is left of it."""

from typing import NamedTuple

import msgspec

from ottla.quorum.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.testing.raft.cluster import endpoint_of, key_of


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """All interleavings of so much are walked."""

    epoch: int  # nobody campaigns from this epoch on
    campaigns: int = 2  # times that a timer makes a node campaign
    appends: int = 0
    crashes: int = 0
    losses: int = 0
    duplicates: int = 0
    resignations: int = 0  # by check-quorum
    shutdowns: int = 0
    adds: int = 0  # times that a leader is asked to let a node vote; refusals do not count
    removes: int = 0  # likewise to let it vote no more
    moves: int = 0  # times that a node dies and comes back at another address
    snapshots: int = 0  # that cut the log where they end
    nodes: int = 3
    voters: int = 3  # at first, the nodes from 1 on; the others are controllers that may be added
    formatted: bool = False  # the voters are known by their directories: the first leader writes them to the log
    # Where the walk begins: "cold"; "led": node 1 was elected and everyone has heard of it; "appended": then it appended a
    # record, which all have and none has synced; "lagging": then one was committed without node 3, whose fetch is lost.
    start: str = "cold"
    # An answer that nobody waits for changes nothing when it comes; without it the same states are fewer. Kept where late
    # answers are the point.
    keep_late_answers: bool = False
    records_per_fetch: int = 64
    snapshot_piece_bytes: int = 20  # of 12 a record

    @property
    def reshapes(self) -> bool:
        """Whether voters or the log's start change: more of a node's state matters then."""
        return bool(self.adds or self.removes or self.moves or self.snapshots)

    def voter_set(self) -> VoterSet:
        """That of the configuration, or the one that all were formatted with."""
        nodes = range(1, self.voters + 1)
        keys = [key_of(node) if self.formatted else ReplicaKey(node) for node in nodes]
        return VoterSet.of(Voter(key, endpoint_of(key.id)) for key in keys)


class Budget(NamedTuple):
    """What is left of the bounds."""

    campaigns: int
    appends: int
    crashes: int
    losses: int
    duplicates: int
    resignations: int
    shutdowns: int
    adds: int
    removes: int
    moves: int
    snapshots: int

    @classmethod
    def of(cls, bounds: Bounds) -> "Budget":
        return cls(*(getattr(bounds, name) for name in cls._fields))

    def less(self, name: str) -> "Budget":
        return self._replace(**{name: getattr(self, name) - 1})
