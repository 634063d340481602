"""The broker's side of a topic sink: what a batch committed with its rows, and what a batch that comes again finds."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.pipeline.sinks.attempts import Attempt
from ottla.pipeline.sinks.topic_options import topic_options
from ottla.pipeline.sinks.topic_write import Sent, TopicWrite
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.groups import committed_offsets
from ottla.pipeline.wire.producer import Producer
from ottla.pipeline.wire.producer_errors import FencedError, RecordTooLargeError
from ottla.pipeline.wire.producer_transaction import Offset
from ottla.pipeline.wire.settings import client_settings
from ottla.testing.processes import ProcessCluster

PARTITIONS = 3


@pytest.fixture
def made(cluster: ProcessCluster, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = NewTopic(topic, PARTITIONS, 3, config={"max.message.bytes": "20000"})
    admin.create_topics([new])[topic].result(30)
    cluster.wait_for_topic(topic, PARTITIONS)
    return topic


@pytest.fixture
def wire(cluster: ProcessCluster) -> Iterator[Cluster]:
    with Cluster(client_settings({"bootstrap.servers": cluster.bootstrap_servers})) as found:
        yield found


class Sink:
    """A task's attempts at batches of one query."""

    def __init__(self, cluster: ProcessCluster, wire: Cluster, topic: str) -> None:
        self.bootstrap, self.wire, self.topic = cluster.bootstrap_servers, wire, topic

    def write(self, number: int, *values: str, task: int = 0) -> Sent:
        options = topic_options({"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic})
        rows = pa.record_batch({"key": list(values), "value": list(values)})
        return TopicWrite(options).write([rows], Attempt(self.topic, number, task, 0), self.wire)

    def read(self, count: int) -> list[str]:
        """What is committed, up to the end that such readers see."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        )
        consumer.assign([TopicPartition(self.topic, index, 0) for index in range(PARTITIONS)])
        found: list[str] = []
        while len(found) < count:
            (message,) = consumer.consume(1, 30)
            assert message.error() is None, message.error()
            found.append((message.value() or b"").decode())
        assert consumer.poll(0.2) is None
        consumer.close()
        return sorted(found)


@pytest.fixture
def sink(cluster: ProcessCluster, wire: Cluster, made: str) -> Sink:
    return Sink(cluster, wire, made)


def test_a_batch_that_comes_again_finds_its_offset_and_is_skipped(sink: Sink, cluster: ProcessCluster) -> None:
    values = [f"row-{number}" for number in range(50)]
    assert sink.write(6, *values) == Sent(50)
    group = f"ottla.{sink.topic}.0"
    ((place, committed),) = committed_offsets(sink.wire, group).items()
    assert place[0] == sink.topic
    assert committed.offset == 7
    with Cluster(client_settings({"bootstrap.servers": cluster.bootstrap_servers})) as another:
        sink.wire = another  # a new driver, whose connections know nothing
        assert sink.write(6, *values) == Sent(50, skipped=True)
        assert sink.write(7, "last") == Sent(1)
    assert sink.read(51) == sorted([*values, "last"])


def test_an_offset_of_an_aborted_transaction_does_not_count(sink: Sink) -> None:
    """Killed before the end: the coordinator has rows and offset, and commits neither."""
    name = f"ottla.{sink.topic}.0"
    options = topic_options({"kafka.bootstrap.servers": sink.bootstrap})
    killed = Producer(sink.wire, options.producer, name)
    killed.begin()
    killed.send(pa.record_batch({"value": ["never seen"]}), sink.topic)
    killed.flush()
    transaction = killed.transaction
    assert transaction is not None
    transaction.commit_offset(Offset(name, sink.topic, 0, 1, ""))
    assert sink.write(0, "a") == Sent(1)
    with pytest.raises(FencedError, match="Another attempt has taken over"):
        transaction.end(committed=True)
    assert sink.read(1) == ["a"]


def test_tasks_beside_each_other_each_have_a_transaction(sink: Sink, cluster: ProcessCluster) -> None:
    def run(task: int) -> None:
        with Cluster(client_settings({"bootstrap.servers": cluster.bootstrap_servers})) as own:
            mine = Sink(cluster, own, sink.topic)
            for number in range(3):
                mine.write(number, f"{number}-{task}", task=task)

    threads = [threading.Thread(target=run, args=(task,)) for task in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sink.read(12) == sorted(f"{number}-{task}" for number in range(3) for task in range(4))


def test_a_topic_that_takes_less_gets_smaller_batches(sink: Sink) -> None:
    """The topic takes 20 kB a batch, the client would send 512."""
    values = [f"{number:01000}" for number in range(200)]
    assert sink.write(0, *values) == Sent(200)
    assert sink.read(200) == values
    with pytest.raises(RecordTooLargeError, match=r"the topic's max\.message\.bytes is smaller"):
        sink.write(1, "x" * 30_000)
