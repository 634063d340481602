"""ConsumerGroupDescribe (69), versions 0 and 1: groups of the newer protocol (KIP-848), and no others."""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import operations, route
from ottla.broker.handlers.groups import GROUP_OPERATIONS, valid
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.broker.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
from ottla.runtime.errors import KafkaError


def routes(broker: BrokerContext) -> list[Route]:
    def described(group_id: str) -> DescribedGroup:
        try:
            shard = broker.groups.shard_of(valid(group_id))
        except KafkaError as error:
            return DescribedGroup(error.code, error.message, group_id)
        return shard.described_consumers(group_id)

    def describe(request: RequestContext, body: ConsumerGroupDescribeRequest) -> None:
        told = [described(each) for each in dict.fromkeys(body.group_ids)]
        for each in told:
            each.authorized_operations = operations(body.include_authorized_operations, GROUP_OPERATIONS)
        request.respond_message(ConsumerGroupDescribeResponse(groups=told))

    return [route("ConsumerGroupDescribe", ConsumerGroupDescribeRequest, describe)]
