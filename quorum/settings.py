"""What a quorum node is told when it is made."""

import msgspec

from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.quorum.rpc.transport import MESSAGE_BYTES_MAX
from ottla.quorum.snapshots.limits import SnapshotLimits

ANSWER_BYTES_MAX = MESSAGE_BYTES_MAX // 2
"""Of records, or of a snapshot, in one answer, whatever the settings say: who is sent more than a message may hold loses its connection,
asks again and is sent the same."""


class QuorumSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in milliseconds, sizes in bytes; the names are Kafka's ``controller.quorum.*`` (kraft.md 1.12).

    ``voters`` is the static voter set; without it ``initial_voters`` are those the directory was formatted with; voter
    records in the log override both. ``bootstrap``: nodes that tell who leads. ``is_voter``: a controller. A plain broker
    (False) only observes. ``directory_id`` 16 bytes, None when the directory has none yet.
    """

    node_id: int
    cluster_id: str
    voters: dict[int, Endpoint]
    is_voter: bool
    directory_id: bytes | None = None
    endpoint: Endpoint | None = None  # where this node listens, when ``voters`` does not say
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1 << 20
    fetch_max_wait_ms: int = 500
    # Kafka waits 25 ms for more records with every append. Here an append waits only while an fsync runs, and at most this.
    append_linger_ms: int = 5
    batch_bytes_max: int = 8 << 20
    fetch_from_any_voter: bool = True  # observers: followers serve committed records too
    auto_join: bool = False
    snapshot_fetch_max_bytes: int = 1 << 20
    snapshots: SnapshotLimits = SnapshotLimits()
    initial_voters: VoterSet | None = None
    bootstrap: tuple[Endpoint, ...] = ()
    hosts: tuple[str, ...] = ()  # names of this machine: an observer prefers a voter there

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def own_endpoint(self) -> Endpoint:
        return self.endpoint or self.voters.get(self.node_id, Endpoint("", 0))

    def voter_set(self) -> VoterSet:
        """Who votes as long as the log does not say."""
        if not self.voters and self.initial_voters is not None:
            return self.initial_voters
        return VoterSet.of(Voter(ReplicaKey(node_id), Endpoint(*where)) for node_id, where in self.voters.items())

    def raft(self) -> RaftSettings:
        """What of it the core goes by."""
        return RaftSettings(
            cluster_id=self.cluster_id,
            election_timeout_ms=self.election_timeout_ms,
            fetch_timeout_ms=self.fetch_timeout_ms,
            election_backoff_max_ms=self.election_backoff_max_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            fetch_max_wait_ms=self.fetch_max_wait_ms,
            fetch_max_bytes=min(self.fetch_max_bytes, ANSWER_BYTES_MAX),
            snapshot_max_bytes=min(self.snapshot_fetch_max_bytes, ANSWER_BYTES_MAX),
            can_vote=self.is_voter,
            fetch_from_any_voter=self.fetch_from_any_voter and not self.is_voter,
            auto_join=self.auto_join,
            bootstrap=self.bootstrap,
            hosts=self.hosts,
        )
