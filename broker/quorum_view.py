"""The quorum as its leader sees it, whichever node is asked."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.proto import quorum_pb2 as pb
from ottla.quorum.listener import QuorumDescription, ReplicaDescription
from ottla.quorum.peers import QUORUM_SERVICE
from ottla.quorum.raft.voters import Endpoint
from ottla.runtime.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.quorum.node import QuorumNode
    from ottla.quorum.rpc.transport import RpcChannel, RpcTransport

OnDescription = Callable[[QuorumDescription | None], None]
"""Given the description, or None when the leader is not known or did not answer."""

_TIMEOUT_MS = 5000


class QuorumView:
    """Asks this node's quorum if it leads, else the leader."""

    def __init__(self, quorum: "QuorumNode", transport: "RpcTransport", cluster_id: str) -> None:
        self._quorum = quorum
        self._transport = transport
        self._cluster_id = cluster_id
        self._channel: RpcChannel | None = None
        self._endpoint: Endpoint | None = None

    def describe(self, on_done: OnDescription) -> None:
        known = self._quorum.describe()
        if self._quorum.is_leader:
            on_done(known)
            return
        endpoint = None if known.leader_id is None else self._quorum.endpoint_of(known.leader_id)
        if endpoint is None:
            on_done(None)
            return
        request = pb.QuorumRequest(cluster_id=self._cluster_id, describe_quorum=pb.DescribeQuorumRequest())
        self._to(endpoint).call(request, lambda response: on_done(_from_proto(response)), _TIMEOUT_MS)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = self._endpoint = None

    def _to(self, endpoint: Endpoint) -> "RpcChannel":
        if self._channel is None or self._endpoint != endpoint:
            self.close()
            self._channel = self._transport.channel(endpoint.host, endpoint.port, QUORUM_SERVICE, _broken)
            self._endpoint = endpoint
        return self._channel


def _broken() -> None:
    """The channel connects again by itself when it is next asked."""


def _from_proto(response: pb.QuorumResponse | None) -> QuorumDescription | None:
    # NOT_LEADER_OR_FOLLOWER: the leadership moved under us; the client asks again.
    if response is None or response.error_code != ErrorCode.NONE or not response.HasField("leader_id"):
        return None
    described = response.describe_quorum
    return QuorumDescription(
        response.leader_id,
        response.epoch,
        described.high_watermark,
        [_replica(each) for each in described.voters],
        [_replica(each) for each in described.observers],
    )


def _replica(state: pb.ReplicaState) -> ReplicaDescription:
    endpoint = Endpoint(state.endpoint.host, state.endpoint.port) if state.HasField("endpoint") else None
    return ReplicaDescription(
        state.key.id,
        state.key.directory_id or None,
        endpoint,
        state.log_end_offset,
        state.last_fetch_ms,
        state.last_caught_up_ms,
    )
