"""DescribeQuorum (55): how far each voter and observer has followed the metadata log, as the quorum's leader knows."""

from ottla.broker.context import NodeContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.describe_quorum_request import DescribeQuorumRequest
from ottla.broker.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from ottla.log.names import METADATA_PARTITION
from ottla.quorum.listener import QuorumDescription, ReplicaDescription
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

_NO_QUORUM = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"only {METADATA_PARTITION} has a quorum")
_ANOTHER_LEADS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller does not lead the quorum: ask the active one")
_NODES_FROM = 2
_DIRECTORIES_FROM = 2


def routes(node: NodeContext) -> list[Route]:
    def answer(request: RequestContext, body: DescribeQuorumRequest) -> None:
        if not _asks_metadata_only(body):
            request.respond_message(_refused(body, *_NO_QUORUM))
            return
        if not (node.sends_on or node.quorum.is_leader):
            request.respond_message(_refused(body, *_ANOTHER_LEADS))
            return
        node.quorum_view.describe(lambda found: request.respond_message(_response(node, found, request.version)))

    return [route("DescribeQuorum", DescribeQuorumRequest, answer)]


def _asks_metadata_only(body: DescribeQuorumRequest) -> bool:
    return all(
        topic.topic_name == METADATA_PARTITION.topic and all(each.partition_index == 0 for each in topic.partitions)
        for topic in body.topics
    )


def _refused(body: DescribeQuorumRequest, code: ErrorCode, message: str) -> DescribeQuorumResponse:
    topics = [
        TopicData(topic.topic_name, [PartitionData(each.partition_index, code, message) for each in topic.partitions])
        for topic in body.topics
    ]
    return DescribeQuorumResponse(error_message=None, topics=topics)


def _response(node: NodeContext, found: QuorumDescription | None, version: int) -> DescribeQuorumResponse:
    if found is None or found.leader_id is None:
        message = "the quorum has no leader that answers"
        return DescribeQuorumResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE, error_message=message)
    partition = PartitionData(
        error_message=None,
        leader_id=found.leader_id,
        leader_epoch=found.epoch,
        high_watermark=found.high_watermark,
        current_voters=[_replica(each, version) for each in found.voters],
        observers=[_replica(each, version) for each in found.observers],
    )
    return DescribeQuorumResponse(
        error_message=None,
        topics=[TopicData(METADATA_PARTITION.topic, [partition])],
        nodes=_nodes(node, found) if version >= _NODES_FROM else [],
    )


def _replica(replica: ReplicaDescription, version: int) -> ReplicaState:
    directory_id = replica.directory_id if version >= _DIRECTORIES_FROM else None
    return ReplicaState(
        replica.id,
        directory_id or ZERO_ID,
        replica.log_end_offset,
        replica.last_fetch_ms,
        replica.last_caught_up_ms,
    )


def _nodes(node: NodeContext, found: QuorumDescription) -> list[Node]:
    """The voters, and the controllers that may become voters."""
    name = next(iter(node.config.controller_listener_names), "CONTROLLER")
    voters = [Node(each.id, [Listener(name, *each.endpoint)]) for each in found.voters if each.endpoint is not None]
    known = [node.node_id for node in voters]
    controllers = node.image.controllers
    return voters + [
        Node(each.id, [Listener(end.name, end.host, end.port) for end in controllers[each.id].endpoints])
        for each in found.observers
        if each.id in controllers and each.id not in known
    ]
