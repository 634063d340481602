"""kafka-python and aiokafka, unchanged."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from ottla.testing.processes import ProcessCluster

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
RECORDS = [(f"key-{number}".encode(), b"v" * number, [("h", bytes([number]))]) for number in range(200)]


def make_topic(cluster: ProcessCluster, name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    admin.create_topics([NewTopic(name, 1, 3)])
    admin.close()
    cluster.wait_for_topic(name)


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_it_wrote(cluster: ProcessCluster, topic: str, codec: str | None) -> None:
    make_topic(cluster, topic)
    servers = cluster.bootstrap_servers.split(",")
    producer = KafkaProducer(bootstrap_servers=servers, compression_type=codec, acks="all")
    for at, (key, value, headers) in enumerate(RECORDS):
        producer.send(topic, value, key, headers, partition=0, timestamp_ms=1_600_000_000_000 + at)
    producer.flush(60)
    producer.close()

    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found: list[Any] = []
    while len(found) < len(RECORDS):
        for batch in consumer.poll(5000).values():
            found.extend(batch)
    consumer.close()

    assert [(each.key, each.value, list(each.headers)) for each in found] == RECORDS
    assert [each.timestamp for each in found] == [1_600_000_000_000 + at for at in range(len(RECORDS))]


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_what_it_wrote(cluster: ProcessCluster, topic: str, codec: str | None) -> None:
    make_topic(cluster, topic)

    async def run() -> list[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, compression_type=codec, enable_idempotence=True
        )
        await producer.start()
        for key, value, headers in RECORDS:
            await producer.send(topic, value, key, partition=0, headers=headers)
        await producer.flush()
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=None)
        await consumer.start()
        consumer.assign([AioTopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        found = [await asyncio.wait_for(consumer.getone(), 60) for _ in RECORDS]
        await consumer.stop()
        return [(each.key, each.value, list(each.headers)) for each in found]

    assert asyncio.run(run()) == RECORDS


def test_kafka_python_describes_the_cluster_and_its_quorum(cluster: ProcessCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))

    described = admin.describe_cluster()
    quorum = admin.describe_metadata_quorum()["topics"][0]["partitions"][0]
    admin.close()

    assert sorted(broker["broker_id"] for broker in described["brokers"]) == [1, 2, 3]
    assert quorum["leader_id"] in (1, 2, 3)
    assert sorted(voter["replica_id"] for voter in quorum["current_voters"]) == [1, 2, 3]


def test_kafka_python_describes_log_directories(cluster: ProcessCluster, topic: str) -> None:
    make_topic(cluster, topic)
    servers = cluster.bootstrap_servers.split(",")
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    producer.send(topic, b"x" * 1000, partition=0)
    producer.close()
    admin = KafkaAdminClient(bootstrap_servers=servers)
    described = admin.describe_log_dirs({topic: [0]})
    admin.close()
    assert len(described) == 3
    for broker in described:
        (directory,) = broker["log_dirs"]
        assert directory["error_code"] == 0
        assert directory["topics"][0]["name"] == topic
        assert directory["topics"][0]["partitions"][0]["partition_size"] > 1000
        assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
