"""Kafka's tools in one JVM, one node of Ottla and one of Apache Kafka for all that compare what they say."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.ports import free_port_block
from ottla.testing.processes import ProcessCluster
from tests.conformance.kafka_tools import KAFKA, KafkaTools

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "8"}
"""As tests/peers/kafka/kafka has them."""


@pytest.fixture(scope="session")
def tools() -> Iterator[KafkaTools]:
    with KafkaTools() as running:
        yield running


@pytest.fixture(scope="session")
def ottla_node(tools: KafkaTools) -> Iterator[str]:
    """Where it is reached."""
    with ProcessCluster(nodes=1, settings=SETTINGS) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_node(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = str(tmp_path_factory.mktemp("kafka") / "node")
    port = free_port_block(1, (0, 101))  # for clients, and for the controller
    environment = os.environ | {
        "KAFKA_HEAP": "-Xms256m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    }  # it lives for a minute
    subprocess.run([KAFKA, "up", home, "1", str(port)], env=environment, check=True, timeout=300)
    yield f"127.0.0.1:{port}"
    subprocess.run([KAFKA, "kill", home, "1"], check=True)


def fill(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    """Numbered records in turn on all partitions, a second apart, years ago."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 1000})
    for number in range(records):
        at_ms = 1_700_000_000_000 + 1_000 * number
        producer.produce(topic, str(number), str(number % 7), partition=number % partitions, timestamp=at_ms)
    assert producer.flush(60) == 0


def pytest_configure(config: pytest.Config) -> None:
    """Claimed ports are freed when the process ends."""
    for category in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{category}")
