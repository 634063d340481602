"""One three-node cluster of real processes for all client tests; each test takes topics of its own."""

from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.processes import ProcessCluster

_numbers = count(1)
PARTITIONS, RECORDS = 4, 200
"""Of a topic that is filled."""
SETTINGS = {f"group.consumer.{name}heartbeat.interval.ms": "500" for name in ("", "min.")} | {
    f"group.consumer.{name}session.timeout.ms": "5000" for name in ("", "min.")
}
"""Members of the consumer protocol learn of each other with their heartbeats."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(nodes=3, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name no other test uses."""
    return f"{request.node.originalname.removeprefix('test_')}-{next(_numbers)}"[:200]


@pytest.fixture
def filled(cluster: ProcessCluster, topic: str) -> str:
    """A topic with numbered records in all its partitions."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(60)
    cluster.wait_for_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return topic


def pytest_configure(config: pytest.Config) -> None:
    """kafka-python and aiokafka leave sockets to the garbage collector; that is not what these tests are about."""
    for category in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{category}")
