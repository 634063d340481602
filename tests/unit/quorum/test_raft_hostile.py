"""A core that is told anything at all, in any order: it answers, it refuses, or it stops with a fault that says why. It never
trips over its own assertions, and whatever it wants sent or written can be."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from ottla.quorum import messages_proto
from ottla.quorum.control_records import control_batch
from ottla.quorum.raft.events import (
    Event,
    LogSynced,
    RequestReceived,
    ResponseReceived,
    SnapshotInstalled,
    Ticked,
    TimerExpired,
)
from ottla.quorum.raft.instructions import (
    AppendControl,
    Fault,
    InstallSnapshot,
    Instruction,
    Respond,
    SendRequest,
    Sync,
)
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import (
    AddVoterRequest,
    BatchInfo,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Records,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, VoterSet
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import CLUSTER, OneCore, key, voter_set

NUMBERS = (-(2**31), -1, 0, 1, 2, 3, 2**31 - 2**16)  # epochs: of the very last one there is no next
OFFSETS = (-(2**63), -1, 0, 1, 2, 3, 5, 2**63 - 1)
NODES = (-5, -1, 0, 1, 2, 3, 4, 2**31 - 1)
KEYS = (None, *(key(node).directory_id for node in (1, 2, 3)))
VOTERS: tuple[VoterSet | None, ...] = (None, None, voter_set(1, 2), voter_set(2, 3))
ERRORS = (*[ErrorCode.NONE] * 6, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
OTHER_ERRORS = (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.DUPLICATE_VOTER)


class Stranger:
    """Makes up messages, some of them nearly right."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.core = OneCore(1, 2, 3, auto_join=self.rng.random() < 0.2)
        if self.rng.random() < 0.5:
            self.core.elect(2)
            self.core.sync()
            self.core.fetch(2)

    def next_event(self) -> Event:
        kind = self.rng.random()
        state = self.core.state
        self.core.now_ms += self.rng.choice((0, 1, 500))
        if kind < 0.6:
            return RequestReceived(self.request(), "token")
        if kind < 0.9 and state.inflight:
            (peer, _), asked = self.rng.choice(list(state.inflight.items()))
            return ResponseReceived(peer, asked, self.response(asked))
        return TimerExpired(self.rng.choice(list(state.timers))) if state.timers else Ticked()

    def epoch(self) -> int:
        own: int = self.core.state.epoch
        return self.rng.choice((*NUMBERS, *[own] * 8))

    def key(self) -> ReplicaKey:
        return ReplicaKey(self.rng.choice(NODES), self.rng.choice(KEYS))

    def endpoint(self) -> Endpoint:
        return Endpoint(self.rng.choice(("", "h", "node-2")), self.rng.choice((0, 9002, 65535)))

    def place(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.rng.choice(OFFSETS), self.rng.choice(NUMBERS))

    def request(self) -> Request:
        make: Callable[[dict[str, Any]], Request] = self.rng.choice(REQUESTS)(self)
        receiver = self.rng.choice((None, None, self.key()))
        return make({"cluster_id": CLUSTER, "epoch": self.epoch(), "sender": self.key(), "receiver": receiver})

    def records(self) -> Records:
        end = self.core.state.log.end
        batches, offset = [], self.rng.choice((end, end, 0, 2**63 - 1, -1))
        for _ in range(self.rng.randrange(4)):
            last = offset + self.rng.choice((0, 0, 1, -1, 2**31 - 1))
            batches.append(BatchInfo(offset, last, self.epoch(), self.rng.choice(VOTERS)))
            offset = last + 1
        return Records(b"x", tuple(batches))

    def response(self, asked: Request) -> Response:
        leader = self.core.state.known_leader_id
        fields = {
            "error": self.rng.choice((*ERRORS, *OTHER_ERRORS)),
            "epoch": self.epoch(),
            "leader_id": self.rng.choice((None, leader, leader, 1, 2, 3)),
            "leader_endpoint": self.rng.choice((None, self.endpoint())),
        }
        return RESPONSES[type(asked)](self, asked, fields)


REQUESTS: tuple[Callable[[Stranger], Callable[[dict[str, Any]], Request]], ...] = (
    lambda by: lambda fields: VoteRequest(last=by.place(), pre_vote=by.rng.random() < 0.5, **fields),
    lambda by: lambda fields: BeginQuorumEpochRequest(endpoint=by.endpoint(), **fields),
    lambda by: lambda fields: EndQuorumEpochRequest(endpoint=by.endpoint(), preferred=(by.key(), by.key()), **fields),
    lambda by: (
        lambda fields: FetchRequest(
            offset=by.rng.choice(OFFSETS),
            last_epoch=by.epoch(),
            high_watermark=by.rng.choice(OFFSETS),
            max_wait_ms=by.rng.choice(NUMBERS),
            max_bytes=by.rng.choice(NUMBERS),
            can_vote=by.rng.random() < 0.8,
            **fields,
        )
    ),
    lambda by: (
        lambda fields: FetchSnapshotRequest(
            snapshot=by.place(), position=by.rng.choice(OFFSETS), max_bytes=by.rng.choice(NUMBERS), **fields
        )
    ),
    lambda by: lambda fields: AddVoterRequest(voter=by.key(), endpoint=by.endpoint(), **fields),
    lambda by: lambda fields: RemoveVoterRequest(voter=by.key(), **fields),
    lambda by: lambda fields: UpdateVoterRequest(endpoint=by.endpoint(), **fields),
)

RESPONSES: dict[type[Request], Callable[[Stranger, Any, dict[str, Any]], Response]] = {
    VoteRequest: lambda by, _, fields: VoteResponse(granted=by.rng.random() < 0.7, **fields),
    BeginQuorumEpochRequest: lambda by, _, fields: BeginQuorumEpochResponse(voter=by.key(), **fields),
    EndQuorumEpochRequest: lambda by, _, fields: EndQuorumEpochResponse(**fields),
    FetchRequest: lambda by, _, fields: FetchResponse(
        high_watermark=by.rng.choice(OFFSETS),
        log_start=by.rng.choice(OFFSETS),
        diverging=by.rng.choice((None, None, by.place())),
        snapshot=by.rng.choice((None, None, by.place())),
        records=by.records(),
        **fields,
    ),
    FetchSnapshotRequest: lambda by, asked, fields: FetchSnapshotResponse(
        snapshot=asked.snapshot,
        position=by.rng.choice((*OFFSETS, *[asked.position] * 5)),
        size=by.rng.choice(OFFSETS),
        checksum=by.rng.choice((0, 7)),
        voters=by.rng.choice(VOTERS),
        data=by.rng.choice((b"", b"abc")),
        **fields,
    ),
    AddVoterRequest: lambda by, _, fields: VoterChangeResponse(**fields),
    RemoveVoterRequest: lambda by, _, fields: VoterChangeResponse(**fields),
    UpdateVoterRequest: lambda by, _, fields: VoterChangeResponse(**fields),
}


def perform(core: OneCore, instruction: Instruction) -> None:
    """As the shell would: on the wire, in the log."""
    if isinstance(instruction, SendRequest):
        messages_proto.request_to_proto(instruction.request)
    elif isinstance(instruction, Respond):
        messages_proto.response_to_proto(instruction.response)
    elif isinstance(instruction, AppendControl):
        control_batch(instruction, 0)
    elif isinstance(instruction, Sync):
        core.tell(LogSynced(instruction.end_offset))
    elif isinstance(instruction, InstallSnapshot):
        core.tell(SnapshotInstalled(None))


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_whatever_it_is_told_a_core_answers_or_stops_with_a_reason(first: int) -> None:
    faults = 0
    for seed in range(first, first + 100):
        stranger = Stranger(seed)
        for _ in range(40):
            event = stranger.next_event()
            out = stranger.core.tell(event)
            if any(isinstance(instruction, Fault) for instruction in out):
                faults += 1  # two leaders in one epoch, or what was committed taken back: it said so
                break
            for instruction in out:
                perform(stranger.core, instruction)
    assert 0 < faults < 100


def test_who_answers_in_a_voters_place_with_another_number_is_not_taken_for_it() -> None:
    core = OneCore(1, 2, 3).elect(2)
    core.answer(BeginQuorumEpochRequest, 2, BeginQuorumEpochResponse(epoch=1, leader_id=1, voter=key(3)))

    assert [progress.key.id for progress in core.state.role.voters.values()] == [2, 3]
    assert msgspec.structs.asdict(core.state.role.voters[2])["knows_leader"]
