"""Asking for what the active controller decides until it has: brokers and controllers come and go meanwhile."""

import time
from typing import TypeVar

import msgspec

from ottla.broker.wire.messages.add_raft_voter_request import AddRaftVoterRequest
from ottla.broker.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from ottla.broker.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.broker.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.broker.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.broker.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from ottla.broker.wire.messages.update_features_request import UpdateFeaturesRequest
from ottla.broker.wire.messages.update_features_response import UpdateFeaturesResponse
from ottla.cli.client import TIMEOUT_S, ConnectionLost
from ottla.cli.where import Where
from ottla.log.names import METADATA_PARTITION
from ottla.quorum.raft.voters import KRAFT_VERSION, STATIC_VOTERS
from ottla.runtime.errors import ErrorCode

PAUSE_S = 0.2

_LATER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE)

R = TypeVar("R", AddRaftVoterResponse, RemoveRaftVoterResponse, DescribeQuorumResponse, UpdateFeaturesResponse)


def add_voter(where: Where, request: AddRaftVoterRequest, timeout_s: float) -> AddRaftVoterResponse:
    """Raises CommandError. Whether an attempt was carried out whose answer never came, the quorum is asked."""
    answer, lost = _until_decided(where, request, AddRaftVoterResponse, timeout_s)
    key = (request.voter_id, request.voter_directory_id)
    if lost and answer.error_code == ErrorCode.DUPLICATE_VOTER and key in _voters(where):
        return AddRaftVoterResponse()
    return answer


def remove_voter(where: Where, request: RemoveRaftVoterRequest, timeout_s: float) -> RemoveRaftVoterResponse:
    """As `add_voter`."""
    answer, lost = _until_decided(where, request, RemoveRaftVoterResponse, timeout_s)
    if not lost or answer.error_code != ErrorCode.VOTER_NOT_FOUND:
        return answer
    still_there = request.voter_id in [node_id for node_id, _ in _voters(where)]
    return answer if still_there else RemoveRaftVoterResponse()


def describe_quorum(where: Where) -> DescribeQuorumResponse:
    """Waits a while for a leader. Raises CommandError."""
    asked = [TopicData(topic_name=METADATA_PARTITION.topic, partitions=[PartitionData(partition_index=0)])]
    return _until_decided(where, DescribeQuorumRequest(topics=asked), DescribeQuorumResponse, TIMEOUT_S)[0]


def update_features(where: Where, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Raises CommandError. Nothing is changed by asking twice: a level that is in force may be asked for again."""
    return _until_decided(where, request, UpdateFeaturesResponse, TIMEOUT_S)[0]


def kraft_version(where: Where) -> int:
    """Finalized: 0 while the voters are those of controller.quorum.voters. Raises CommandError."""
    with where.connect() as client:
        return client.finalized.get(KRAFT_VERSION, STATIC_VOTERS)


def _until_decided(where: Where, request: msgspec.Struct, response: type[R], timeout_s: float) -> tuple[R, bool]:
    """The last answer there was in time, and whether one was lost on the way."""
    deadline = time.monotonic() + timeout_s
    lost = False
    while True:
        try:
            with where.connect() as client:
                answer = client.call(request, response)
        except ConnectionLost:
            lost = True
            if time.monotonic() + PAUSE_S > deadline:
                raise
        else:
            if _code(answer) not in _LATER or time.monotonic() + PAUSE_S > deadline:
                return answer, lost
        time.sleep(PAUSE_S)


def _code(
    answer: AddRaftVoterResponse | RemoveRaftVoterResponse | DescribeQuorumResponse | UpdateFeaturesResponse,
) -> int:
    """A description's is that of its one partition, if it has none itself."""
    if answer.error_code or not isinstance(answer, DescribeQuorumResponse):
        return answer.error_code
    return next((each.error_code for topic in answer.topics for each in topic.partitions), ErrorCode.NONE)


def _voters(where: Where) -> list[tuple[int, bytes]]:
    topics = describe_quorum(where).topics
    found = [each for topic in topics for partition in topic.partitions for each in partition.current_voters]
    return [(each.replica_id, each.replica_directory_id) for each in found]
