"""The blocking client against real nodes."""

import time

import pytest
from confluent_kafka import Producer

from ottla.pipeline.wire.cache import shared
from ottla.pipeline.wire.cluster import Cluster as Client
from ottla.pipeline.wire.errors import BrokerUnreachableError, DeadlineError, PartitionError, UnknownTopicError
from ottla.pipeline.wire.groups import commit_offsets, committed_offsets
from ottla.pipeline.wire.offsets import EARLIEST, LATEST, end_of_epochs, list_offsets
from ottla.pipeline.wire.settings import client_settings
from ottla.testing.cluster import Cluster
from ottla.testing.ports import free_ports
from tests.integration.pipeline.conftest import MakeTopic


def produce(servers: str, topic: str, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % partitions, timestamp=1_000 + number)
    producer.flush()


def test_ends_beginnings_and_times_are_asked_of_the_leaders(
    single: Cluster, client: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    produce(single.bootstrap_servers, topic, 20, 2)
    both = [(topic, 0), (topic, 1)]

    assert [found.offset for found in list_offsets(client, dict.fromkeys(both, LATEST)).values()] == [10, 10]
    assert [found.offset for found in list_offsets(client, dict.fromkeys(both, EARLIEST)).values()] == [0, 0]
    assert [found.offset for found in list_offsets(client, {both[0]: 1_009, both[1]: 5_000}).values()] == [5, -1]
    assert [found.end_offset for found in end_of_epochs(client, dict.fromkeys(both, 0)).values()] == [10, 10]


def test_offsets_are_committed_and_read_from_outside_a_group(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    commit_offsets(client, f"{topic}-group", {(topic, 0): 7}, "batch 3")

    found = committed_offsets(client, f"{topic}-group", [(topic, 0), (topic, 1)])
    assert {(topic, 0): (7, "batch 3")} == {which: (it.offset, it.metadata) for which, it in found.items()}
    assert committed_offsets(client, f"{topic}-nobody") == {}


def test_asking_for_a_topic_does_not_make_it(client: Client) -> None:
    assert client.topics(["not-there"]) == {}
    with pytest.raises(UnknownTopicError, match="topic not-there: UNKNOWN_TOPIC_OR_PARTITION"):
        client.leader("not-there", 0)
    assert "not-there" not in client.topics()


def test_a_partition_that_does_not_exist_is_named(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with pytest.raises(PartitionError, match=f"{topic}-5: UNKNOWN_TOPIC_OR_PARTITION"):
        list_offsets(client, {(topic, 5): LATEST})


def test_a_leader_that_moves_is_followed() -> None:
    with Cluster(nodes=3) as three, Client(client_settings({"bootstrap.servers": three.bootstrap_servers})) as client:
        produce(three.bootstrap_servers, "t", 30, 1)  # made by the producer
        before = client.leader("t", 0)
        client.connection(before)
        three.stop_node(before)

        assert list_offsets(client, {("t", 0): LATEST})["t", 0].offset == 30
        assert client.leader("t", 0) not in (before, -1)


def test_nobody_who_answers_is_said_within_the_time() -> None:
    (port,) = free_ports(1)
    texts = {"bootstrap.servers": f"127.0.0.1:{port}", "default.api.timeout.ms": "300"}
    began = time.monotonic()
    with Client(client_settings(texts)) as client, pytest.raises(DeadlineError, match="Connection refused"):
        client.topics()

    assert time.monotonic() - began < 5


def test_a_node_that_is_no_member_is_unreachable(client: Client) -> None:
    with pytest.raises(BrokerUnreachableError, match="not among the cluster's brokers"):
        client.ask_node(77, "Metadata", {})


def test_a_process_keeps_one_cluster_for_each_setting(single: Cluster) -> None:
    texts = {"bootstrap.servers": single.bootstrap_servers, "client.id": "kept"}
    first = shared(client_settings(texts))
    first.topics([])

    assert first is shared(client_settings(dict(texts)))
    assert first is not shared(client_settings({**texts, "client.id": "another"}))
    first.close()
    assert first.topics([]) == {}  # opened anew
    first.close()
