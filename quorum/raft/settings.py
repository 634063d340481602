"""The times and sizes the core goes by."""

import msgspec

from ottla.quorum.raft.voters import Endpoint


class RaftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds and bytes. The defaults are Kafka's (kraft.md 1.12) except where a comment says why."""

    cluster_id: str
    election_timeout_ms: int = 1000  # drawn from [1x, 2x)
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    snapshot_max_bytes: int = 1 << 20
    # Ours. A node that just started, or that meets an epoch without a leader, knows nobody to wait for; PreVote makes asking
    # early harmless.
    early_election_min_ms: int = 20
    early_election_max_ms: int = 150
    # Ours. How long a voter waits at most after its stream to the leader broke, doubled with each vain attempt.
    disconnect_jitter_ms: int = 50
    # Ours. How long a leader that leaves waits at most for what it appended to be committed.
    hand_over_wait_ms: int = 200
    # Ours. How long the second of a leader's ranked successors waits for the first, doubled with each further rank: more
    # than an election takes on a busy machine, or two candidates of one epoch split the votes.
    succession_step_ms: int = 100
    observer_session_ms: int = 300_000
    # Ours. Whether a leader marks its epoch (LogSummary). The model checker does not: nobody forgets there, and to it the same epoch by
    # another leader of another walk is the same.
    marks_epochs: bool = True
    can_vote: bool = True  # a controller, that may become a voter; False: a plain broker
    fetch_from_any_voter: bool = False  # observers only: committed records come from any voter
    # Ours. How long an observer at most avoids a source that failed, doubled with each failure in a row.
    source_pause_max_ms: int = 30_000
    hosts: tuple[str, ...] = ()  # observers: other names of the machine than the endpoint's; a voter there is near
    auto_join: bool = False
    bootstrap: tuple[Endpoint, ...] = ()  # any nodes of the quorum, for whoever does not know its voters
