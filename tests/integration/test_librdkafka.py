"""librdkafka (confluent-kafka), unchanged: what a client sends comes back byte for byte."""

import subprocess

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ottla.testing.processes import ProcessCluster, wait_for

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def make_topic(
    cluster: ProcessCluster, name: str, partitions: int = 1, config: dict[str, str] | None = None
) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 3, config=config or {})])[name].result(60)
    cluster.wait_for_topic(name, partitions)
    return admin


def read_all(cluster: ProcessCluster, topic: str, count: int, partitions: int = 1) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "x", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found: list[Message] = []
    while len(found) < count:
        got = consumer.consume(count - len(found), timeout=60)
        assert got, f"{len(found)} of {count} records came"
        for message in got:
            assert message.error() is None
        found.extend(got)
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_comes_back_with_key_value_headers_and_time(cluster: ProcessCluster, topic: str, codec: str) -> None:
    make_topic(cluster, topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec, "linger.ms": 5})
    sent = [(f"k{number}".encode(), bytes([number % 256]) * number, number) for number in range(500)]
    for key, value, number in sent:
        producer.produce(
            topic, value, key, headers=[("n", str(number)), ("empty", None)], timestamp=1_700_000_000_000 + number
        )
    assert producer.flush(60) == 0

    got = read_all(cluster, topic, len(sent))

    assert [(message.key(), message.value()) for message in got] == [(key, value) for key, value, _ in sent]
    assert [message.offset() for message in got] == list(range(len(sent)))
    assert [message.timestamp()[1] for message in got] == [1_700_000_000_000 + number for _, _, number in sent]
    assert got[7].headers() == [("n", b"7"), ("empty", None)]


def test_an_idempotent_producer_writes_each_record_once(cluster: ProcessCluster, topic: str) -> None:
    make_topic(cluster, topic, partitions=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0})
    for number in range(2000):
        producer.produce(topic, str(number), partition=number % 3)
        producer.poll(0)
    assert producer.flush(60) == 0

    values = sorted(int(message.value() or b"-1") for message in read_all(cluster, topic, 2000, partitions=3))

    assert values == list(range(2000))


def test_offsets_are_found_by_time_and_at_both_ends(cluster: ProcessCluster, topic: str) -> None:
    admin = make_topic(cluster, topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, b"x", timestamp=1_700_000_000_000 + number * 1000)
    producer.flush(60)
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        found: int = admin.list_offsets({partition: spec})[partition].result(60).offset
        return found

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.for_timestamp(1_700_000_003_500)) == 4
    assert offset(OffsetSpec.max_timestamp()) == 9


def test_a_record_too_large_is_refused_and_the_next_one_is_not(cluster: ProcessCluster, topic: str) -> None:
    make_topic(cluster, topic, config={"max.message.bytes": "1000"})
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})

    def delivered(error: object, _message: Message) -> None:
        errors.append(str(error))

    producer.produce(topic, b"x" * 5000, on_delivery=delivered)
    producer.flush(60)
    producer.produce(topic, b"y", on_delivery=delivered)
    producer.flush(60)

    assert "MSG_SIZE_TOO_LARGE" in errors[0]
    assert errors[1] == "None"


def test_topics_are_created_described_grown_and_deleted(cluster: ProcessCluster, topic: str) -> None:
    admin = make_topic(cluster, topic, partitions=2)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)

    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(60)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entry = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(60)

    def is_told() -> bool:  # any broker may be asked; each learns of the change a moment after it is committed
        return bool(admin.describe_configs([resource])[resource].result(60)["retention.ms"].value == "12345")

    wait_for(is_told, "a broker to know the new setting")
    cluster.wait_for_topic(topic, 5)
    admin.delete_topics([topic])[topic].result(60)
    wait_for(lambda: topic not in admin.list_topics(timeout=60).topics, "the topic to be gone")


def test_kcat_lists_produces_and_consumes(cluster: ProcessCluster, topic: str) -> None:
    make_topic(cluster, topic, partitions=1)
    base = ["kcat", "-b", cluster.bootstrap_servers]

    listed = subprocess.run([*base, "-L"], capture_output=True, text=True, check=True, timeout=60).stdout
    subprocess.run([*base, "-P", "-t", topic, "-K", ":"], input="a:1\nb:2\n", text=True, check=True, timeout=60)
    read = subprocess.run(
        [*base, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%o %k %s\n"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip

    assert "3 brokers" in listed
    assert f'topic "{topic}"' in listed
    assert read == "0 a 1\n1 b 2\n"
