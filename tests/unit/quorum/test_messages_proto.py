import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.proto import quorum_pb2 as pb
from ottla.quorum import messages_proto
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
from ottla.quorum.raft.voters import Endpoint, ReplicaKey
from ottla.quorum.rpc.transport import MESSAGE_BYTES_MAX
from ottla.quorum.settings import QuorumSettings
from ottla.runtime.errors import ErrorCode

INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
KEYS = st.builds(ReplicaKey, st.integers(-(2**31), 2**31 - 1), st.none() | st.binary(min_size=16, max_size=16))
ENDPOINTS = st.builds(Endpoint, st.text(max_size=20), st.integers(0, 65535))
PLACES = st.builds(OffsetAndEpoch, INT64, INT32)
ASKING = {"cluster_id": st.text(max_size=8), "epoch": INT32, "sender": KEYS, "receiver": st.none() | KEYS}
ANSWERING = {
    "error": st.sampled_from(ErrorCode),
    "epoch": INT32,
    "leader_id": st.none() | INT32,
    "leader_endpoint": st.none() | ENDPOINTS,
}

REQUESTS = st.one_of(
    st.builds(VoteRequest, last=PLACES, pre_vote=st.booleans(), **ASKING),
    st.builds(BeginQuorumEpochRequest, endpoint=ENDPOINTS, **ASKING),
    st.builds(EndQuorumEpochRequest, endpoint=ENDPOINTS, preferred=st.lists(KEYS, max_size=3).map(tuple), **ASKING),
    st.builds(
        FetchRequest,
        offset=INT64,
        last_epoch=INT32,
        high_watermark=INT64,
        max_wait_ms=INT32,
        max_bytes=INT32,
        **ASKING,
    ),
    st.builds(FetchSnapshotRequest, snapshot=PLACES, position=INT64, max_bytes=INT32, **ASKING),
    st.builds(AddVoterRequest, voter=KEYS, endpoint=ENDPOINTS, **ASKING),
    st.builds(RemoveVoterRequest, voter=KEYS, **ASKING),
    st.builds(UpdateVoterRequest, endpoint=ENDPOINTS, **ASKING),
)
RESPONSES = st.one_of(
    st.builds(VoteResponse, granted=st.booleans(), **ANSWERING),
    st.builds(BeginQuorumEpochResponse, **ANSWERING),
    st.builds(EndQuorumEpochResponse, **ANSWERING),
    st.builds(
        FetchResponse,
        high_watermark=st.integers(-1, 2**63 - 1),
        log_start=INT64,
        diverging=st.none() | PLACES,
        snapshot=st.none() | PLACES,
        records=st.builds(Records, st.binary(max_size=20)),
        **ANSWERING,
    ),
    st.builds(
        FetchSnapshotResponse,
        snapshot=st.none() | PLACES,
        position=INT64,
        size=INT64,
        checksum=st.integers(0, 2**32 - 1),
        data=st.binary(max_size=20),
        **ANSWERING,
    ),
    st.builds(VoterChangeResponse, message=st.text(max_size=9), **ANSWERING),
)


@given(REQUESTS)
def test_every_request_arrives_as_it_was_sent(request_: Request) -> None:
    data = messages_proto.request_to_proto(request_).SerializeToString()

    assert messages_proto.request_from_proto(pb.QuorumRequest.FromString(data)) == request_


@given(RESPONSES)
def test_every_response_arrives_as_it_was_sent(response: Response) -> None:
    data = messages_proto.response_to_proto(response).SerializeToString()

    assert messages_proto.response_from_proto(pb.QuorumResponse.FromString(data), Records) == response


@pytest.mark.parametrize("kind", Request.__subclasses__())
def test_no_request_was_forgotten(kind: type[Request]) -> None:
    assert kind in messages_proto._REQUEST_BODIES


@pytest.mark.parametrize("kind", Response.__subclasses__())
def test_no_response_was_forgotten(kind: type[Response]) -> None:
    assert kind in messages_proto._RESPONSE_BODIES


def test_a_message_of_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        messages_proto.request_from_proto(pb.QuorumRequest())
    with pytest.raises(ValueError, match="unknown kind"):
        messages_proto.response_from_proto(pb.QuorumResponse(), Records)


def test_an_unknown_error_code_is_a_refusal_with_its_epoch() -> None:
    message = pb.QuorumResponse(error_code=9999, epoch=7, vote=pb.VoteResponse())
    response = messages_proto.response_from_proto(message, Records)
    assert (response.error, response.epoch) == (9999, 7)
    assert response.error is not ErrorCode.NONE


LONG_ID = pb.ReplicaKey(id=2, directory_id=bytes(17))
FAR_PORT = pb.Endpoint(host="two", port=65536)
LONG_HOST = pb.Endpoint(host="x" * 256, port=1)


@pytest.mark.parametrize(
    "message",
    [
        pb.QuorumRequest(sender=LONG_ID, vote=pb.VoteRequest()),
        pb.QuorumRequest(receiver=LONG_ID, vote=pb.VoteRequest()),
        pb.QuorumRequest(add_voter=pb.AddVoterRequest(voter=pb.Voter(key=LONG_ID))),
        pb.QuorumRequest(add_voter=pb.AddVoterRequest(voter=pb.Voter(endpoint=FAR_PORT))),
        pb.QuorumRequest(update_voter=pb.UpdateVoterRequest(endpoint=FAR_PORT)),
        pb.QuorumRequest(begin_quorum_epoch=pb.BeginQuorumEpochRequest(endpoint=LONG_HOST)),
    ],
)
def test_ids_and_endpoints_that_no_log_can_hold_are_refused(message: pb.QuorumRequest) -> None:
    """A voters record of them could not be written (and the leader would end), or not be read by anybody after that."""
    with pytest.raises(ValueError, match=r"directory id|endpoint"):
        messages_proto.request_from_proto(message)


def test_nobody_of_a_negative_number_leads() -> None:
    with pytest.raises(ValueError, match="as leader"):
        messages_proto.response_from_proto(pb.QuorumResponse(leader_id=-1, vote=pb.VoteResponse()), Records)


def test_an_answer_fits_a_message_whatever_the_settings_say() -> None:
    """Else who is sent it loses its connection, asks again, and is sent the same."""
    large = 64 << 20
    settings = QuorumSettings(
        node_id=1, cluster_id="c", voters={}, is_voter=True, fetch_max_bytes=large, snapshot_fetch_max_bytes=large
    ).raft()
    records = FetchResponse(epoch=1, high_watermark=1, records=Records(bytes(settings.fetch_max_bytes), ()))
    piece = FetchSnapshotResponse(epoch=1, size=large, data=bytes(settings.snapshot_max_bytes))
    for response in (records, piece):
        assert len(messages_proto.response_to_proto(response).SerializeToString()) < MESSAGE_BYTES_MAX
