"""DescribeCluster, DescribeQuorum, DescribeTopicPartitions."""

from typing import Any

import pytest

from ottla.broker.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.broker.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.broker.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.quorum.listener import QuorumDescription, ReplicaDescription
from ottla.quorum.raft.voters import Endpoint
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site, partition_view

METADATA = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
DIRECTORY = bytes(range(16))


@pytest.mark.parametrize("version", range(3))
def test_a_cluster_is_told_without_its_fenced_brokers(site: Site, version: int) -> None:
    site.change_broker(3, fenced=True)
    response = site.ask(DescribeClusterRequest(True), version)
    assert (response.cluster_id, response.controller_id, response.error_code) == ("the-cluster", 1, 0)
    assert [(each.broker_id, each.host, each.rack) for each in response.brokers] == [
        (1, "host1.plaintext", "r1"),
        (2, "host2.plaintext", None),
    ]
    assert response.cluster_authorized_operations == 0b1111110100000


def test_fenced_brokers_are_told_when_asked_for(site: Site) -> None:
    site.change_broker(1, fenced=True)
    response = site.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(each.broker_id, each.is_fenced) for each in response.brokers] == [(1, True), (2, False), (3, False)]
    assert response.controller_id == 2


@pytest.mark.parametrize(
    ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_controllers_are_not_told_on_a_brokers_listener(site: Site, kind: int, code: ErrorCode) -> None:
    assert site.ask(DescribeClusterRequest(endpoint_type=kind), 1).error_code == code


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_told_as_its_leader_sees_it(site: Site, version: int) -> None:
    site.quorum_view.description = QuorumDescription(
        3,
        9,
        120,
        [ReplicaDescription(3, DIRECTORY, Endpoint("c3", 9093), 125, 1000, 1001)],
        [ReplicaDescription(1, None, None, 119, 900, 901)],
    )
    response = site.ask(METADATA, version)
    (partition,) = response.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (3, 9, 120)
    (voter,), (observer,) = partition.current_voters, partition.observers
    assert (voter.replica_id, voter.log_end_offset, observer.replica_id, observer.log_end_offset) == (3, 125, 1, 119)
    assert (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == ((1000, 1001) if version else (-1, -1))
    if version == 2:
        assert voter.replica_directory_id == DIRECTORY
        (node,) = response.nodes
        assert [(node.node_id, each.name, each.host, each.port) for each in node.listeners] == [
            (3, "CONTROLLER", "c3", 9093)
        ]


@pytest.mark.parametrize("description", [None, QuorumDescription(None, 3, -1, [], [])])
@pytest.mark.parametrize("version", range(3))
def test_a_quorum_without_leader_is_an_error(site: Site, version: int, description: QuorumDescription | None) -> None:
    site.quorum_view.description = description
    assert site.ask(METADATA, version).error_code == ErrorCode.BROKER_NOT_AVAILABLE


def test_other_topics_have_no_quorum(site: Site) -> None:
    response = site.ask(DescribeQuorumRequest([TopicData("flights", [PartitionData(0)])]), 2)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = site.ask(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(1)])]), 2)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def paged(site: Site) -> Site:
    for name, count in (("b", 3), ("a", 2), ("c", 2)):
        site.add_topic(name, *(partition_view((1, 2), (1,), 1) for _ in range(count)))
    return site


def pages(response: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics]


def test_topics_come_sorted_and_whole_when_they_fit(paged: Site) -> None:
    response = paged.ask(DescribeTopicPartitionsRequest(), 0)
    assert pages(response) == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0, 1])]
    assert response.next_cursor is None
    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes, partition.isr_nodes) == (
        1,
        7,
        [1, 2],
        [1],
    )


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7])
def test_following_the_cursor_tells_every_partition_once(paged: Site, limit: int) -> None:
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        response = paged.ask(DescribeTopicPartitionsRequest(response_partition_limit=limit, cursor=cursor), 0)
        page = [(name, index) for name, indexes in pages(response) for index in indexes]
        assert 0 < len(page) <= limit
        seen += page
        if response.next_cursor is None:
            break
        cursor = Cursor(response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1)]


def test_named_topics_only_and_unknown_ones_with_their_error(paged: Site) -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest("c"), TopicRequest("nobody"), TopicRequest("a")])
    response = paged.ask(request, 0)
    assert [(each.name, each.error_code) for each in response.topics] == [("a", 0), ("c", 0), ("nobody", 3)]


def test_the_server_bounds_a_page(site: Site) -> None:
    small = Site(max_request_partition_size_limit="2")
    small.add_topic("a", *(partition_view((1,), (1,), 1) for _ in range(5)))
    assert pages(small.ask(DescribeTopicPartitionsRequest(), 0)) == [("a", [0, 1])]


@pytest.mark.parametrize("cursor", [Cursor("a", -1), Cursor("b", 0), Cursor("nobody", 0)])
def test_a_cursor_that_cannot_be_is_refused_topic_by_topic(paged: Site, cursor: Cursor) -> None:
    response = paged.ask(DescribeTopicPartitionsRequest([TopicRequest("a"), TopicRequest("c")], cursor=cursor), 0)
    assert [(each.name, each.error_code) for each in response.topics] == [("a", 42), ("c", 42)]
    assert response.next_cursor is None


def test_a_cursor_may_be_at_any_topic_where_none_is_named(paged: Site) -> None:
    """It may have been deleted in between."""
    assert pages(paged.ask(DescribeTopicPartitionsRequest(cursor=Cursor("bb", 1)), 0)) == [("c", [0, 1])]
    assert paged.ask(DescribeTopicPartitionsRequest(cursor=Cursor("b", -1)), 0).topics == []


def test_offline_replicas_are_told(paged: Site) -> None:
    paged.change_broker(2, fenced=True)
    partition = paged.ask(DescribeTopicPartitionsRequest(), 0).topics[0].partitions[0]
    assert partition.offline_replicas == [2]


def test_topics_that_there_are_not_fill_a_page_too(paged: Site) -> None:
    asked = [TopicRequest(name) for name in ("a", "nobody", "noone", "nothing")]
    response = paged.ask(DescribeTopicPartitionsRequest(asked, response_partition_limit=3), 0)
    assert [(each.name, each.error_code) for each in response.topics] == [("a", 0), ("nobody", 3)]
    cursor = Cursor(response.next_cursor.topic_name, response.next_cursor.partition_index)
    response = paged.ask(DescribeTopicPartitionsRequest(asked, response_partition_limit=3, cursor=cursor), 0)
    assert [(each.name, each.error_code) for each in response.topics] == [("noone", 3), ("nothing", 3)]
    assert response.next_cursor is None


@pytest.mark.parametrize("index", [0, -1])
def test_names_of_a_large_request_are_put_in_order_beside_the_loop(site: Site, index: int) -> None:
    site.add_topic("topic-3", partition_view((1,), (1,), 1))
    names = [f"topic-{number}" for number in range(9_999, -1, -1)]
    asked = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], 2, Cursor("topic-3", index))
    site.send(asked, 0)
    ((read, _),) = site.beside.waiting
    _, named = read()
    assert list(named) == sorted(names)
    site.beside.finish_one()
    site.beside.finish_one()
    response = site.received("DescribeTopicPartitionsResponse", 0)
    if index < 0:
        assert [topic.name for topic in response.topics] == names
        return
    assert [topic.name for topic in response.topics] == ["topic-3", "topic-30"]
    assert response.next_cursor.topic_name == "topic-300"
