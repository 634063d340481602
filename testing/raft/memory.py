"""A replica without disk or network: the production core, and a log and election state in memory that a crash cuts back.

Each record is a batch of its own here, and its payload ``PAYLOAD_BYTES`` long, so that positions need no index.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from ottla.quorum.raft.core import RaftCore
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import AppendRequested, Event, SnapshotInstalled, SnapshotTaken
from ottla.quorum.raft.instructions import (
    AppendBatches,
    AppendControl,
    CommitAdvanced,
    Fault,
    InstallSnapshot,
    Instruction,
    LeaderChanged,
    PersistElection,
    ReadAndRespond,
    ReadSnapshotAndRespond,
    Respond,
    SendRequest,
    StoreSnapshotChunk,
    Sync,
    TruncateTo,
    Voters,
)
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.messages import BatchInfo, FetchSnapshotResponse, Records, Response
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, VoterHistory, VoterSet
from ottla.runtime.errors import ErrorCode

PAYLOAD_BYTES = 8
CONTROL_PAYLOAD = bytes(PAYLOAD_BYTES)


class Entry(NamedTuple):
    """A record of the simulated log."""

    epoch: int
    payload: bytes
    voters: VoterSet | None = None


class Snapshot(msgspec.Struct):
    """The committed prefix it stands for (a stand-in for the image), and the voters then."""

    id: OffsetAndEpoch
    prefix: tuple[Entry, ...]
    voters: VoterSet | None

    @property
    def data(self) -> bytes:
        return encode_prefix(self.prefix)


class Storage:
    """What a node's disk holds. ``crash`` forgets what was not synced, but for a torn rest that happened to reach the disk."""

    def __init__(self, static: VoterSet) -> None:
        self.static = static
        self.election = ElectionState()
        self.start = 0
        self.base_epoch = 0
        self.entries: list[Entry] = []  # from ``start`` on
        self.durable_end = 0
        self.snapshot: Snapshot | None = None
        self.received: Snapshot | None = None  # one that was received whole when the process died

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    def truncate(self, offset: int) -> None:
        del self.entries[offset - self.start :]
        self.durable_end = min(self.durable_end, self.end)

    def restart_at(self, offset: int, epoch: int) -> None:
        """Empty, to be continued after a snapshot."""
        self.entries.clear()
        self.start, self.base_epoch = offset, epoch
        self.durable_end = self.end

    def install(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.restart_at(*snapshot.id)

    def crash(self, kept_of_unsynced: float = 0.0) -> None:
        unsynced = self.end - self.durable_end
        keep = self.durable_end + int(unsynced * kept_of_unsynced)
        del self.entries[keep - self.start :]
        self.durable_end = self.end

    def recover(self) -> None:
        """A snapshot that ends beyond the log was synced, and the log below it was not: the log goes on after it."""
        for snapshot in (self.snapshot, self.received):
            if snapshot is not None and snapshot.id.offset > self.end:
                self.install(snapshot)
        self.received = None

    def summary(self) -> LogSummary:
        """As the shell reads it from the log when it starts; what is on disk then is durable."""
        identity = None if self.snapshot is None else self.snapshot.id
        summary = LogSummary(self.start, self.base_epoch, self.start, self.start, (), identity)
        for offset, entry in enumerate(self.entries, self.start):
            summary.append(entry.epoch, offset, offset + 1)
        summary.durable_end = summary.end
        return summary

    def voter_history(self) -> VoterHistory:
        history = VoterHistory(self.static)
        if self.snapshot is not None and self.snapshot.voters is not None:
            history.replace(self.snapshot.id.offset, self.snapshot.voters)
        for offset, entry in enumerate(self.entries, self.start):
            if entry.voters is not None and offset > history.latest_offset:
                history.append(offset, entry.voters)
        return history

    def read(self, offset: int, limit: int, max_records: int) -> Records:
        chosen = self.entries[offset - self.start : min(limit, offset + max_records) - self.start]
        batches = tuple(
            BatchInfo(offset + index, offset + index, entry.epoch, entry.voters) for index, entry in enumerate(chosen)
        )
        return Records(b"".join(entry.payload for entry in chosen), batches)


class Outbox(msgspec.Struct):
    """What one event made a replica want of the world around it."""

    requests: list[SendRequest] = []
    responses: list[tuple[Any, Response]] = []
    syncs: list[int] = []
    told: list[CommitAdvanced | LeaderChanged] = []  # the application, in this order
    events: list[Event] = []  # to be handled next by this replica itself


class MemoryReplica:
    """A core and its storage; performs instructions the moment they are given."""

    def __init__(
        self,
        settings: RaftSettings,
        key: ReplicaKey,
        endpoint: Endpoint,
        rng: Random,
        storage: Storage,
        *,
        max_records: int = 64,
    ) -> None:
        self.storage = storage
        self.max_records = max_records
        self.core = RaftCore(settings, key, endpoint, rng, storage.summary(), storage.voter_history(), storage.election)
        self.partial = b""
        self.interrupted = False

    def handle(self, event: Event, now_ms: int, limit: int | None = None) -> Outbox:
        """``limit``: how many of the instructions are performed before the process dies."""
        outbox = Outbox()
        instructions = self.core.handle(event, now_ms)
        if limit is not None and len(instructions) > limit:
            self.interrupted = True
            undone = instructions[limit]
            if isinstance(undone, InstallSnapshot):
                self.storage.received = self._received(undone)
            del instructions[limit:]
        for instruction in instructions:
            _PERFORM[type(instruction)](self, instruction, outbox)
        return outbox

    def append_event(self, payloads: Sequence[bytes]) -> AppendRequested:
        """The application's append, made for the epoch and the log end of now."""
        epoch, end = self.core.state.epoch, self.core.state.log.end
        batches = tuple(BatchInfo(end + index, end + index, epoch) for index in range(len(payloads)))
        return AppendRequested(epoch, b"".join(payloads), batches)

    def perform(self, instruction: Instruction, outbox: Outbox) -> None:
        """Fault raises: in these tests nothing excuses it."""
        _PERFORM[type(instruction)](self, instruction, outbox)

    def _send(self, instruction: SendRequest, outbox: Outbox) -> None:
        outbox.requests.append(instruction)

    def _respond(self, instruction: Respond, outbox: Outbox) -> None:
        outbox.responses.append((instruction.token, instruction.response))

    def _read(self, instruction: ReadAndRespond, outbox: Outbox) -> None:
        records = self.storage.read(instruction.offset, instruction.limit, self.max_records)
        outbox.responses.append((instruction.token, msgspec.structs.replace(instruction.response, records=records)))

    def _sync(self, instruction: Sync, outbox: Outbox) -> None:
        outbox.syncs.append(instruction.end_offset)

    def _tell(self, instruction: CommitAdvanced | LeaderChanged, outbox: Outbox) -> None:
        outbox.told.append(instruction)

    def _fault(self, instruction: Fault, outbox: Outbox) -> None:
        raise AssertionError(f"{instruction.kind}: {instruction.detail}")

    def _persist(self, instruction: PersistElection, outbox: Outbox) -> None:
        self.storage.election = instruction.state

    def _append(self, instruction: AppendBatches, outbox: Outbox) -> None:
        entries, data = self.storage.entries, instruction.data
        assert instruction.batches[0].base_offset == self.storage.end, "appended elsewhere than at the end"
        for index, batch in enumerate(instruction.batches):
            payload = data[index * PAYLOAD_BYTES : (index + 1) * PAYLOAD_BYTES]
            entries.append(Entry(batch.epoch, payload, batch.voters))

    def _append_control(self, instruction: AppendControl, outbox: Outbox) -> None:
        """The voter set belongs to the batch, and so to its first offset."""
        carried = [record.voters for record in instruction.records if isinstance(record, Voters)]
        for index in range(len(instruction.records)):
            voters = carried[0] if carried and index == 0 else None
            self.storage.entries.append(Entry(instruction.epoch, CONTROL_PAYLOAD, voters))

    def _truncate(self, instruction: TruncateTo, outbox: Outbox) -> None:
        self.storage.truncate(instruction.offset)

    def _read_snapshot(self, instruction: ReadSnapshotAndRespond, outbox: Outbox) -> None:
        outbox.responses.append((instruction.token, self._piece(instruction)))

    def _piece(self, instruction: ReadSnapshotAndRespond) -> FetchSnapshotResponse:
        response, snapshot = instruction.response, self.storage.snapshot
        if snapshot is None or snapshot.id != response.snapshot:
            return msgspec.structs.replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        data = snapshot.data
        chunk = data[response.position : response.position + instruction.max_bytes]
        return msgspec.structs.replace(
            response, size=len(data), checksum=crc32(data), voters=snapshot.voters, data=chunk
        )

    def _store_chunk(self, instruction: StoreSnapshotChunk, outbox: Outbox) -> None:
        held = self.partial if instruction.position else b""
        assert instruction.position == len(held), "snapshot bytes with a gap"
        self.partial = held + instruction.data

    def _install(self, instruction: InstallSnapshot, outbox: Outbox) -> None:
        snapshot, self.partial = self._received(instruction), b""
        if snapshot is None:
            outbox.events.append(SnapshotInstalled(None))
            return
        self.storage.install(snapshot)
        outbox.events.append(SnapshotInstalled(instruction.snapshot, instruction.voters))

    def _received(self, instruction: InstallSnapshot) -> Snapshot | None:
        """The bytes of a snapshot here are the entries below it. None: they are damaged."""
        data = self.partial
        if len(data) != instruction.size or crc32(data) != instruction.checksum:
            return None
        return Snapshot(instruction.snapshot, decode_prefix(data), instruction.voters)

    def snapshot_event(self, *, keep_log: bool = True) -> SnapshotTaken | None:
        """The application freezes all that is committed, and cuts the log where the snapshot before this one ended, or else where
        this one does."""
        storage, state = self.storage, self.core.state
        high_watermark = min(state.high_watermark, storage.end)
        older = storage.snapshot
        if high_watermark <= (older.id.offset if older else storage.start):
            return None
        prefix = tuple(committed_range(storage, 0, high_watermark))
        voters = state.voters.at(high_watermark) if state.voters.latest_offset >= 0 else None
        identity = OffsetAndEpoch(high_watermark, state.log.epoch_below(high_watermark))
        log_start = max(storage.start, older.id.offset if older else 0) if keep_log else high_watermark
        storage.base_epoch = state.log.epoch_below(log_start)
        del storage.entries[: log_start - storage.start]
        storage.start = log_start
        storage.durable_end = max(storage.durable_end, log_start)
        storage.snapshot = Snapshot(identity, prefix, voters)
        return SnapshotTaken(identity, log_start)


def encode_prefix(prefix: Sequence[Entry]) -> bytes:
    """Epoch and payload of each entry; voter sets travel beside."""
    return b"".join(entry.epoch.to_bytes(4, "big") + entry.payload for entry in prefix)


def decode_prefix(data: bytes) -> tuple[Entry, ...]:
    width = 4 + PAYLOAD_BYTES
    pieces = (data[at : at + width] for at in range(0, len(data), width))
    return tuple(Entry(int.from_bytes(piece[:4], "big"), piece[4:]) for piece in pieces)


def committed_range(storage: Storage, begin: int, end: int) -> list[Entry]:
    """The entries of [begin, end), from the snapshot where the log has them no more, without the voter sets they carry."""
    below: tuple[Entry, ...] = () if storage.snapshot is None else storage.snapshot.prefix[begin : storage.start]
    above = storage.entries[max(0, begin - storage.start) : max(0, end - storage.start)]
    return [*below, *(Entry(entry.epoch, entry.payload) for entry in above)]


_PERFORM: dict[type[Any], Callable[[MemoryReplica, Any, Outbox], None]] = {
    SendRequest: MemoryReplica._send,
    Respond: MemoryReplica._respond,
    ReadAndRespond: MemoryReplica._read,
    Sync: MemoryReplica._sync,
    CommitAdvanced: MemoryReplica._tell,
    LeaderChanged: MemoryReplica._tell,
    Fault: MemoryReplica._fault,
    PersistElection: MemoryReplica._persist,
    AppendBatches: MemoryReplica._append,
    AppendControl: MemoryReplica._append_control,
    TruncateTo: MemoryReplica._truncate,
    ReadSnapshotAndRespond: MemoryReplica._read_snapshot,
    StoreSnapshotChunk: MemoryReplica._store_chunk,
    InstallSnapshot: MemoryReplica._install,
}
