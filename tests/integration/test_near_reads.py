"""librdkafka with ``client.rack`` reads from the follower in its rack, and from somebody else when that dies (KIP-392)."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from ottla.pipeline.wire.cluster import Cluster as Client
from ottla.pipeline.wire.fetch import Fetcher
from ottla.pipeline.wire.reading import Range
from ottla.pipeline.wire.settings import client_settings
from ottla.testing.processes import ProcessCluster, wait_for

TOPIC = "near"
RECORDS = 500


@pytest.fixture(scope="module")
def racks() -> Iterator[ProcessCluster]:
    """Node N stands in rack rN."""
    cluster = ProcessCluster(nodes=3, settings={"replica.selector.class": "rack-aware"})
    for node in cluster.nodes:
        with node.properties.open("a", encoding="utf-8") as file:
            file.write(f"broker.rack=r{node.node_id}\n")
    with cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(60)
        cluster.wait_for_topic(TOPIC)
        yield cluster


def write(cluster: ProcessCluster, first: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    assert producer.flush(30) == 0


def partition(cluster: ProcessCluster) -> PartitionMetadata:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions[0]


class Reader:
    """Of the topic, from its beginning; ``broker`` is where it reads from."""

    def __init__(self, cluster: ProcessCluster, rack: str) -> None:
        self.numbers: list[int] = []
        self.broker = -1
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "near",
                "client.rack": rack,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "statistics.interval.ms": 50,
                "stats_cb": self._note,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def _note(self, text: str) -> None:
        told: dict[str, Any] = json.loads(text)
        partition = told["topics"].get(TOPIC, {}).get("partitions", {}).get("0", {})
        self.broker = partition.get("broker", -1)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def reached() -> bool:
            for message in self._consumer.consume(1000, 0.1):
                value = message.value()
                if message.error() is None and value is not None:
                    self.numbers.append(int(value))
            return condition()

        wait_for(reached, what, 60)

    def close(self) -> None:
        self._consumer.close()


def test_a_consumer_reads_from_its_rack_and_goes_on_when_that_node_dies(racks: ProcessCluster) -> None:
    write(racks, 0)
    near = next(each for each in (1, 2, 3) if each != partition(racks).leader)
    reader = Reader(racks, f"r{near}")
    reader.until(lambda: reader.broker == near and len(reader.numbers) >= RECORDS, f"records of node {near}")
    racks.kill(near)
    write(racks, RECORDS)
    reader.until(lambda: len(reader.numbers) >= 2 * RECORDS, "the other half")
    racks.start(near)
    reader.close()
    assert reader.numbers == list(range(2 * RECORDS))


def test_a_task_of_spark_reads_from_the_replica_in_its_rack(racks: ProcessCluster) -> None:
    wait_for(lambda: len(partition(racks).isrs) == 3, "all to be in sync")  # the test before kills one
    write(racks, 0)
    follower = 1 + partition(racks).leader % 3
    settings = client_settings({"bootstrap.servers": racks.bootstrap_servers, "client.rack": f"r{follower}"})
    with Client(settings) as client:
        fetcher = Fetcher(client, [Range(TOPIC, 0, 0, RECORDS)])
        read_from = {fetcher.node_of(fetched.range) for fetched in fetcher}

    assert read_from == {follower}
