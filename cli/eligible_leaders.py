"""Who may lead a partition that nobody is in sync of (KIP-966), as brokers tell it: some thousand partitions at a time."""

from collections.abc import Iterable, Iterator

from ottla.broker.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.broker.wire.messages.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.cli.client import Client

Eligible = dict[tuple[str, int], tuple[list[int], list[int]]]
"""By partition: the eligible, and the last of them that were known. Partitions that have none are not there."""


def eligible_leaders(client: Client, names: Iterable[str]) -> Eligible:
    """Of these topics, or of all. None where the broker does not tell."""
    if not client.offers("DescribeTopicPartitions"):
        return {}
    return {
        (topic.name or "", each.partition_index): (each.eligible_leader_replicas or [], each.last_known_elr or [])
        for topic in _topics(client, [TopicRequest(name) for name in names])
        for each in topic.partitions
        if each.eligible_leader_replicas or each.last_known_elr
    }


def _topics(client: Client, named: list[TopicRequest]) -> Iterator[DescribeTopicPartitionsResponseTopic]:
    cursor: Cursor | None = None
    while True:
        answer = client.call(DescribeTopicPartitionsRequest(named, cursor=cursor), DescribeTopicPartitionsResponse)
        yield from answer.topics
        if answer.next_cursor is None:
            return
        cursor = Cursor(answer.next_cursor.topic_name, answer.next_cursor.partition_index)
