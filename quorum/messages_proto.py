"""The core's messages to and from protobuf (proto/quorum.proto).

What a stranger sent is checked for shape only; what it means is the core's to judge. ValueError: not a message at all.
Records travel as bytes; ``parse_batches`` reads their headers.
"""

from collections.abc import Callable
from typing import Any

from ottla.proto import quorum_pb2 as pb
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import (
    AddVoterRequest,
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
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

ParseRecords = Callable[[bytes], Records]

_PORT_MAX = 65535
_HOST_LENGTH_MAX = 255  # RFC 1035


# --- small values -----------------------------------------------------------------------------------------------------


def key_to_proto(key: ReplicaKey) -> pb.ReplicaKey:
    return pb.ReplicaKey(id=key.id, directory_id=key.directory_id or b"")


def key_from_proto(message: pb.ReplicaKey) -> ReplicaKey:
    """Raises ValueError for a directory id that the log could not hold: written there, nobody could read it any more."""
    if len(message.directory_id) not in (0, len(ZERO_ID)):
        raise ValueError(f"a directory id of {len(message.directory_id)} bytes")
    return ReplicaKey(message.id, message.directory_id or None)


def endpoint_to_proto(endpoint: Endpoint) -> pb.Endpoint:
    return pb.Endpoint(host=endpoint.host, port=endpoint.port)


def endpoint_from_proto(message: pb.Endpoint) -> Endpoint:
    """Raises ValueError for what is no host and port, as `key_from_proto`."""
    if message.port > _PORT_MAX or len(message.host) > _HOST_LENGTH_MAX:
        raise ValueError(f"no endpoint: {message.host[:_HOST_LENGTH_MAX]}:{message.port}")
    return Endpoint(message.host, message.port)


def place_to_proto(place: OffsetAndEpoch | None) -> pb.OffsetAndEpoch | None:
    return None if place is None else pb.OffsetAndEpoch(offset=place.offset, epoch=place.epoch)


def place_from_proto(message: pb.OffsetAndEpoch) -> OffsetAndEpoch:
    return OffsetAndEpoch(message.offset, message.epoch)


def voters_to_proto(voters: VoterSet) -> pb.VoterSet:
    members = [pb.Voter(key=key_to_proto(v.key), endpoint=endpoint_to_proto(v.endpoint)) for v in voters.voters]
    return pb.VoterSet(voters=members)


def voters_from_proto(message: pb.VoterSet) -> VoterSet:
    """Raises ValueError when a node id occurs twice."""
    return VoterSet.of(Voter(key_from_proto(v.key), endpoint_from_proto(v.endpoint)) for v in message.voters)


# --- requests ---------------------------------------------------------------------------------------------------------


def request_to_proto(request: Request) -> pb.QuorumRequest:
    message = pb.QuorumRequest(cluster_id=request.cluster_id, epoch=request.epoch, sender=key_to_proto(request.sender))
    if request.receiver is not None:
        message.receiver.CopyFrom(key_to_proto(request.receiver))
    _REQUEST_BODIES[type(request)](message, request)
    return message


def _put_vote(message: pb.QuorumRequest, request: Any) -> None:
    message.vote.CopyFrom(pb.VoteRequest(last=place_to_proto(request.last), pre_vote=request.pre_vote))


def _put_begin(message: pb.QuorumRequest, request: Any) -> None:
    message.begin_quorum_epoch.endpoint.CopyFrom(endpoint_to_proto(request.endpoint))


def _put_end(message: pb.QuorumRequest, request: Any) -> None:
    preferred = [key_to_proto(key) for key in request.preferred]
    body = pb.EndQuorumEpochRequest(endpoint=endpoint_to_proto(request.endpoint), preferred=preferred)
    message.end_quorum_epoch.CopyFrom(body)


def _put_fetch(message: pb.QuorumRequest, request: Any) -> None:
    body = pb.FetchRequest(
        offset=request.offset,
        last_epoch=request.last_epoch,
        high_watermark=request.high_watermark,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        can_vote=request.can_vote,
        last_mark=request.last_mark,
    )
    message.fetch.CopyFrom(body)


def _put_fetch_snapshot(message: pb.QuorumRequest, request: Any) -> None:
    body = pb.FetchSnapshotRequest(
        snapshot=place_to_proto(request.snapshot), position=request.position, max_bytes=request.max_bytes
    )
    message.fetch_snapshot.CopyFrom(body)


def _put_add_voter(message: pb.QuorumRequest, request: Any) -> None:
    voter = pb.Voter(key=key_to_proto(request.voter), endpoint=endpoint_to_proto(request.endpoint))
    message.add_voter.CopyFrom(pb.AddVoterRequest(voter=voter, answer_at_once=not request.ack_when_committed))
    message.add_voter.asked_before = request.asked_before


def _put_remove_voter(message: pb.QuorumRequest, request: Any) -> None:
    body = pb.RemoveVoterRequest(voter=key_to_proto(request.voter), asked_before=request.asked_before)
    message.remove_voter.CopyFrom(body)


def _put_update_voter(message: pb.QuorumRequest, request: Any) -> None:
    message.update_voter.CopyFrom(pb.UpdateVoterRequest(endpoint=endpoint_to_proto(request.endpoint)))


_REQUEST_BODIES: dict[type[Request], Callable[[pb.QuorumRequest, Any], None]] = {
    VoteRequest: _put_vote,
    BeginQuorumEpochRequest: _put_begin,
    EndQuorumEpochRequest: _put_end,
    FetchRequest: _put_fetch,
    FetchSnapshotRequest: _put_fetch_snapshot,
    AddVoterRequest: _put_add_voter,
    RemoveVoterRequest: _put_remove_voter,
    UpdateVoterRequest: _put_update_voter,
}


def request_from_proto(message: pb.QuorumRequest) -> Request:
    """Raises ValueError for a request without a body this node knows, or with ids and endpoints that cannot be."""
    kind = message.WhichOneof("body")
    reader = None if kind is None else _REQUEST_READERS.get(kind)
    if reader is None:
        raise ValueError(f"quorum request of unknown kind {kind}")
    return reader(
        getattr(message, str(kind)),
        {
            "cluster_id": message.cluster_id,
            "epoch": message.epoch,
            "sender": key_from_proto(message.sender),
            "receiver": key_from_proto(message.receiver) if message.HasField("receiver") else None,
        },
    )


_REQUEST_READERS: dict[str, Callable[[Any, dict[str, Any]], Request]] = {
    "vote": lambda body, fields: VoteRequest(last=place_from_proto(body.last), pre_vote=body.pre_vote, **fields),
    "begin_quorum_epoch": lambda body, fields: BeginQuorumEpochRequest(
        endpoint=endpoint_from_proto(body.endpoint), **fields
    ),
    "end_quorum_epoch": lambda body, fields: EndQuorumEpochRequest(
        endpoint=endpoint_from_proto(body.endpoint),
        preferred=tuple(key_from_proto(key) for key in body.preferred),
        **fields,
    ),
    "fetch": lambda body, fields: FetchRequest(
        offset=body.offset,
        last_epoch=body.last_epoch,
        high_watermark=body.high_watermark,
        max_wait_ms=body.max_wait_ms,
        max_bytes=body.max_bytes,
        can_vote=body.can_vote,
        last_mark=body.last_mark,
        **fields,
    ),
    "fetch_snapshot": lambda body, fields: FetchSnapshotRequest(
        snapshot=place_from_proto(body.snapshot), position=body.position, max_bytes=body.max_bytes, **fields
    ),
    "add_voter": lambda body, fields: AddVoterRequest(
        voter=key_from_proto(body.voter.key),
        endpoint=endpoint_from_proto(body.voter.endpoint),
        ack_when_committed=not body.answer_at_once,
        asked_before=body.asked_before,
        **fields,
    ),
    "remove_voter": lambda body, fields: RemoveVoterRequest(
        voter=key_from_proto(body.voter), asked_before=body.asked_before, **fields
    ),
    "update_voter": lambda body, fields: UpdateVoterRequest(endpoint=endpoint_from_proto(body.endpoint), **fields),
}


# --- responses --------------------------------------------------------------------------------------------------------


def response_to_proto(response: Response) -> pb.QuorumResponse:
    message = pb.QuorumResponse(error_code=int(response.error), epoch=response.epoch)
    if response.leader_id is not None:
        message.leader_id = response.leader_id
    if response.leader_endpoint is not None:
        message.leader_endpoint.CopyFrom(endpoint_to_proto(response.leader_endpoint))
    _RESPONSE_BODIES[type(response)](message, response)
    return message


def _put_fetch_response(message: pb.QuorumResponse, response: Any) -> None:
    body = pb.FetchResponse(
        high_watermark=response.high_watermark,
        log_start=response.log_start,
        diverging=place_to_proto(response.diverging),
        snapshot=place_to_proto(response.snapshot),
        records=response.records.data,
    )
    message.fetch.CopyFrom(body)


def _put_fetch_snapshot_response(message: pb.QuorumResponse, response: Any) -> None:
    body = pb.FetchSnapshotResponse(
        snapshot=place_to_proto(response.snapshot),
        position=response.position,
        size=response.size,
        checksum=response.checksum,
        voters=None if response.voters is None else voters_to_proto(response.voters),
        data=response.data,
        mark=response.mark,
    )
    message.fetch_snapshot.CopyFrom(body)


def _put_begin_response(message: pb.QuorumResponse, response: Any) -> None:
    voter = None if response.voter is None else key_to_proto(response.voter)
    message.begin_quorum_epoch.CopyFrom(pb.BeginQuorumEpochResponse(voter=voter))


_RESPONSE_BODIES: dict[type[Response], Callable[[pb.QuorumResponse, Any], None]] = {
    VoteResponse: lambda message, response: message.vote.CopyFrom(pb.VoteResponse(granted=response.granted)),
    BeginQuorumEpochResponse: _put_begin_response,
    EndQuorumEpochResponse: lambda message, response: message.end_quorum_epoch.SetInParent(),
    FetchResponse: _put_fetch_response,
    FetchSnapshotResponse: _put_fetch_snapshot_response,
    VoterChangeResponse: lambda message, response: message.voter_change.CopyFrom(
        pb.VoterChangeResponse(message=response.message, try_again=response.try_again, undecided=response.undecided)
    ),
}


def response_from_proto(message: pb.QuorumResponse, parse_records: ParseRecords) -> Response:
    """Raises ValueError for a response without a body this node knows, or a leader that cannot be; KafkaError when the records
    it carries are damaged. An error that this node does not know is a refusal."""
    if message.leader_id < 0:
        raise ValueError(f"node {message.leader_id} as leader")
    kind = message.WhichOneof("body")
    reader = None if kind is None else _RESPONSE_READERS.get(kind)
    if reader is None:
        raise ValueError(f"quorum response of unknown kind {kind}")
    fields = {
        "error": ErrorCode(message.error_code),
        "epoch": message.epoch,
        "leader_id": message.leader_id if message.HasField("leader_id") else None,
        "leader_endpoint": endpoint_from_proto(message.leader_endpoint)
        if message.HasField("leader_endpoint")
        else None,
    }
    return reader(getattr(message, str(kind)), fields, parse_records)


def _read_fetch_response(body: pb.FetchResponse, fields: dict[str, Any], parse_records: ParseRecords) -> Response:
    return FetchResponse(
        high_watermark=body.high_watermark,
        log_start=body.log_start,
        diverging=place_from_proto(body.diverging) if body.HasField("diverging") else None,
        snapshot=place_from_proto(body.snapshot) if body.HasField("snapshot") else None,
        records=parse_records(body.records),
        **fields,
    )


def _read_fetch_snapshot_response(body: pb.FetchSnapshotResponse, fields: dict[str, Any], _: ParseRecords) -> Response:
    return FetchSnapshotResponse(
        snapshot=place_from_proto(body.snapshot) if body.HasField("snapshot") else None,
        position=body.position,
        size=body.size,
        checksum=body.checksum,
        voters=voters_from_proto(body.voters) if body.HasField("voters") else None,
        data=body.data,
        mark=body.mark,
        **fields,
    )


_RESPONSE_READERS: dict[str, Callable[[Any, dict[str, Any], ParseRecords], Response]] = {
    "vote": lambda body, fields, _: VoteResponse(granted=body.granted, **fields),
    "begin_quorum_epoch": lambda body, fields, _: BeginQuorumEpochResponse(
        voter=key_from_proto(body.voter) if body.HasField("voter") else None, **fields
    ),
    "end_quorum_epoch": lambda body, fields, _: EndQuorumEpochResponse(**fields),
    "fetch": _read_fetch_response,
    "fetch_snapshot": _read_fetch_snapshot_response,
    "voter_change": lambda body, fields, _: VoterChangeResponse(
        message=body.message, try_again=body.try_again, undecided=body.undecided, **fields
    ),
}
