"""What happens to a replica: facts, in the past tense. The core is given one at a time, with the time."""

from typing import Any

import msgspec

from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import BatchInfo, Request, Response
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import VoterSet


class Started(msgspec.Struct, frozen=True):
    """The node came up; its log and election state have been read."""


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed: whatever is due expires."""


class TimerExpired(msgspec.Struct, frozen=True):
    """One timer is due (the model checker lets any armed one expire at any moment)."""

    timer: Timer


class RequestReceived(msgspec.Struct, frozen=True):
    """Somebody asks. ``token`` is the shell's: it comes back in the Respond instruction, which may come much later."""

    request: Request
    token: Any


class ResponseReceived(msgspec.Struct, frozen=True):
    """The answer to ``request`` sent to ``peer``; None when it failed or timed out."""

    peer: int
    request: Request
    response: Response | None


class PeerDisconnected(msgspec.Struct, frozen=True):
    """The stream to ``peer`` broke or was refused. Said of the leader, that is evidence (silence is not)."""

    peer: int


class AppendRequested(msgspec.Struct, frozen=True):
    """The application's batches, encoded for exactly (``epoch``, the log end)."""

    epoch: int
    data: bytes
    batches: tuple[BatchInfo, ...]


class LogSynced(msgspec.Struct, frozen=True):
    """Everything below ``end_offset`` (the log end when the sync was asked for) survives a crash."""

    end_offset: int


class ShutdownRequested(msgspec.Struct, frozen=True):
    """The node wants to leave: a leader hands over, nobody campaigns any more."""


class ResignRequested(msgspec.Struct, frozen=True):
    """The application cannot go on leading ``epoch``."""

    epoch: int


class SnapshotTaken(msgspec.Struct, frozen=True):
    """The application froze a snapshot; the log below ``log_start`` has been removed."""

    snapshot: OffsetAndEpoch
    log_start: int


class SnapshotInstalled(msgspec.Struct, frozen=True):
    """A downloaded snapshot is on disk, whole and checked; the log is empty and starts after it.

    ``snapshot`` None: it was damaged or could not be kept; it is to be fetched again."""

    snapshot: OffsetAndEpoch | None
    voters: VoterSet | None = None
    mark: int = 0


class UpgradeRequested(msgspec.Struct, frozen=True):
    """An administrator wants kraft.version 1: the voters of a static quorum go to the log as they are. ``token`` as in
    RequestReceived. ``validate_only``: only to know whether it could be done."""

    token: Any
    validate_only: bool = False


class RackMatesLearned(msgspec.Struct, frozen=True):
    """The nodes that say they stand in this node's rack (``broker.rack``)."""

    nodes: frozenset[int]


Event = (
    Started
    | Ticked
    | TimerExpired
    | RequestReceived
    | ResponseReceived
    | PeerDisconnected
    | AppendRequested
    | LogSynced
    | ShutdownRequested
    | ResignRequested
    | SnapshotTaken
    | SnapshotInstalled
    | UpgradeRequested
    | RackMatesLearned
)
