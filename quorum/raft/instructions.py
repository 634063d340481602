"""What a replica wants done. The shell performs the instructions of one event in order, each before the next event.

Persisting, appending and truncating are done (not merely begun) when performed; only Sync is begun, and its end is reported
as LogSynced. If one of them fails the node must stop: what follows in the list relies on it.
"""

from enum import StrEnum
from typing import Any

import msgspec

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import BatchInfo, FetchResponse, FetchSnapshotResponse, Request, Response
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, VoterSet


class PersistElection(msgspec.Struct, frozen=True):
    """Write and fsync, before anything that follows is done."""

    state: ElectionState


class SendRequest(msgspec.Struct, frozen=True):
    """To ``peer`` at ``endpoint``; its answer (or failure) comes back as ResponseReceived with the same ``request``."""

    peer: int
    endpoint: Endpoint
    request: Request


class Respond(msgspec.Struct, frozen=True):
    token: Any
    response: Response


class ReadAndRespond(msgspec.Struct, frozen=True):
    """Fill ``response.records`` with whole batches of [offset, limit), up to ``max_bytes`` but at least one, and send it."""

    token: Any
    response: FetchResponse
    offset: int
    limit: int
    max_bytes: int


class AppendBatches(msgspec.Struct, frozen=True):
    """Append these bytes as they are; they begin at the log's end."""

    data: bytes
    batches: tuple[BatchInfo, ...]


class LeaderChange(msgspec.Struct, frozen=True):
    """Control record: who was elected, by whom."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[int, ...]


class KRaftVersion(msgspec.Struct, frozen=True):
    """Control record: the level of the feature kraft.version from here on."""

    level: int


class Voters(msgspec.Struct, frozen=True):
    """Control record: who votes from here on."""

    voters: VoterSet


class AppendControl(msgspec.Struct, frozen=True):
    """Append one control batch at ``offset`` (the log's end). ``mark``: of the epoch that begins with it."""

    offset: int
    epoch: int
    records: tuple[LeaderChange | KRaftVersion | Voters, ...]
    mark: int = 0


class TruncateTo(msgspec.Struct, frozen=True):
    offset: int


class Sync(msgspec.Struct, frozen=True):
    """Begin to make the log durable up to ``end_offset``; report LogSynced. Several may share one fdatasync; they end in the
    order in which they were asked for."""

    end_offset: int


class CommitAdvanced(msgspec.Struct, frozen=True):
    """Everything below ``high_watermark`` is committed: for ever."""

    high_watermark: int


class LeaderChanged(msgspec.Struct, frozen=True):
    """Tell the application, once it has been given everything below ``deliver_after`` (the local node's own leadership waits
    until the epoch's first record, and so all before it, is committed)."""

    leader_id: int | None
    epoch: int
    deliver_after: int = 0


class ReadSnapshotAndRespond(msgspec.Struct, frozen=True):
    """Fill ``response`` with up to ``max_bytes`` of its snapshot from its position on, size, checksum and voters; or with
    SNAPSHOT_NOT_FOUND / POSITION_OUT_OF_RANGE."""

    token: Any
    response: FetchSnapshotResponse
    max_bytes: int


class StoreSnapshotChunk(msgspec.Struct, frozen=True):
    """Append ``data`` at ``position`` of the partial snapshot; position 0 begins it anew, whatever there was."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


class InstallSnapshot(msgspec.Struct, frozen=True):
    """The partial snapshot is complete: verify, make durable, restart the log after it, report SnapshotInstalled."""

    snapshot: OffsetAndEpoch
    size: int
    checksum: int
    voters: VoterSet | None
    mark: int = 0


class FaultKind(StrEnum):
    TWO_LEADERS = "two leaders in one epoch"
    COMMITTED_TRUNCATION = "asked to truncate committed records"
    REJECTED_REQUEST = "a peer calls our request invalid"


class Fault(msgspec.Struct, frozen=True):
    """Something that must never happen has: the node stops rather than guess."""

    kind: FaultKind
    detail: str


Instruction = (
    PersistElection
    | SendRequest
    | Respond
    | ReadAndRespond
    | AppendBatches
    | AppendControl
    | TruncateTo
    | Sync
    | CommitAdvanced
    | LeaderChanged
    | ReadSnapshotAndRespond
    | StoreSnapshotChunk
    | InstallSnapshot
    | Fault
)
