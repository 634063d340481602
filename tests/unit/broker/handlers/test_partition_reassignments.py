"""Reassignments: begun, given up and listed by the controller."""

import msgspec
import pytest

from ottla.broker.network.beside import LARGE_BYTES
from ottla.broker.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.broker.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.broker.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site

Altered = controller_pb2.AlterPartitionReassignmentsResponse
Listed = controller_pb2.ListPartitionReassignmentsResponse


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


def test_what_is_under_way_is_told_as_the_controller_knows_it(site: Site) -> None:
    asked = [ListPartitionReassignmentsTopics("t", [0, 9]), ListPartitionReassignmentsTopics("quiet", [1])]
    site.send(ListPartitionReassignmentsRequest(5000, asked), 0)
    request = site.controller.request.list_partition_reassignments
    assert ([(each.name, list(each.partitions)) for each in request.topics], request.all_partitions) == (
        [("t", [0, 9]), ("quiet", [1])],
        False,
    )
    moves = Listed.Partition(partition_index=9, replicas=[2, 3, 1], adding=[3], removing=[1])
    listed = Listed(topics=[Listed.Topic(name="t", partitions=[moves])])
    site.controller.answer(controller_pb2.ControllerResponse(list_partition_reassignments=listed))
    response = site.received("ListPartitionReassignmentsResponse", 0)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    [topic] = response.topics
    [each] = topic.partitions
    assert (topic.name, each.partition_index) == ("t", 9)
    assert (each.replicas, each.adding_replicas, each.removing_replicas) == ([2, 3, 1], [3], [1])


def test_null_asks_for_all_that_are_under_way_and_no_controller_is_no_empty_list(site: Site) -> None:
    site.send(ListPartitionReassignmentsRequest(5000, None), 0)
    assert site.controller.request.list_partition_reassignments.all_partitions
    site.controller.answer(None)
    assert site.received("ListPartitionReassignmentsResponse", 0).error_code == ErrorCode.REQUEST_TIMED_OUT


MANY = LARGE_BYTES // 4


@pytest.mark.parametrize(
    ("asked", "version", "asks"),
    [
        (
            AlterPartitionReassignmentsRequest(
                5000, True, [ReassignableTopic("t", [ReassignablePartition(index) for index in range(MANY)])]
            ),
            1,
            "alter_partition_reassignments",
        ),
        (
            ListPartitionReassignmentsRequest(5000, [ListPartitionReassignmentsTopics("t", list(range(MANY)))]),
            0,
            "list_partition_reassignments",
        ),
        (ElectLeadersRequest(0, [TopicPartitions("t", list(range(MANY)))], 5000), 2, "elect_leaders"),
    ],
)
def test_what_a_large_request_asks_of_the_controller_and_its_answer_are_made_beside_the_loop(
    site: Site, asked: msgspec.Struct, version: int, asks: str
) -> None:
    site.send(asked, version)
    assert site.controller.asked == []
    ((read, _),) = site.beside.waiting
    _, ask = read()
    assert len(getattr(ask, asks).topics[0].partitions) == MANY
    site.beside.finish_one()
    assert len(getattr(site.controller.request, asks).topics[0].partitions) == MANY
    site.controller.answer(controller_pb2.ControllerResponse())
    assert site.beside.waiting, "its answer is written there"
    site.beside.finish_one()
    assert site.received(type(asked).__name__.replace("Request", "Response"), version).error_code == ErrorCode.NONE
