"""Reassignments: begun and given up by the controller, listed from the image."""

import pytest
from msgspec import structs

from ottla.broker.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.broker.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site, partition_view

Altered = controller_pb2.AlterPartitionReassignmentsResponse


@pytest.mark.parametrize("version", range(2))
def test_lists_begin_reassignments_and_null_gives_them_up(site: Site, version: int) -> None:
    partitions = [ReassignablePartition(0, [2, 3]), ReassignablePartition(1, None), ReassignablePartition(2, [])]
    body = AlterPartitionReassignmentsRequest(5000, version == 0, [ReassignableTopic("t", partitions)])
    site.send(body, version)
    asked = site.controller.request.alter_partition_reassignments
    assert asked.allow_replication_factor_change == (version == 0)
    [topic] = asked.topics
    assert [(each.partition_index, list(each.replicas), each.cancel) for each in topic.partitions] == [
        (0, [2, 3], False),
        (1, [], True),
        (2, [], False),
    ]
    told = [Altered.Partition(partition_index=0), Altered.Partition(partition_index=1, error_code=85)]
    answer = Altered(topics=[Altered.Topic(name="t", partitions=told)])
    site.controller.answer(controller_pb2.ControllerResponse(alter_partition_reassignments=answer))
    response = site.received("AlterPartitionReassignmentsResponse", version)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    [results] = response.responses
    assert [(each.partition_index, each.error_code) for each in results.partitions] == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ]


def test_a_refusal_is_of_the_whole_request(site: Site) -> None:
    site.send(AlterPartitionReassignmentsRequest(5000, True, []), 1)
    site.controller.answer(None)
    response = site.received("AlterPartitionReassignmentsResponse", 1)
    assert (response.error_code, response.responses) == (ErrorCode.REQUEST_TIMED_OUT, [])


@pytest.fixture
def moving(site: Site) -> Site:
    at_rest = partition_view((1, 2), (1, 2), 1)
    moves = structs.replace(at_rest, replicas=(2, 3, 1), adding=(3,), removing=(1,))
    site.add_topic("t", at_rest, moves)
    site.add_topic("quiet", at_rest)
    site.add_topic("busy", moves)
    return site


def listed(site: Site, topics: list[ListPartitionReassignmentsTopics] | None) -> dict[str, list[int]]:
    response = site.ask(ListPartitionReassignmentsRequest(5000, topics), 0)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    for topic in response.topics:
        for each in topic.partitions:
            assert (each.replicas, each.adding_replicas, each.removing_replicas) == ([2, 3, 1], [3], [1])
    return {topic.name: [each.partition_index for each in topic.partitions] for topic in response.topics}


def test_all_that_are_under_way_are_listed(moving: Site) -> None:
    assert listed(moving, None) == {"t": [1], "busy": [0]}


def test_what_is_asked_for_and_is_not_under_way_or_not_there_is_left_out(moving: Site) -> None:
    asked = [ListPartitionReassignmentsTopics(name, [0, 1, 9]) for name in ("t", "quiet", "nowhere")]
    assert listed(moving, asked) == {"t": [1]}
    assert listed(moving, []) == {}
