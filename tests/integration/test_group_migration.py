"""A group whose consumers are replaced one after the other by those of the other protocol, with clients that know nothing of us."""

import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.group_requests import group_rows
from ottla.testing.processes import ProcessCluster

PARTITIONS = 4
PATIENCE_S = 60
CLASSIC = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 300}
CONSUMER = {"group.protocol": "consumer"}


class Readers:
    """All consumers of a group in one thread: who has which partition is known at every moment."""

    def __init__(self, cluster: ProcessCluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        self.consumers: dict[str, Consumer] = {}
        self.owners: dict[int, str] = {}
        self.taken: list[tuple[int, str, str]] = []
        """Partitions that were given to one while another had them."""
        self.read: set[int] = set()
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

    def open(self, name: str, settings: Mapping[str, object]) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "group.id": self.topic,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        self.consumers[name] = consumer

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            for each in partitions:
                if self.owners.get(each.partition, name) != name:
                    self.taken.append((each.partition, self.owners[each.partition], name))
                self.owners[each.partition] = name

        def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
            for each in partitions:
                if self.owners.get(each.partition) == name:
                    del self.owners[each.partition]

        consumer.subscribe([self.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def close(self, name: str) -> None:
        self.consumers.pop(name).close()
        self.owners = {each: owner for each, owner in self.owners.items() if owner != name}

    def until(self, reached: Callable[[], bool]) -> None:
        """Everybody reads what is sent meanwhile."""
        end = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < end, f"{self.owners}, read {len(self.read)} of {self.sent}"
            self._producer.produce(self.topic, str(self.sent).encode(), partition=self.sent % PARTITIONS)
            self._producer.poll(0)
            self.sent += 1
            self._poll()

    def read_all(self) -> None:
        self._producer.flush(30)
        end = time.monotonic() + PATIENCE_S
        while len(self.read) < self.sent:
            assert time.monotonic() < end, f"only {len(self.read)} of {self.sent} records"
            self._poll()

    def _poll(self) -> None:
        for consumer in self.consumers.values():
            message = consumer.poll(0.01)
            if message is None:
                continue
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            value = message.value()
            assert value is not None
            self.read.add(int(value))
            consumer.commit(message=message, asynchronous=True)

    def share(self, *names: str) -> Callable[[], bool]:
        """Whether these have as many partitions each."""
        return lambda: (
            sorted(self.owners) == list(range(PARTITIONS))
            and all(list(self.owners.values()).count(each) == PARTITIONS // len(names) for each in names)
        )

    def type(self) -> str:
        (found,) = [each["type"] for each in group_rows(self.cluster.bootstrap_servers) if each["group"] == self.topic]
        return str(found)


@pytest.fixture
def readers(cluster: ProcessCluster, topic: str) -> Iterator[Readers]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(60)
    cluster.wait_for_topic(topic, PARTITIONS)
    found = Readers(cluster, topic)
    yield found
    for each in list(found.consumers):
        found.close(each)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_rolling_upgrade_and_back_loses_no_record_and_gives_no_partition_twice(
    readers: Readers, strategy: str
) -> None:
    classic = {**CLASSIC, "partition.assignment.strategy": strategy}
    readers.open("a", classic)
    readers.open("b", classic)
    readers.until(readers.share("a", "b"))
    assert readers.type() == "classic"

    readers.open("c", CONSUMER)
    readers.until(lambda: len(set(readers.owners.values())) == 3 and len(readers.owners) == PARTITIONS)
    assert readers.type() == "consumer"
    readers.close("a")
    readers.until(readers.share("b", "c"))
    readers.open("d", CONSUMER)
    readers.close("b")
    readers.until(readers.share("c", "d"))

    readers.open("e", classic)
    readers.close("c")
    readers.until(readers.share("d", "e"))
    assert readers.type() == "consumer"
    readers.close("d")
    readers.until(readers.share("e"))
    assert readers.type() == "classic"
    readers.read_all()
    assert readers.read == set(range(readers.sent))
    assert not readers.taken
