"""A consumer that subscribes with a regular expression, which the coordinator resolves, and what an admin client sees of its group."""

import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.processes import ProcessCluster

PATIENCE_S = 60
RECORDS = 10


def subscribed(cluster: ProcessCluster, group: str, pattern: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([pattern])
    return consumer


@pytest.fixture
def topics(cluster: ProcessCluster, topic: str) -> list[str]:
    """Two that the pattern matches, with records, and one that it does not match."""
    names = [f"{topic}-one", f"{topic}-two", f"other-{topic}"]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for made in admin.create_topics([NewTopic(each, 2, 3) for each in names]).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for name in names:
        cluster.wait_for_topic(name, 2)
        for number in range(RECORDS):
            producer.produce(name, str(number).encode())
    assert producer.flush(30) == 0
    return names


def test_librdkafka_reads_the_topics_that_its_expression_matches(
    cluster: ProcessCluster, topic: str, topics: list[str]
) -> None:
    with closing(subscribed(cluster, topic, f"^{topic}-.*")) as consumer:
        read: dict[str, int] = {}
        end = time.monotonic() + PATIENCE_S
        while sum(read.values()) < 2 * RECORDS:
            assert time.monotonic() < end, read
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None, message.error()
                name = message.topic() or ""
                read[name] = read.get(name, 0) + 1
        assert read == dict.fromkeys(topics[:2], RECORDS)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        listed = {each.group_id: each for each in admin.list_consumer_groups().result(60).valid}
        assert listed[topic].type == ConsumerGroupType.CONSUMER
        told = admin.describe_consumer_groups([topic])[topic].result(60)
        assert (told.state, told.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
        (member,) = told.members
        assert {each.topic for each in member.assignment.topic_partitions} == set(topics[:2])
