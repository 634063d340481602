"""What a client with a group.id is told while there are no groups: at once, and so that it gives up."""

import logging

import pytest

from ottla.broker.wire.messages import offset_commit_request as commit
from ottla.broker.wire.messages import offset_fetch_request as fetch
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest
from ottla.broker.wire.messages.list_groups_request import ListGroupsRequest
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize("version", range(4))
def test_the_node_itself_is_a_groups_coordinator(site: Site, version: int) -> None:
    response = site.ask(FindCoordinatorRequest("my-group"), version)
    assert (response.error_code, response.node_id) == (ErrorCode.NONE, 1)
    assert (response.host, response.port) == ("host1.plaintext", 9092)


def test_a_node_that_is_not_registered_yet_is_no_coordinator(site: Site) -> None:
    del site.image.brokers[1]
    assert site.ask(FindCoordinatorRequest("my-group"), 3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(4, 7))
def test_each_group_has_its_coordinator(site: Site, version: int) -> None:
    response = site.ask(FindCoordinatorRequest(coordinator_keys=["a", "b"]), version)
    assert [(each.key, each.error_code, each.node_id) for each in response.coordinators] == [("a", 0, 1), ("b", 0, 1)]


@pytest.mark.parametrize("version", range(4, 7))
def test_transactions_have_none(site: Site, version: int) -> None:
    response = site.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"]), version)
    assert [(each.key, each.error_code) for each in response.coordinators] == [
        ("a", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("b", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]
    assert "transactions are not served" in response.coordinators[0].error_message


def test_an_unknown_kind_of_key_is_a_mistake(site: Site) -> None:
    assert site.ask(FindCoordinatorRequest("x", 9), 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(10))
def test_joining_is_refused_for_good(site: Site, version: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(9):
        assert site.ask(JoinGroupRequest("my-group"), version).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [record.getMessage().count("my-group") for record in caplog.records] == [1, 1, 1, 1]  # of 1, 2, 4, 8
    assert "consumer groups are not served" in caplog.records[0].getMessage()
    assert "8 times so far" in caplog.records[3].getMessage()


@pytest.mark.parametrize("version", range(2))
def test_the_newer_protocols_members_are_told_why(site: Site, version: int) -> None:
    response = site.ask(ConsumerGroupHeartbeatRequest("my-group"), version)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "consumer groups are not served" in response.error_message


@pytest.mark.parametrize("version", range(2, 11))
def test_no_offset_is_committed(site: Site, version: int) -> None:
    place = {"topic_id": TOPIC_ID} if version >= 10 else {"name": "flights"}
    partitions = [commit.OffsetCommitRequestPartition(index, 5) for index in range(2)]
    topic = commit.OffsetCommitRequestTopic(partitions=partitions, **place)
    [told] = site.ask(commit.OffsetCommitRequest("my-group", topics=[topic]), version).topics
    assert [(each.partition_index, each.error_code) for each in told.partitions] == [(0, 35), (1, 35)]


@pytest.mark.parametrize("version", range(1, 8))
def test_no_offset_was_committed(site: Site, version: int) -> None:
    asked = fetch.OffsetFetchRequest("my-group", [fetch.OffsetFetchRequestTopic("flights", [0, 1])])
    [told] = site.ask(asked, version).topics
    assert [(each.partition_index, each.committed_offset, each.error_code) for each in told.partitions] == [
        (0, -1, 0),
        (1, -1, 0),
    ]


@pytest.mark.parametrize("version", range(8, 11))
def test_no_offset_of_any_group_was_committed(site: Site, version: int) -> None:
    topic = fetch.OffsetFetchRequestTopics("" if version >= 10 else "flights", partition_indexes=[3])
    groups = [
        fetch.OffsetFetchRequestGroup("a", topics=[topic]),
        fetch.OffsetFetchRequestGroup("b", topics=None),
    ]
    told = site.ask(fetch.OffsetFetchRequest(groups=groups), version).groups
    assert [(each.group_id, each.error_code, len(each.topics)) for each in told] == [("a", 0, 1), ("b", 0, 0)]
    assert told[0].topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize("version", range(6))
def test_there_are_no_groups(site: Site, version: int) -> None:
    response = site.ask(ListGroupsRequest(), version)
    assert (response.error_code, response.groups) == (ErrorCode.NONE, [])
