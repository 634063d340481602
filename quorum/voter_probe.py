"""Before a node may vote: does it answer where the others would look for it (KIP-853; Kafka asks it for its versions)?

A voter with a wrong address fetches and acknowledges like any other, and nobody could ask it for its vote.
"""

import asyncio
from collections.abc import Callable

from ottla.proto import quorum_pb2 as pb
from ottla.quorum.messages_proto import key_from_proto
from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.messages import AddVoterRequest
from ottla.quorum.raft.voters import KRAFT_VERSION, VOTERS_IN_LOG, ReplicaKey
from ottla.quorum.rpc.transport import RpcTransport
from ottla.runtime.errors import ErrorCode

PROBE_TIMEOUT_MS = 1500
"""Less than controller.quorum.request.timeout.ms: a node that joins by itself waits that long for its answer."""

Complaint = tuple[ErrorCode, str]


def probe(transport: RpcTransport, request: AddVoterRequest, on_done: Callable[[Complaint | None], None]) -> None:
    """Asks the endpoint who is there; ``on_done`` is called once, with what is wrong or None."""
    host, port = request.endpoint
    channel = transport.channel(host, port, QUORUM_SERVICE, _broken)

    def answered(response: pb.QuorumResponse | None) -> None:
        asyncio.get_running_loop().call_soon(channel.close)
        if response is None:
            on_done(complaint(request, None))
            return
        described = response.describe_quorum
        try:
            told = key_from_proto(described.answerer)
        except ValueError:
            told = None  # whoever that is, it is no node of ours
        on_done(complaint(request, told, described.answerer_kraft_version_max))

    question = pb.QuorumRequest(cluster_id=request.cluster_id, describe_quorum=pb.DescribeQuorumRequest())
    channel.call(question, answered, PROBE_TIMEOUT_MS)


def complaint(request: AddVoterRequest, told: ReplicaKey | None, reads: int = 0) -> Complaint | None:
    """``told``: who answered, if anybody did; it reads levels of kraft.version up to ``reads``."""
    node, place = request.voter.id, f"{request.endpoint.host}:{request.endpoint.port}"
    if told is None:
        what = f"nobody answers at {place}, where node {node} is to be reached from the quorum's leader"
        return ErrorCode.REQUEST_TIMED_OUT, f"{what}: start it, or correct its listeners or advertised.listeners"
    if told == request.voter:
        if reads >= VOTERS_IN_LOG:
            return None
        what = f"node {node} reads {KRAFT_VERSION} 0 to {reads}, voters need {VOTERS_IN_LOG}"
        return ErrorCode.INVALID_REQUEST, f"{what}: upgrade it first"
    who = f"node {node} with another directory id" if told.id == node else f"node {told.id}, not node {node},"
    return ErrorCode.INVALID_VOTER_KEY, f"at {place} listens {who}: check the id, the directory id and the endpoint"


def _broken() -> None:
    """The call fails by itself."""
