"""What nodes say to one another (kraft.md 1.5), without the bytes: gRPC's protobuf is made from these in ``messages_proto``.

Every request names the sender's epoch; every response names the leader and epoch the receiver knows, so that any
exchange teaches the one who is behind.
"""

import msgspec

from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, VoterSet
from ottla.runtime.errors import ErrorCode


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica asks another. ``receiver`` is the replica that is meant (None: whoever listens there)."""

    cluster_id: str
    epoch: int
    sender: ReplicaKey
    receiver: ReplicaKey | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer tells of its sender. ``leader_id`` None: not known in ``epoch``."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int
    leader_id: int | None = None
    leader_endpoint: Endpoint | None = None


class VoteRequest(Request, frozen=True, kw_only=True):
    """Asks for a vote. ``last`` is the end of the candidate's *durable* log and the epoch there. A pre-vote (KIP-996) asks
    without an epoch change."""

    last: OffsetAndEpoch
    pre_vote: bool


class VoteResponse(Response, frozen=True, kw_only=True):
    granted: bool


class BeginQuorumEpochRequest(Request, frozen=True, kw_only=True):
    """A new leader's announcement: followers pull, so they must learn whom to ask."""

    endpoint: Endpoint


class BeginQuorumEpochResponse(Response, frozen=True, kw_only=True):
    """Answers the announcement. ``voter``: who answers where the voter listens."""

    voter: ReplicaKey | None = None


class EndQuorumEpochRequest(Request, frozen=True, kw_only=True):
    """A resigning leader's farewell; ``preferred`` ranks the successors, the most caught-up first."""

    endpoint: Endpoint
    preferred: tuple[ReplicaKey, ...]


class EndQuorumEpochResponse(Response, frozen=True, kw_only=True):
    pass


class BatchInfo(msgspec.Struct, frozen=True):
    """A record batch as the core sees it. ``voters``: the set a control batch carries, if it does. ``mark``: of the leader whose epoch
    begins with it (see LogSummary)."""

    base_offset: int
    last_offset: int
    epoch: int
    voters: VoterSet | None = None
    mark: int = 0


class Records(msgspec.Struct, frozen=True):
    """Whole batches: opaque to the core but for their headers. ``data`` is whatever the shell's log reads and appends."""

    data: bytes = b""
    batches: tuple[BatchInfo, ...] = ()


NO_RECORDS = Records()


class FetchRequest(Request, frozen=True, kw_only=True):
    """Asks for records from ``offset``: which says that the sender holds all below it durably, the last in
    ``last_epoch``, which its leader marked with ``last_mark`` (0: not known). A plain broker says that it cannot vote: it
    syncs nothing."""

    offset: int
    last_epoch: int
    high_watermark: int
    max_wait_ms: int
    max_bytes: int
    can_vote: bool = True
    last_mark: int = 0


class FetchResponse(Response, frozen=True, kw_only=True):
    """What a fetch is answered. ``high_watermark`` -1: not known (yet). At most one of ``diverging``, ``snapshot`` and
    ``records`` says something."""

    high_watermark: int = -1
    log_start: int = 0
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    records: Records = NO_RECORDS


class FetchSnapshotRequest(Request, frozen=True, kw_only=True):
    """Asks for a snapshot's bytes from ``position`` on."""

    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int


class FetchSnapshotResponse(Response, frozen=True, kw_only=True):
    """A piece of a snapshot. ``checksum`` (CRC-32C) and ``size`` (bytes) are the whole snapshot's; ``voters`` those in
    force at its end; ``mark`` of its epoch (see LogSummary)."""

    snapshot: OffsetAndEpoch | None = None
    position: int = 0
    size: int = 0
    checksum: int = 0
    voters: VoterSet | None = None
    data: bytes = b""
    mark: int = 0


class AddVoterRequest(Request, frozen=True, kw_only=True):
    """From an administrator (or the joining node itself): let ``voter`` vote. Answered when that is committed, or else when
    it is in force. ``asked_before``: what came of an earlier asking is not known; so who is that voter by now was added."""

    voter: ReplicaKey
    endpoint: Endpoint
    ack_when_committed: bool = True
    asked_before: bool = False


class RemoveVoterRequest(Request, frozen=True, kw_only=True):
    """From an administrator: take ``voter``'s vote away. ``asked_before``: what came of an earlier asking is not known; so
    who is no voter any more was removed."""

    voter: ReplicaKey
    asked_before: bool = False


class UpdateVoterRequest(Request, frozen=True, kw_only=True):
    """From a voter whose endpoint is no longer what the log says."""

    endpoint: Endpoint


class VoterChangeResponse(Response, frozen=True, kw_only=True):
    """What came of a change of voters. ``try_again``: what is in the way goes away by itself. ``undecided``: the change may
    have been made."""

    message: str = ""
    try_again: bool = False
    undecided: bool = False
