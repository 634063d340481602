"""What a quorum node tells the application, and what it can be asked."""

from typing import NamedTuple, Protocol

from ottla.quorum.raft.voters import Endpoint


class LeaderAndEpoch(NamedTuple):
    """Who leads an epoch; ``leader_id`` None: nobody is known to."""

    leader_id: int | None
    epoch: int


class CommittedBatch(NamedTuple):
    """One batch of the metadata log, committed for ever. ``records`` are the values; empty for control batches, which only
    move the offset on. ``cause``: what made it, as given to ``append``. Time in ms since 1970."""

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    records: list[bytes]
    cause: str = ""


class QuorumListener(Protocol):
    """The application, which is told what is committed. Called on the loop, in log order, never concurrently; it may
    append, but must not block."""

    def on_commit(self, batch: CommittedBatch) -> None: ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """The local node's own leadership is told only after everything committed before it was delivered."""
        ...

    def on_confirmed(self) -> None:
        """Told once, before the first commit: what the state was made of is committed in the log that this node follows now. Until
        then that may turn out to be gone (see `on_snapshot`)."""
        ...

    async def on_snapshot(self, store_path: str | None, offset: int, epoch: int) -> None:
        """The state below ``offset`` is to be replaced by the store in the file at ``store_path`` (None: by nothing); until it
        is, nothing is committed and no leadership of this node is told. When a later snapshot arrives meanwhile the file may
        go: an exception then only says that this one was not taken. It may stand before what was told and not confirmed."""
        ...


class ReplicaDescription(NamedTuple):
    """How far a replica is, as the leader knows. Times are ms since 1970, -1 never; ``log_end_offset`` -1 unknown."""

    id: int
    directory_id: bytes | None
    endpoint: Endpoint | None
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumDescription(NamedTuple):
    """How the quorum stands. Only a leader knows how far the others are."""

    leader_id: int | None
    epoch: int
    high_watermark: int
    voters: list[ReplicaDescription]
    observers: list[ReplicaDescription]


class QuorumMembers(NamedTuple):
    """Who makes up the quorum, as its leader knows: node ids. ``present``: those heard from lately, itself included.
    ``kraft_version``: what is appended says so; ``is_committed``: what is committed, too."""

    kraft_version: int = 0
    voters: tuple[int, ...] = ()
    present: frozenset[int] = frozenset()
    is_committed: bool = True


class QuorumFailure(Exception):
    """The node cannot go on: its disk failed, or something happened that must never happen."""


class NotLeaderError(Exception):
    """Only the leader of the epoch appends. ``leader`` is whom to ask, as far as is known."""

    def __init__(self, leader: LeaderAndEpoch) -> None:
        super().__init__(f"not the leader; epoch {leader.epoch} is led by {leader.leader_id}")
        self.leader = leader
