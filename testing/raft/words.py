"""Messages and events in few words, for scenarios and histories."""

from typing import Any

import msgspec

from ottla.quorum.raft import instructions as do
from ottla.quorum.raft.events import AppendRequested, Event, RequestReceived, ResponseReceived
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import Request, Response
from ottla.quorum.raft.voters import ReplicaKey, VoterSet
from ottla.runtime.errors import ErrorCode


def describe_instruction(instruction: do.Instruction) -> str:
    """One line; empty for what shows when the message is delivered."""
    match instruction:
        case do.PersistElection(state):
            vote = f", voted {state.voted.id}" if state.voted else ""
            return f"persists epoch {state.epoch}, leader {state.leader_id}{vote}"
        case do.SendRequest(peer=peer, request=request):
            return f"asks {peer}: {describe_request(request)}"
        case do.AppendControl(offset=offset, records=records):
            return f"appends {', '.join(type(record).__name__ for record in records)} at {offset}"
        case do.AppendBatches(batches=batches):
            return f"appends {batches[0].base_offset}-{batches[-1].last_offset}"
        case do.StoreSnapshotChunk(snapshot=snapshot, position=position, data=data):
            return f"keeps bytes {position}-{position + len(data)} of snapshot {_show(snapshot)}"
        case do.InstallSnapshot(snapshot=snapshot):
            return f"installs snapshot {_show(snapshot)}"
        case do.TruncateTo(offset):
            return f"truncates to {offset}"
        case do.CommitAdvanced(high_watermark):
            return f"commits up to {high_watermark}"
        case do.Fault(kind=kind, detail=detail):
            return f"FAULT {kind}: {detail}"
        case _:
            return ""


_UNSPOKEN = {"cluster_id", "sender", "receiver", "max_wait_ms", "max_bytes", "can_vote", "endpoint", "last_mark"}


def describe_request(request: Request) -> str:
    name = type(request).__name__.removesuffix("Request")
    shown = _fields(request, _UNSPOKEN)
    return f"{name}({shown})"


def describe_response(response: Response) -> str:
    name = type(response).__name__
    shown = _fields(response, {"leader_endpoint", "log_start", "voter", "mark"})
    return f"{name}({shown})"


USUAL = (
    ("error", ErrorCode.NONE),
    ("ack_when_committed", True),
    ("asked_before", False),
    ("try_again", False),
    ("undecided", False),
)


def _fields(message: Any, hidden: set[str]) -> str:
    parts = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name not in hidden and value not in (None, "") and (name, value) not in USUAL:
            parts.append(f"{name}={_show(value)}")
    return " ".join(parts)


def _show(value: Any) -> str:
    if isinstance(value, ReplicaKey):
        return str(value.id)
    if isinstance(value, OffsetAndEpoch):
        return f"{value.offset}@{value.epoch}"
    if isinstance(value, VoterSet):
        return _show(value.ids())
    if isinstance(value, bytes):
        return f"{len(value)}B"
    if isinstance(value, tuple):
        return "[" + " ".join(_show(item) for item in value) + "]"
    if isinstance(value, msgspec.Struct):  # records
        batches = getattr(value, "batches", ())
        return f"{batches[0].base_offset}-{batches[-1].last_offset}" if batches else "none"
    return getattr(value, "name", str(value))


def describe_event(event: Event) -> str:
    """Who said what, without what is the same every time."""
    if isinstance(event, RequestReceived):
        return f"{event.request.sender.id} asks {describe_request(event.request)}"
    if isinstance(event, ResponseReceived):
        asked = describe_request(event.request)
        answer = "nothing" if event.response is None else describe_response(event.response)
        return f"{event.peer} answers {asked}: {answer}"
    if isinstance(event, AppendRequested):
        return f"append {event.batches[0].base_offset}-{event.batches[-1].last_offset}"
    return str(event)
