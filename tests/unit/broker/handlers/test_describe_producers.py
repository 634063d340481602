"""DescribeProducers: who writes to a partition, once however often it is asked for."""

from typing import Any, cast

from ottla.broker.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site


def test_a_partition_that_is_asked_for_again_and_again_is_told_once(site: Site) -> None:
    cast(Any, site.broker.replicas).missing_error = lambda *_: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = [TopicRequest("a", [0, 1, 0]), TopicRequest("b", [0]), TopicRequest("a", [1, 2])]
    topics = site.ask(DescribeProducersRequest(asked), 0).topics
    assert [(each.name, [entry.partition_index for entry in each.partitions]) for each in topics] == [
        ("a", [0, 1, 2]),
        ("b", [0]),
    ]
