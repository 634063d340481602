"""A task's attempts at writing batches of one query to a topic, and what readers see of them."""

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.pipeline.sinks.attempts import Attempt
from ottla.pipeline.sinks.topic_options import topic_options
from ottla.pipeline.sinks.topic_write import Sent, TopicWrite
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.settings import client_settings
from ottla.testing.processes import wait_for

PARTITIONS = 3


def make(bootstrap: str, topic: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, PARTITIONS, replicas, config={"max.message.bytes": "20000"})
    admin.create_topics([new])[topic].result(60)
    wait_for(lambda: _is_known(admin, topic), f"{topic} to be known")


def _is_known(admin: AdminClient, topic: str) -> bool:
    """By the one that is asked: Kafka's brokers, too, read in the metadata log what they answered already."""
    known = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return len(known) == PARTITIONS and all(each.leader >= 0 for each in known.values())


def connect(bootstrap: str) -> Cluster:
    return Cluster(client_settings({"bootstrap.servers": bootstrap}))


def committed(bootstrap: str, topic: str, count: int) -> list[str]:
    """The values that readers of what is committed see of a topic, sorted: so many, and none more."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[str] = []
    while len(found) < count:
        (message,) = consumer.consume(1, 30)
        assert message.error() is None, message.error()
        found.append((message.value() or b"").decode())
    assert consumer.poll(0.2) is None
    consumer.close()
    return sorted(found)


class TopicTasks:
    def __init__(self, bootstrap: str, topic: str, wire: Cluster, **options: str) -> None:
        self.bootstrap, self.topic, self.wire, self.more = bootstrap, topic, wire, options

    def write(self, number: int, *values: str, task: int = 0) -> Sent:
        options = topic_options({"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic, **self.more})
        rows = pa.record_batch({"key": list(values), "value": list(values)})
        return TopicWrite(options).write([rows], Attempt(self.topic, number, task, 0), self.wire)

    def read(self, count: int) -> list[str]:
        """What is committed, up to the end that such readers see."""
        return committed(self.bootstrap, self.topic, count)
