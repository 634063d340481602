"""ConsumerGroupDescribe (69), versions 0 and 1: groups of the newer protocol (KIP-848), and no others."""

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.common import operations, route
from ottla.broker.handlers.groups import DESCRIBED_A_TURN, GROUP_OPERATIONS, valid
from ottla.broker.handlers.long_answers import LongAnswers, batches, list_in_pieces, work_of
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.broker.wire.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from ottla.runtime.errors import ErrorCode, KafkaError


def routes(broker: BrokerContext) -> list[Route]:
    def described(group_id: str, allowed: int) -> DescribedGroup:
        try:
            shard = broker.groups.shard_of(valid(group_id))
        except KafkaError as error:
            return DescribedGroup(error.code, error.message, group_id)
        told = shard.described_consumers(group_id)
        if told.error_code == ErrorCode.NONE:
            told.authorized_operations = allowed
        return told

    long_answers = LongAnswers()

    def describe(request: RequestContext, body: ConsumerGroupDescribeRequest) -> None:
        allowed = operations(body.include_authorized_operations, GROUP_OPERATIONS)
        told = (described(each, allowed) for each in dict.fromkeys(body.group_ids))
        in_turn = batches(told, DESCRIBED_A_TURN, lambda each: 1 + sum(map(_work_of, each.members)))
        long_answers.give(request, list_in_pieces(request, _descriptions, in_turn))

    return [route("ConsumerGroupDescribe", ConsumerGroupDescribeRequest, describe)]


def _descriptions(told: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=told)


def _work_of(member: Member) -> int:
    """Both what it has and what it is to have may be thousands of topics."""
    return 1 + work_of(member.assignment.topic_partitions) + work_of(member.target_assignment.topic_partitions)
