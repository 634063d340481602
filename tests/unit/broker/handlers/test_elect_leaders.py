"""ElectLeaders: what is asked of the controller, and what comes of its answers, in every version."""

import pytest

from ottla.broker.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site

Elected = controller_pb2.ElectLeadersResponse
NAMED = [TopicPartitions("t", [0, 1])]


def elected(*partitions: tuple[int, int, str]) -> controller_pb2.ControllerResponse:
    told = [
        Elected.Partition(partition_index=index, error_code=code, error_message=text)
        for index, code, text in partitions
    ]
    return controller_pb2.ControllerResponse(elect_leaders=Elected(topics=[Elected.Topic(name="t", partitions=told)]))


@pytest.mark.parametrize("version", range(3))
def test_each_partition_has_its_own_result(site: Site, version: int) -> None:
    kind = 1 if version else 0  # version 0 knows preferred leaders only
    site.send(ElectLeadersRequest(kind, NAMED, 1234), version)
    asked = site.controller.request.elect_leaders
    assert (asked.election_type, asked.all_partitions) == (kind, False)
    assert [(each.name, list(each.partitions)) for each in asked.topics] == [("t", [0, 1])]
    assert site.controller.asked[0][2] == 1234
    site.controller.answer(elected((0, 0, ""), (1, ErrorCode.ELECTION_NOT_NEEDED, "not needed")))
    response = site.received("ElectLeadersResponse", version)
    assert response.error_code == ErrorCode.NONE
    [topic] = response.replica_election_results
    assert [(each.partition_id, each.error_code, each.error_message) for each in topic.partition_result] == [
        (0, ErrorCode.NONE, None),
        (1, ErrorCode.ELECTION_NOT_NEEDED, "not needed"),
    ]


@pytest.mark.parametrize("version", range(3))
def test_null_stands_for_all_and_an_empty_list_for_none(site: Site, version: int) -> None:
    for topics, is_all in ((None, True), ([], False)):
        site.send(ElectLeadersRequest(0, topics), version)
        asked = site.controller.request.elect_leaders
        assert (asked.all_partitions, list(asked.topics)) == (is_all, [])
        site.controller.answer(controller_pb2.ControllerResponse(elect_leaders=Elected()))
        assert site.received("ElectLeadersResponse", version).replica_election_results == []


@pytest.mark.parametrize("version", range(3))
def test_a_refusal_stands_where_the_version_has_room_for_it(site: Site, version: int) -> None:
    site.send(ElectLeadersRequest(0, NAMED), version)
    site.controller.answer(controller_pb2.ControllerResponse(error_code=ErrorCode.INVALID_REQUEST, error_message="no"))
    response = site.received("ElectLeadersResponse", version)
    assert response.error_code == (ErrorCode.INVALID_REQUEST if version else ErrorCode.NONE)
    [topic] = response.replica_election_results
    assert [(each.partition_id, each.error_code) for each in topic.partition_result] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.INVALID_REQUEST),
    ]


def test_a_controller_that_does_not_answer_is_told_as_that(site: Site) -> None:
    site.send(ElectLeadersRequest(0, None), 2)
    site.controller.answer(None)
    assert site.received("ElectLeadersResponse", 2).error_code == ErrorCode.REQUEST_TIMED_OUT
