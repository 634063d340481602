"""The vectorised codec and librdkafka understand each other, CRCs and all."""

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.pipeline.arrow.decoder import Decoder
from ottla.pipeline.arrow.encoder import encode
from ottla.pipeline.arrow.schema import COLUMNS, HEADERS_TYPE
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.settings import client_settings
from ottla.testing.processes import ProcessCluster, wait_for

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 3000


def make_topic(cluster: ProcessCluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(60)
    cluster.wait_for_topic(name, 1)


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_was_encoded(cluster: ProcessCluster, topic: str, codec: str) -> None:
    make_topic(cluster, topic)
    values = pa.array([b"value %d" % number * (number % 50) if number % 7 else None for number in range(COUNT)])
    keys = pa.array([b"k%d" % number if number % 5 else None for number in range(COUNT)])
    headers = pa.array(
        [
            [{"key": "n", "value": b"%d" % number}, {"key": "null", "value": None}] * (number % 2)
            for number in range(COUNT)
        ],
        HEADERS_TYPE,
    )
    times = pa.array(range(1_700_000_000_000, 1_700_000_000_000 + COUNT))
    with Cluster(client_settings({"bootstrap.servers": cluster.bootstrap_servers})) as wire:
        for batch in encode(keys, values, headers=headers, timestamps=times, compression=codec, batch_bytes=40_000):
            partition = {"index": 0, "records": batch.data}
            body = {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": [partition]}]}
            connection = wire.connection(wire.leader(topic, 0))
            answer = connection.ask("Produce", body, connection.version("Produce", most=9))
            assert answer.responses[0].partition_responses[0].error_code == 0

    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "x", "check.crcs": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Message] = []
    while len(found) < COUNT:
        got = consumer.consume(COUNT - len(found), timeout=60)
        assert got, f"{len(found)} of {COUNT} came"
        found += got
    consumer.close()
    assert [message.error() for message in found if message.error()] == []
    assert [message.offset() for message in found] == list(range(COUNT))
    assert [message.key() for message in found] == keys.to_pylist()
    assert [message.value() for message in found] == values.to_pylist()
    assert [message.timestamp()[1] for message in found] == times.to_pylist()
    assert found[3].headers() == [("n", b"3"), ("null", None)]


@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_wrote_is_decoded(cluster: ProcessCluster, topic: str, codec: str) -> None:
    make_topic(cluster, topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec, "linger.ms": 20})
    for number in range(COUNT):
        pairs: list[tuple[str, str | bytes | None]] = [("n", b"%d" % number)] if number % 2 else []
        producer.produce(
            topic, b"v%d" % number * 9, b"k%d" % number, headers=pairs, timestamp=1_700_000_000_000 + number
        )
    assert producer.flush(60) == 0
    directory = cluster.directory(1, topic)

    def rows() -> pa.Table:
        data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        return pa.Table.from_batches(Decoder(topic, 0, COLUMNS).feed(data), schema=None)

    wait_for(lambda: sum(path.stat().st_size for path in directory.glob("*.log")) > 0, "the replica's records")
    wait_for(lambda: rows().num_rows == COUNT, "all of them")
    found = rows()
    assert found["key"].to_pylist() == [b"k%d" % number for number in range(COUNT)]
    assert found["value"].to_pylist() == [b"v%d" % number * 9 for number in range(COUNT)]
    assert found["headers"].to_pylist()[:2] == [None, [{"key": "n", "value": b"1"}]]
