"""CreateTopics, DeleteTopics and CreatePartitions: what is sent to the controller, and what the client hears."""

from collections.abc import Callable

import msgspec
import pytest

from ottla.broker.wire.messages import alter_configs_request as replaced
from ottla.broker.wire.messages import incremental_alter_configs_request as altered
from ottla.broker.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.broker.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.broker.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site

Told = controller_pb2.ControllerResponse
TOPIC_ID = bytes(range(16))


class TestCreateTopics:
    def test_the_controller_gets_what_the_client_wrote(self, site: Site) -> None:
        topic = CreatableTopic(
            "flights", 6, 3, [CreatableReplicaAssignment(0, [1, 2])], [CreatableTopicConfig("retention.ms", "5")]
        )
        unset = CreatableTopic("other", -1, -1, configs=[CreatableTopicConfig("segment.ms", None)])
        site.send(CreateTopicsRequest([topic, unset], timeout_ms=700, validate_only=True), 7)
        asked, _, timeout_ms = site.controller.asked[0]
        first, second = asked.create_topics.topics
        assert (first.name, first.num_partitions, first.replication_factor) == ("flights", 6, 3)
        assert [(each.partition_index, list(each.broker_ids)) for each in first.assignments] == [(0, [1, 2])]
        assert [(each.name, each.value) for each in first.configs] == [("retention.ms", "5")]
        assert not second.configs[0].HasField("value")
        assert asked.create_topics.validate_only
        assert asked.origin == "client test through broker 1"
        assert timeout_ms == 700
        assert not site.written  # it waits for the controller

    @pytest.mark.parametrize("version", range(2, 8))
    def test_the_client_hears_the_controllers_answer_in_every_version(self, site: Site, version: int) -> None:
        site.send(CreateTopicsRequest([CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1)]), version)
        told = Told()
        told.create_topics.topics.add(name="a", topic_id=TOPIC_ID, num_partitions=6, replication_factor=3)
        told.create_topics.topics.add(name="b", error_code=36, error_message="topic b exists")
        site.controller.answer(told)
        created, refused = site.received("CreateTopicsResponse", version).topics
        assert (created.name, created.error_code, created.error_message) == ("a", 0, None)
        assert (refused.error_code, refused.error_message) == (36, "topic b exists")
        if version >= 5:
            assert (created.num_partitions, created.replication_factor) == (6, 3)
        if version >= 7:
            assert created.topic_id == TOPIC_ID

    def test_the_answer_tells_the_settings_that_hold(self, site: Site) -> None:
        site.send(CreateTopicsRequest([CreatableTopic("a", 1, 1)]), 7)
        told = Told()
        topic = told.create_topics.topics.add(name="a", topic_id=TOPIC_ID)
        topic.configs.add(name="retention.ms", value="5")
        site.controller.answer(told)
        (created,) = site.received("CreateTopicsResponse", 7).topics
        told_configs = {each.name: (each.value, each.config_source) for each in created.configs}
        assert told_configs["retention.ms"] == ("5", 1)
        assert told_configs["cleanup.policy"] == ("delete", 5)

    def test_a_name_that_comes_twice_is_refused_and_the_others_go_on(self, site: Site) -> None:
        site.send(CreateTopicsRequest([CreatableTopic("a"), CreatableTopic("b"), CreatableTopic("a")]), 7)
        assert [each.name for each in site.controller.request.create_topics.topics] == ["b"]
        told = Told()
        told.create_topics.topics.add(name="b", topic_id=TOPIC_ID)
        site.controller.answer(told)
        results = {each.name: each.error_code for each in site.received("CreateTopicsResponse", 7).topics}
        assert results == {"a": ErrorCode.INVALID_REQUEST, "b": ErrorCode.NONE}

    def test_only_mistakes_need_no_controller(self, site: Site) -> None:
        response = site.ask(CreateTopicsRequest([CreatableTopic("a"), CreatableTopic("a")]), 7)
        assert [each.error_code for each in response.topics] == [ErrorCode.INVALID_REQUEST]
        assert site.controller.asked == []

    @pytest.mark.parametrize(
        ("answer", "code"),
        [
            (None, ErrorCode.REQUEST_TIMED_OUT),
            (Told(error_code=41), ErrorCode.NOT_CONTROLLER),
            (Told(error_code=12345), ErrorCode.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_an_error_of_the_whole_request_is_told_for_each_topic(
        self, site: Site, answer: Told | None, code: ErrorCode
    ) -> None:
        site.send(CreateTopicsRequest([CreatableTopic("a"), CreatableTopic("b")]), 7)
        site.controller.answer(answer)
        topics = site.received("CreateTopicsResponse", 7).topics
        assert [(each.name, each.error_code) for each in topics] == [("a", code), ("b", code)]

    @pytest.mark.parametrize(("asked", "used"), [(0, 1), (-5, 1), (2**31 - 1, 60_000), (500, 500)])
    def test_the_time_to_wait_has_bounds(self, site: Site, asked: int, used: int) -> None:
        site.send(CreateTopicsRequest([CreatableTopic("a")], timeout_ms=asked), 7)
        assert site.controller.asked[0][2] == used

    def test_a_client_that_is_gone_is_not_answered(self, site: Site) -> None:
        site.send(CreateTopicsRequest([CreatableTopic("a")]), 7)
        site.connection.connection_lost(None)
        site.controller.answer(Told())
        assert not site.written


class TestDeleteTopics:
    @pytest.mark.parametrize("version", range(1, 7))
    def test_topics_are_deleted_by_name_in_every_version(self, site: Site, version: int) -> None:
        by_name = version < 6
        request = DeleteTopicsRequest(topic_names=["a"]) if by_name else DeleteTopicsRequest([DeleteTopicState("a")])
        site.send(request, version)
        (asked,) = site.controller.request.delete_topics.topics
        assert asked.name == "a"
        told = Told()
        told.delete_topics.topics.add(name="a", topic_id=TOPIC_ID, error_code=3, error_message="there is no topic a")
        site.controller.answer(told)
        (result,) = site.received("DeleteTopicsResponse", version).responses
        assert (result.name, result.error_code) == ("a", 3)
        assert result.error_message == ("there is no topic a" if version >= 5 else None)

    def test_topics_are_deleted_by_id(self, site: Site) -> None:
        site.send(DeleteTopicsRequest([DeleteTopicState(None, TOPIC_ID)]), 6)
        (asked,) = site.controller.request.delete_topics.topics
        assert not asked.HasField("name")
        assert asked.topic_id == TOPIC_ID
        told = Told()
        told.delete_topics.topics.add(name="found", topic_id=TOPIC_ID)
        site.controller.answer(told)
        (result,) = site.received("DeleteTopicsResponse", 6).responses
        assert (result.name, result.topic_id, result.error_code) == ("found", TOPIC_ID, 0)

    def test_both_or_neither_or_twice_is_a_mistake(self, site: Site) -> None:
        asked = [
            DeleteTopicState("a", TOPIC_ID),
            DeleteTopicState(None),
            DeleteTopicState("b"),
            DeleteTopicState("b"),
        ]
        response = site.ask(DeleteTopicsRequest(asked), 6)
        assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST] * 3
        assert site.controller.asked == []

    @pytest.mark.parametrize(
        ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
    )
    def test_deletion_can_be_switched_off(self, version: int, code: ErrorCode) -> None:
        site = Site(delete_topic_enable="false")
        response = site.ask(DeleteTopicsRequest(topic_names=["a"]), version)
        assert [each.error_code for each in response.responses] == [code]

    def test_a_controller_that_does_not_answer_is_told(self, site: Site) -> None:
        site.send(DeleteTopicsRequest([DeleteTopicState("a"), DeleteTopicState(None, TOPIC_ID)]), 6)
        site.controller.answer(None)
        results = site.received("DeleteTopicsResponse", 6).responses
        assert [(each.name, each.topic_id, each.error_code) for each in results] == [
            ("a", bytes(16), ErrorCode.REQUEST_TIMED_OUT),
            (None, TOPIC_ID, ErrorCode.REQUEST_TIMED_OUT),
        ]


class TestCreatePartitions:
    @pytest.mark.parametrize("version", range(4))
    def test_the_request_and_the_answer_pass(self, site: Site, version: int) -> None:
        placed = CreatePartitionsTopic("b", 3, [CreatePartitionsAssignment([1, 2])])
        request = CreatePartitionsRequest([CreatePartitionsTopic("a", 9, None), placed], 500, True)
        site.send(request, version)
        first, second = site.controller.request.create_partitions.topics
        assert (first.name, first.count, first.has_assignments) == ("a", 9, False)
        assert second.has_assignments
        assert [list(each.broker_ids) for each in second.assignments] == [[1, 2]]
        assert site.controller.request.create_partitions.validate_only
        told = Told()
        told.create_partitions.topics.add(name="a")
        told.create_partitions.topics.add(name="b", error_code=37, error_message="it has 3 already")
        site.controller.answer(told)
        results = site.received("CreatePartitionsResponse", version).results
        assert [(each.name, each.error_code, each.error_message) for each in results] == [
            ("a", 0, None),
            ("b", 37, "it has 3 already"),
        ]

    def test_a_topic_named_twice_is_refused(self, site: Site) -> None:
        topics = [CreatePartitionsTopic("a", 9, None), CreatePartitionsTopic("a", 8, None)]
        response = site.ask(CreatePartitionsRequest(topics), 3)
        assert [(each.name, each.error_code) for each in response.results] == [("a", ErrorCode.INVALID_REQUEST)]


@pytest.mark.parametrize(
    ("request_of", "version", "results"),
    [
        (lambda names: CreateTopicsRequest([CreatableTopic(name, -1, -1) for name in names]), 7, "topics"),
        (lambda names: DeleteTopicsRequest(topic_names=names), 5, "responses"),
        (lambda names: CreatePartitionsRequest([CreatePartitionsTopic(name, 5, None) for name in names]), 3, "results"),
        (lambda names: altered.IncrementalAlterConfigsRequest([altered.AlterConfigsResource(2, name) for name in names]), 1, "responses"),
        (lambda names: replaced.AlterConfigsRequest([replaced.AlterConfigsResource(2, name) for name in names]), 2, "responses"),
    ],
)  # fmt: skip
def test_what_the_controller_would_refuse_for_its_size_is_not_passed_on(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    request_of: Callable[[list[str]], msgspec.Struct],
    version: int,
    results: str,
) -> None:
    monkeypatch.setattr("ottla.broker.handlers.common.ENTRIES_MAX", 3)
    told = getattr(site.ask(request_of(["a", "b", "c", "d"]), version), results)
    assert [each.error_code for each in told] == [ErrorCode.POLICY_VIOLATION] * 4
    site.send(request_of(["a", "b", "c"]), version)
    assert len(site.controller.asked) == 1


@pytest.mark.parametrize(
    ("request_of", "version", "results"),
    [
        (lambda names: CreateTopicsRequest([CreatableTopic(name, -1, -1) for name in names]), 7, "topics"),
        (lambda names: DeleteTopicsRequest(topic_names=names), 5, "responses"),
        (lambda names: DeleteTopicsRequest([DeleteTopicState(name) for name in names]), 6, "responses"),
        (lambda names: CreatePartitionsRequest([CreatePartitionsTopic(name, 5, None) for name in names]), 3, "results"),
    ],
)  # fmt: skip
def test_topics_of_too_large_a_request_are_not_looked_at_and_told_once(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    request_of: Callable[[list[str]], msgspec.Struct],
    version: int,
    results: str,
) -> None:
    monkeypatch.setattr("ottla.broker.handlers.common.ENTRIES_MAX", 3)
    told = getattr(site.ask(request_of(["a", "a", "a", "b"]), version), results)
    assert [(each.name, each.error_code) for each in told] == [(name, ErrorCode.POLICY_VIOLATION) for name in "ab"]


@pytest.mark.parametrize(
    ("asked", "version", "results"),
    [
        (CreateTopicsRequest([CreatableTopic("a", -1, -1, [CreatableReplicaAssignment(0, [1])] * 3)]), 7, "topics"),
        (CreateTopicsRequest([CreatableTopic("a", 1, 1, configs=[CreatableTopicConfig("b", "c")] * 3)]), 7, "topics"),
        (CreatePartitionsRequest([CreatePartitionsTopic("a", 5, [CreatePartitionsAssignment([1])] * 3)]), 3, "results"),
    ],
)  # fmt: skip
def test_what_a_topic_brings_counts_as_the_topic_does(
    site: Site, monkeypatch: pytest.MonkeyPatch, asked: msgspec.Struct, version: int, results: str
) -> None:
    monkeypatch.setattr("ottla.broker.handlers.common.ENTRIES_MAX", 3)
    (told,) = getattr(site.ask(asked, version), results)
    assert told.error_code == ErrorCode.POLICY_VIOLATION
