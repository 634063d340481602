"""kafka-python and aiokafka, unchanged."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

from ottla.testing.processes import ProcessCluster
from tests.integration.conftest import PARTITIONS, RECORDS

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
WRITTEN = [(f"key-{number}".encode(), b"v" * number, [("h", bytes([number]))]) for number in range(200)]


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
    for at, (key, value, headers) in enumerate(WRITTEN):
        producer.send(topic, value, key, headers, partition=0, timestamp_ms=1_600_000_000_000 + at)
    producer.flush(60)
    producer.close()

    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found: list[Any] = []
    while len(found) < len(WRITTEN):
        for batch in consumer.poll(5000).values():
            found.extend(batch)
    consumer.close()

    assert [(each.key, each.value, list(each.headers)) for each in found] == WRITTEN
    assert [each.timestamp for each in found] == [1_600_000_000_000 + at for at in range(len(WRITTEN))]


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_what_it_wrote(cluster: ProcessCluster, topic: str, codec: str | None) -> None:
    make_topic(cluster, topic)

    async def run() -> list[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, compression_type=codec, enable_idempotence=True
        )
        await producer.start()
        for key, value, headers in WRITTEN:
            await producer.send(topic, value, key, partition=0, headers=headers)
        await producer.flush()
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=None)
        await consumer.start()
        consumer.assign([AioTopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        found = [await asyncio.wait_for(consumer.getone(), 60) for _ in WRITTEN]
        await consumer.stop()
        return [(each.key, each.value, list(each.headers)) for each in found]

    assert asyncio.run(run()) == WRITTEN


def test_kafka_python_copies_exactly_once_and_its_successor_goes_on(cluster: ProcessCluster, filled: str) -> None:
    """Consumed, produced and committed in one transaction; one is aborted, and one left open by a process that is gone."""
    target = f"{filled}-copy"
    make_topic(cluster, target)
    servers = cluster.bootstrap_servers.split(",")
    settings: Any = {"bootstrap_servers": servers, "isolation_level": "read_committed", "enable_auto_commit": False}
    numbers: list[bytes] = []
    for stays in (False, True):
        producer = KafkaProducer(bootstrap_servers=servers, transactional_id=filled)
        producer.init_transactions()
        consumer = KafkaConsumer(group_id=filled, auto_offset_reset="earliest", max_poll_records=30, **settings)
        places = [TopicPartition(filled, each) for each in range(PARTITIONS)]
        consumer.assign(places)
        attempt = 0
        while len(numbers) < (RECORDS if stays else RECORDS // 2):
            attempt += 1
            begins = {each: consumer.position(each) for each in places}
            batch = [record for records in consumer.poll(5_000).values() for record in records]
            copied = copy(producer, consumer, batch, target)
            if attempt == 2:
                producer.abort_transaction()
                for place, offset in begins.items():
                    consumer.seek(place, offset)
                continue
            producer.commit_transaction()
            numbers += copied
        if not stays:
            batch = [record for records in consumer.poll(5_000).values() for record in records]
            copy(producer, consumer, batch, target)
        consumer.close(autocommit=False)
        if stays:
            producer.close()

    reader = KafkaConsumer(group_id=None, auto_offset_reset="earliest", **settings)
    reader.assign([TopicPartition(target, 0)])
    found: list[bytes] = []
    while len(found) < RECORDS:
        found += [record.value for records in reader.poll(5_000).values() for record in records]
    reader.close()
    assert found == numbers
    assert sorted(map(int, found)) == list(range(RECORDS))


def copy(producer: Any, consumer: Any, batch: list[Any], target: str) -> list[bytes]:
    """In a transaction that is open still."""
    producer.begin_transaction()
    for record in batch:
        producer.send(target, record.value, partition=0)
    producer.flush(60)
    ends = {TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset + 1, "", -1) for each in batch}
    producer.send_offsets_to_transaction(ends, consumer.group_metadata())
    return [record.value for record in batch]


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
