"""What a client with a group.id asks its coordinator. There are no groups yet: JoinGroup (11) and ConsumerGroupHeartbeat (68) are
refused, and so is OffsetCommit (8); OffsetFetch (9) has nothing to tell.

UNSUPPORTED_VERSION is what librdkafka, the Java client, kafka-python and aiokafka all give up on at the first answer, and tell the
application. An API that is not offered at all is not enough: aiokafka then asks for ever, and librdkafka's poll does not return.
The others of the group (heartbeats, assignments) are only asked by members, which nobody is.
"""

import logging

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import route
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages import offset_commit_response, offset_fetch_response
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest
from ottla.broker.wire.messages.join_group_response import JoinGroupResponse
from ottla.broker.wire.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from ottla.broker.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.broker.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.broker.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.runtime.errors import ErrorCode
from ottla.runtime.seldom import Seldom

NOT_SERVED = "consumer groups are not served by this version of Ottla yet: assign partitions instead of subscribing"
REFUSED = ErrorCode.UNSUPPORTED_VERSION
NO_OFFSET = -1
_MANY_GROUPS_FROM = 8

logger = logging.getLogger(__name__)


def routes(broker: BrokerContext) -> list[Route]:
    refusals = Seldom(logger)

    def tell(request: RequestContext, group: str) -> None:
        refusals.warn("Client %.100r wants to join group %.249r: %s", request.client_id, group, NOT_SERVED)

    def join(request: RequestContext, body: JoinGroupRequest) -> None:
        tell(request, body.group_id)
        request.respond_message(JoinGroupResponse(error_code=REFUSED, member_id=body.member_id))

    def heartbeat(request: RequestContext, body: ConsumerGroupHeartbeatRequest) -> None:
        tell(request, body.group_id)
        refusal = ConsumerGroupHeartbeatResponse(error_code=REFUSED, error_message=NOT_SERVED, member_id=body.member_id)
        request.respond_message(refusal)

    return [
        route("OffsetCommit", OffsetCommitRequest, _commit),
        route("OffsetFetch", OffsetFetchRequest, _fetch),
        route("JoinGroup", JoinGroupRequest, join),
        route("ConsumerGroupHeartbeat", ConsumerGroupHeartbeatRequest, heartbeat),
    ]


def _commit(request: RequestContext, body: OffsetCommitRequest) -> None:
    request.respond_message(OffsetCommitResponse(topics=[_not_committed(each) for each in body.topics]))


def _not_committed(topic: OffsetCommitRequestTopic) -> offset_commit_response.OffsetCommitResponseTopic:
    refused = [
        offset_commit_response.OffsetCommitResponsePartition(each.partition_index, REFUSED) for each in topic.partitions
    ]
    return offset_commit_response.OffsetCommitResponseTopic(topic.name, topic.topic_id, refused)


def _fetch(request: RequestContext, body: OffsetFetchRequest) -> None:
    if request.version >= _MANY_GROUPS_FROM:
        answer = OffsetFetchResponse(groups=[_none_of_group(each) for each in body.groups])
    else:
        answer = OffsetFetchResponse(topics=[_none(each) for each in body.topics or ()])
    request.respond_message(answer)


def _none(topic: OffsetFetchRequestTopic) -> offset_fetch_response.OffsetFetchResponseTopic:
    nothing = [
        offset_fetch_response.OffsetFetchResponsePartition(index, NO_OFFSET) for index in topic.partition_indexes
    ]
    return offset_fetch_response.OffsetFetchResponseTopic(topic.name, nothing)


def _none_of_group(group: OffsetFetchRequestGroup) -> offset_fetch_response.OffsetFetchResponseGroup:
    return offset_fetch_response.OffsetFetchResponseGroup(
        group.group_id, [_none_by_id(each) for each in group.topics or ()]
    )


def _none_by_id(topic: OffsetFetchRequestTopics) -> offset_fetch_response.OffsetFetchResponseTopics:
    nothing = [
        offset_fetch_response.OffsetFetchResponsePartitions(index, NO_OFFSET) for index in topic.partition_indexes
    ]
    return offset_fetch_response.OffsetFetchResponseTopics(topic.name, topic.topic_id, nothing)
