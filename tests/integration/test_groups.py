"""Clients that subscribe, while there are no groups: told at once, and closed at once."""

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.errors import UnsupportedVersionError

from ottla.testing.processes import ProcessCluster

WAITED_FOR_EVER_S = 20
"""A client that waits for a coordinator, or for its close, waits 45 s and more; one that gave up is back in milliseconds."""


@pytest.fixture
def filled(cluster: ProcessCluster, topic: str) -> str:
    """A topic with one record."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
    cluster.wait_for_topic(topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, b"value")
    assert producer.flush(60) == 0
    return topic


def librdkafka(cluster: ProcessCluster, **settings: str) -> Consumer:
    texts = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "group", "auto.offset.reset": "earliest"}
    return Consumer({**texts, **{name.replace("_", "."): text for name, text in settings.items()}})


def in_time(action: Callable[[], object]) -> None:
    began = time.monotonic()
    action()
    assert time.monotonic() - began < WAITED_FOR_EVER_S


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_is_told_when_it_subscribes_and_closes(cluster: ProcessCluster, filled: str, protocol: str) -> None:
    consumer = librdkafka(cluster, group_protocol=protocol)
    consumer.subscribe([filled])
    message = consumer.poll(WAITED_FOR_EVER_S)
    assert message is not None, "neither a record nor an error"
    error = message.error()
    assert error is not None
    assert error.code() in (KafkaError.UNSUPPORTED_VERSION, KafkaError._FATAL)
    assert "API version not supported" in error.str()
    in_time(consumer.close)


@pytest.mark.parametrize("offset", [OFFSET_BEGINNING, None], ids=["from the beginning", "from what was committed"])
def test_librdkafka_with_a_group_id_assigns_reads_and_closes(
    cluster: ProcessCluster, filled: str, offset: int | None
) -> None:
    """It commits by itself when it closes, as by default, and is refused."""
    consumer = librdkafka(cluster)
    consumer.assign([TopicPartition(filled, 0) if offset is None else TopicPartition(filled, 0, offset)])
    message = consumer.poll(WAITED_FOR_EVER_S)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"value")
    in_time(consumer.close)


def test_kafka_python_is_told_when_it_subscribes_and_closes(cluster: ProcessCluster, filled: str) -> None:
    consumer = KafkaConsumer(filled, bootstrap_servers=cluster.bootstrap_servers.split(","), group_id="group")
    with pytest.raises(UnsupportedVersionError):
        consumer.poll(1000 * WAITED_FOR_EVER_S)
    in_time(consumer.close)


def test_aiokafka_is_told_when_it_subscribes_and_stops(cluster: ProcessCluster, filled: str) -> None:
    async def run() -> None:
        consumer = AIOKafkaConsumer(filled, bootstrap_servers=cluster.bootstrap_servers, group_id="group")
        try:
            with pytest.raises(AioKafkaError, match="UnsupportedVersion"):
                await asyncio.wait_for(consumer.start(), WAITED_FOR_EVER_S)
        finally:
            await asyncio.wait_for(consumer.stop(), WAITED_FOR_EVER_S)

    asyncio.run(run())
