"""``compression.type`` of a topic, seen by clients and by `ottla log dump`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from ottla.testing.processes import ProcessCluster, wait_for

CODECS = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
RECORDS = [(b"key-%d" % number, b"%d " % number * (20_000 if number % 50 == 0 else number)) for number in range(200)]


def make_topic(cluster: ProcessCluster, name: str, codec: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 3, config={"compression.type": codec})])[name].result(60)
    cluster.wait_for_topic(name)


def produce_with_librdkafka(cluster: ProcessCluster, topic: str, codec: str) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "compression.type": codec, "linger.ms": 2}
    )  # fmt: skip
    for key, value in RECORDS:
        producer.produce(topic, value, key)
        producer.poll(0)
    assert producer.flush(60) == 0


def produce_with_kafka_python(cluster: ProcessCluster, topic: str, codec: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers.split(","), compression_type=codec, acks="all", linger_ms=2
    )
    for key, value in RECORDS:
        producer.send(topic, value, key)
    producer.flush(60)
    producer.close()


def read_with_librdkafka(cluster: ProcessCluster, topic: str) -> list[tuple[Any, Any]]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "x", "enable.auto.commit": False})
    consumer.assign([ConfluentPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[Any, Any]] = []
    while len(found) < len(RECORDS):
        got = consumer.consume(len(RECORDS) - len(found), timeout=60)
        assert got, f"{len(found)} records came"
        found += [(each.key(), each.value()) for each in got]
    consumer.close()
    return found


def read_with_kafka_python(cluster: ProcessCluster, topic: str) -> list[tuple[Any, Any]]:
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers.split(","), group_id=None)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    found: list[tuple[Any, Any]] = []
    while len(found) < len(RECORDS):
        got = consumer.poll(30_000)
        assert got, f"{len(found)} records came"
        found += [(each.key, each.value) for each in got[partition]]
    consumer.close()
    return found


def stored_batches(cluster: ProcessCluster, topic: str, node_id: int) -> list[dict[str, Any]]:
    """None that are whole while a follower is about to write them."""
    directory = cluster.directory(node_id, topic)
    command = [str(Path(sys.executable).parent / "ottla"), "log", "dump", "-o", "json", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    rows = (json.loads(line) for line in done.stdout.splitlines()) if done.returncode == 0 else ()
    return [row for row in rows if "codec" in row]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", ["librdkafka", "kafka-python"])
def test_a_topics_codec_is_what_is_stored_and_the_bytes_are_the_same(
    cluster: ProcessCluster, topic: str, codec: str, client: str
) -> None:
    make_topic(cluster, topic, codec)
    sent_as = "lz4" if codec != "lz4" else "gzip"
    if client == "librdkafka":
        produce_with_librdkafka(cluster, topic, sent_as)
    else:
        produce_with_kafka_python(cluster, topic, sent_as)

    assert read_with_librdkafka(cluster, topic) == RECORDS
    assert read_with_kafka_python(cluster, topic) == RECORDS
    for node_id in (1, 2, 3):
        stored: set[str] = set()

        def is_there(node_id: int = node_id, stored: set[str] = stored) -> bool:
            rows = stored_batches(cluster, topic, node_id)
            stored.update(row["codec"] for row in rows)
            return bool(rows) and max(row["last_offset"] for row in rows) == len(RECORDS) - 1

        wait_for(is_there, "the replica to have all of it")
        assert stored == {"none" if codec == "uncompressed" else codec}
