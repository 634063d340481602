"""AddRaftVoter (80) and RemoveRaftVoter (81): who votes in the quorum; decided by the quorum's leader (KIP-853).

UpdateRaftVoter (82) is no request of clients: Kafka's voters tell their leader with it where they listen, ours by the quorum's own RPC.
"""

from ottla.broker.context import NodeContext
from ottla.broker.handlers.common import CONTROLLER_TIMEOUT_MS_MAX, route, text_or_none
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.add_raft_voter_request import AddRaftVoterRequest
from ottla.broker.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from ottla.broker.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.broker.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from ottla.quorum.raft.messages import VoterChangeResponse
from ottla.quorum.raft.voters import Endpoint, ReplicaKey
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.identifiers import ZERO_ID

REMOVAL_TIMEOUT_MS = 20_000  # RemoveRaftVoter says none; Kafka's administrator gives up after 30 s, and would ask anew


def routes(node: NodeContext) -> list[Route]:
    def add(request: RequestContext, body: AddRaftVoterRequest) -> None:
        def done(response: VoterChangeResponse) -> None:
            message = text_or_none(response.message)
            request.respond_message(AddRaftVoterResponse(error_code=response.error, error_message=message))

        try:
            _check(node, body.cluster_id)
            voter, endpoint = _new_voter(node, body)
        except KafkaError as refused:
            request.respond_message(AddRaftVoterResponse(error_code=refused.code, error_message=refused.message))
            return
        timeout_ms = max(1, min(body.timeout_ms, CONTROLLER_TIMEOUT_MS_MAX))
        changes = node.quorum.voter_changes
        changes.add(voter, endpoint, done, timeout_ms, wait_for_commit=body.ack_when_committed)

    def remove(request: RequestContext, body: RemoveRaftVoterRequest) -> None:
        def done(response: VoterChangeResponse) -> None:
            message = text_or_none(response.message)
            request.respond_message(RemoveRaftVoterResponse(error_code=response.error, error_message=message))

        try:
            _check(node, body.cluster_id)
        except KafkaError as refused:
            request.respond_message(RemoveRaftVoterResponse(error_code=refused.code, error_message=refused.message))
            return
        directory_id = None if body.voter_directory_id == ZERO_ID else body.voter_directory_id
        node.quorum.voter_changes.remove(ReplicaKey(body.voter_id, directory_id), done, REMOVAL_TIMEOUT_MS)

    return [route("AddRaftVoter", AddRaftVoterRequest, add), route("RemoveRaftVoter", RemoveRaftVoterRequest, remove)]


def _check(node: NodeContext, cluster_id: str | None) -> None:
    if not (node.sends_on or node.quorum.is_leader):
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller does not lead the quorum: ask the active one"
        )
    if cluster_id is not None and cluster_id != node.cluster_id:
        message = f"this is cluster {node.cluster_id}, not {cluster_id}: check the bootstrap server"
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)


def _new_voter(node: NodeContext, body: AddRaftVoterRequest) -> tuple[ReplicaKey, Endpoint]:
    """The controller listener counts, under the name that this cluster gives it. Raises KafkaError (INVALID_REQUEST)."""
    names = node.config.controller_listener_names
    listener = next((each for each in body.listeners if each.name.upper() in names), None)
    if listener is None:
        told = ", ".join(each.name for each in body.listeners) or "none"
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"a voter needs a listener named {' or '.join(names)}; told was {told}"
        )
    if body.voter_id < 0 or body.voter_directory_id == ZERO_ID or not listener.host or not listener.port:
        message = "a voter needs a node id, the id of its metadata directory, and a host and port to be reached at"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    return ReplicaKey(body.voter_id, body.voter_directory_id), Endpoint(listener.host, listener.port)
