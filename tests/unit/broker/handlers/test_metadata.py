"""What Metadata tells, version by version; the rules are those of Kafka's KRaftMetadataCache."""

from typing import Any

import pytest

from ottla.broker.handlers.metadata_fragments import encode_response, encode_topic
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.proto import controller_pb2
from ottla.quorum.metadata.views import TopicView
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID
from tests.unit.broker.handlers.conftest import DIRECTORY, Site, broker_view, partition_view

ALL = MetadataRequest(topics=None)
VERSIONS = range(14)


def named(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create)


def with_topic(site: Site, *, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3)) -> TopicView:
    return site.add_topic("flights", partition_view((1, 2, 3), isr, leader), partition_view((2, 3, 1), (2, 3, 1), 2))


def only_topic(response: Any) -> Any:
    (topic,) = response.topics
    return topic


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_tells_brokers_and_partitions(site: Site, version: int) -> None:
    topic = with_topic(site)
    response = site.ask(ALL if version else MetadataRequest(topics=[]), version)
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [
        (n, f"host{n}.plaintext", 9092) for n in (1, 2, 3)
    ]
    told = only_topic(response)
    assert told.name == "flights"
    assert [(each.leader_id, each.replica_nodes, each.isr_nodes, each.error_code) for each in told.partitions] == [
        (1, [1, 2, 3], [1, 2, 3], 0),
        (2, [2, 3, 1], [2, 3, 1], 0),
    ]
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == ("the-cluster" if version >= 2 else None)
    assert told.topic_id == (topic.id if version >= 10 else ZERO_ID)
    assert told.partitions[0].leader_epoch == (7 if version >= 7 else -1)
    assert response.brokers[0].rack == ("r1" if version >= 1 else None)


def test_an_empty_list_asks_for_all_in_version_zero_and_for_none_later(site: Site) -> None:
    with_topic(site)
    assert len(site.ask(MetadataRequest(topics=[]), 0).topics) == 1
    assert site.ask(MetadataRequest(topics=[]), 1).topics == []
    assert len(site.ask(ALL, 1).topics) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_and_impossible_names_have_errors_of_their_own(site: Site, version: int) -> None:
    response = site.ask(named("nobody", "no spaces", create=True), version)
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


def test_a_topic_asked_twice_is_told_once(site: Site) -> None:
    with_topic(site)
    assert len(site.ask(named("flights", "flights"), 5).topics) == 1


def test_topics_are_found_by_id_from_version_twelve_on(site: Site) -> None:
    topic = with_topic(site)
    by_id = MetadataRequest([MetadataRequestTopic(topic.id, None)])
    assert only_topic(site.ask(by_id, 12)).name == "flights"
    unknown = only_topic(site.ask(MetadataRequest([MetadataRequestTopic(bytes(15) + b"\7", None)]), 12))
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert only_topic(site.ask(by_id, 11)).error_code == ErrorCode.INVALID_REQUEST
    by_both = MetadataRequest([MetadataRequestTopic(topic.id, "another")])
    assert only_topic(site.ask(by_both, 12)).name == "flights"
    nothing = MetadataRequest([MetadataRequestTopic(ZERO_ID, None)])
    for version in (10, 12):
        assert only_topic(site.ask(nothing, version)).error_code == ErrorCode.INVALID_REQUEST


def test_a_fenced_broker_is_not_there(site: Site) -> None:
    with_topic(site, leader=3)
    site.change_broker(3, fenced=True)
    response = site.ask(ALL, 8)
    assert [each.node_id for each in response.brokers] == [1, 2]
    first, second = only_topic(response).partitions
    assert (first.leader_id, first.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert (second.leader_id, second.error_code) == (2, ErrorCode.NONE)
    assert first.offline_replicas == second.offline_replicas == [3]
    assert first.replica_nodes == [1, 2, 3]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_that_closed_its_connection_is_no_leader_for_a_client(site: Site, version: int) -> None:
    """Else a client that lost its leader is sent to it again, and asks anew much later."""
    with_topic(site)
    asked = ALL if version else MetadataRequest(topics=[])
    assert only_topic(site.ask(asked, version)).partitions[0].leader_id == 1
    site.replicas.lost = frozenset({1})
    response = site.ask(asked, version)
    first, second = only_topic(response).partitions
    assert (first.leader_id, first.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert (second.leader_id, second.error_code) == (2, ErrorCode.NONE)
    assert [each.node_id for each in response.brokers] == [1, 2, 3], "it may live, and lead others"
    assert first.offline_replicas == []
    site.replicas.lost = frozenset()
    assert only_topic(site.ask(asked, version)).partitions[0].leader_id == 1


def test_a_broker_that_was_just_fenced_is_named_and_leads_nothing(site: Site) -> None:
    """librdkafka drops a partition for a second if its old leader goes in the answer that brings the new one."""
    with_topic(site, leader=3)
    site.change_broker(3, fenced=True)
    site.replicas.fenced = frozenset({3, 9})
    response = site.ask(ALL, 8)
    assert [each.node_id for each in response.brokers] == [1, 2, 3]
    first = only_topic(response).partitions[0]
    assert (first.leader_id, first.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert first.offline_replicas == [3]
    site.replicas.fenced = frozenset()
    assert [each.node_id for each in site.ask(ALL, 8).brokers] == [1, 2]


def test_version_zero_lists_only_replicas_that_can_be_reached(site: Site) -> None:
    with_topic(site)
    site.change_broker(3, fenced=True)
    first = only_topic(site.ask(MetadataRequest(topics=[]), 0)).partitions[0]
    assert (first.replica_nodes, first.isr_nodes) == ([1, 2], [1, 2])
    assert first.error_code == ErrorCode.REPLICA_NOT_AVAILABLE


def test_a_partition_without_leader_says_so(site: Site) -> None:
    with_topic(site, leader=-1)
    first = only_topic(site.ask(ALL, 9)).partitions[0]
    assert (first.leader_id, first.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)


def test_endpoints_are_those_of_the_listener_that_was_asked(site: Site) -> None:
    with_topic(site, leader=2)
    site.image.brokers[1] = broker_view(1, listeners=("PLAINTEXT", "EXTERNAL"))
    site.connect("EXTERNAL")
    for version, error in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
        response = site.ask(ALL, version)
        assert [each.host for each in response.brokers] == ["host1.external"]
        first = only_topic(response).partitions[0]
        assert (first.leader_id, first.error_code) == (-1, error)
        assert first.offline_replicas == [2, 3]


def test_clients_are_sent_to_another_broker_when_this_one_is_fenced(site: Site) -> None:
    site.change_broker(1, fenced=True)
    assert site.ask(ALL, 4).controller_id == 2
    site.image.brokers.clear()
    assert site.ask(ALL, 4).controller_id == -1


def test_internal_topics_are_marked(site: Site) -> None:
    site.add_topic("__consumer_offsets", partition_view((1,), (1,), 1))
    assert only_topic(site.ask(ALL, 4)).is_internal


def test_permissions_are_told_only_when_asked(site: Site) -> None:
    with_topic(site)
    asked = MetadataRequest(None, include_cluster_authorized_operations=True, include_topic_authorized_operations=True)
    response = site.ask(asked, 8)
    assert response.cluster_authorized_operations == 0b1111110100000
    assert only_topic(response).topic_authorized_operations == 0b110111111000
    response = site.ask(ALL, 8)
    assert response.cluster_authorized_operations == only_topic(response).topic_authorized_operations == -(2**31)


class TestCreationOnDemand:
    def test_an_internal_topic_is_created_as_such(self, site: Site) -> None:
        site.ask(named("__consumer_offsets", create=True), 5)
        (topic,) = site.controller.request.create_topics.topics
        assert (topic.num_partitions, topic.replication_factor) == (50, 3)
        assert {each.name: each.value for each in topic.configs}["cleanup.policy"] == "compact"

    def test_an_unknown_topic_is_created_once_and_told_unknown_meanwhile(self, site: Site) -> None:
        for _ in range(2):
            response = site.ask(named("new", create=True), 5)
            assert only_topic(response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (topic,) = site.controller.request.create_topics.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("new", -1, -1)

    def test_of_very_many_names_the_first_are_looked_at(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ottla.broker.handlers.topic_creation.LOOKED_AT_MAX", 3)
        site.add_topic("known", partition_view((1,), (1,), 1))
        asked = [MetadataRequestTopic(name=name) for name in ("known", "a", "not/valid", "a", "b")]
        site.ask(MetadataRequest(asked), 12)
        assert [topic.name for topic in site.controller.request.create_topics.topics] == ["a"]

    def test_what_failed_is_tried_again(self, site: Site) -> None:
        for answer in (None, controller_pb2.ControllerResponse(error_code=41)):
            site.ask(named("new", create=True), 5)
            site.controller.answer(answer)
        site.ask(named("new", create=True), 5)
        assert site.controller.request.create_topics.topics[0].name == "new"

    def test_clients_and_settings_can_forbid_it(self, site: Site) -> None:
        site.ask(named("new", create=False), 5)
        assert site.controller.asked == []
        strict = Site(auto_create_topics_enable="false")
        strict.ask(named("new", create=True), 5)
        assert strict.controller.asked == []

    def test_names_that_cannot_be_and_topics_that_exist_are_not_asked_for(self, site: Site) -> None:
        with_topic(site)
        site.ask(named("no spaces", "flights", "..", create=True), 5)
        assert site.controller.asked == []

    def test_the_number_of_topics_under_way_is_bounded(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ottla.broker.handlers.metadata.PIECE_WORK", 1 << 30)  # all at once
        site.ask(named(*(f"t{n}" for n in range(1500)), create=True), 5)
        assert len(site.controller.request.create_topics.topics) == 1000
        site.ask(named("one-more", create=True), 5)
        assert len(site.controller.asked) == 1


class TestKeptBytes:
    """Encoded topics are kept; every change must show all the same."""

    def test_a_changed_partition_shows(self, site: Site) -> None:
        with_topic(site)
        site.ask(ALL, 12)
        site.change_partition("flights", 0, leader=3, leader_epoch=8)
        told = only_topic(site.ask(ALL, 12)).partitions[0]
        assert (told.leader_id, told.leader_epoch) == (3, 8)

    def test_a_new_partition_shows(self, site: Site) -> None:
        topic = with_topic(site)
        site.ask(ALL, 12)
        topic.partitions[2] = partition_view((1,), (1,), 1)
        assert len(only_topic(site.ask(ALL, 12)).partitions) == 3

    def test_a_topic_created_again_shows(self, site: Site) -> None:
        old = with_topic(site)
        site.ask(ALL, 12)
        new = site.add_topic("flights", partition_view((3,), (3,), 3), partition_view((3,), (3,), 3))
        told = only_topic(site.ask(ALL, 12))
        assert told.topic_id == new.id != old.id
        assert told.partitions[0].leader_id == 3

    def test_a_broker_that_is_fenced_or_comes_or_moves_shows(self, site: Site) -> None:
        with_topic(site)
        site.ask(ALL, 12)
        site.change_broker(1, fenced=True)
        assert only_topic(site.ask(ALL, 12)).partitions[0].leader_id == -1
        site.change_broker(1, fenced=False)
        assert only_topic(site.ask(ALL, 12)).partitions[0].leader_id == 1
        del site.image.brokers[3]
        assert only_topic(site.ask(ALL, 12)).partitions[0].offline_replicas == [3]
        site.image.brokers[2] = broker_view(2, listeners=("ELSEWHERE",))
        assert only_topic(site.ask(ALL, 12)).partitions[1].error_code == ErrorCode.LISTENER_NOT_FOUND

    def test_a_directory_that_fails_shows(self, site: Site) -> None:
        site.add_topic("flights", partition_view((1, 2), (1, 2), 1))
        site.change_partition("flights", 0, directories=(DIRECTORY, DIRECTORY))
        assert only_topic(site.ask(ALL, 12)).partitions[0].offline_replicas == []
        site.change_broker(2, directories=())
        assert only_topic(site.ask(ALL, 12)).partitions[0].offline_replicas == [2]

    def test_versions_listeners_and_permissions_are_kept_apart(self, site: Site) -> None:
        with_topic(site)
        site.image.brokers[1] = broker_view(1, listeners=("PLAINTEXT", "EXTERNAL"))
        permissions = MetadataRequest(None, include_topic_authorized_operations=True)
        for _ in range(2):
            site.connect()
            assert only_topic(site.ask(ALL, 5)).partitions[1].leader_id == 2
            assert only_topic(site.ask(ALL, 12)).topic_authorized_operations == -(2**31)
            assert only_topic(site.ask(permissions, 12)).topic_authorized_operations > 0
            site.connect("EXTERNAL")
            assert only_topic(site.ask(ALL, 5)).partitions[1].leader_id == -1

    def test_many_topics_are_described_once(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ottla.broker.handlers.metadata.PIECE_WORK", 1 << 30)  # all at once
        for number in range(200):  # more than fit a one-byte count
            site.add_topic(f"t{number}", partition_view((1,), (1,), 1))
        for version in (4, 12):
            first = site.ask(ALL, version)
            with monkeypatch.context() as patch:
                patch.setattr("ottla.broker.handlers.metadata.partition_state", None)
                assert site.ask(ALL, version) == first
            assert [topic.name for topic in first.topics] == [f"t{number}" for number in range(200)]

    def test_what_is_kept_is_bounded(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ottla.broker.handlers.metadata_fragments._KEPT_BYTES_MAX", 500)
        for number in range(30):
            site.add_topic(f"t{number}", partition_view((1,), (1,), 1))
        assert len(site.ask(ALL, 12).topics) == 30
        assert len(site.ask(ALL, 12).topics) == 30


@pytest.mark.parametrize("version", VERSIONS)
def test_spliced_bytes_are_those_of_the_codec(version: int) -> None:
    topics = [
        MetadataResponseTopic(0, f"t{n}", ZERO_ID, False, [MetadataResponsePartition(0, 0, 1, -1, [1], [1], [])])
        for n in range(130)
    ]
    brokers = [MetadataResponseBroker(1, "host", 9092, None)]
    whole = MetadataResponse(brokers=brokers, topics=topics)
    expected = b"".join(encoder(MetadataResponse, version)(whole))
    whole.topics = []
    assert encode_response(whole, [encode_topic(topic, version) for topic in topics], version) == expected
