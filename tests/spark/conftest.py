"""One Spark session and one node for all tests here; a cluster of three for those that ask. Each test takes topics of its own."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.pipeline.jobs.checkpoint_files import MANAGER, WITHOUT_FORKS
from ottla.testing.ports import free_port_block
from ottla.testing.processes import ProcessCluster
from tests.spark.session import start

KAFKA = str(Path(__file__).parents[1] / "peers" / "kafka" / "kafka")
_numbers = count(1)
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "500",  # only what is safe on disk is compacted
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """local[2]. A short path: Unix sockets have their place in it."""
    with tempfile.TemporaryDirectory(prefix="ottla-spark-", ignore_cleanup_errors=True) as directory:
        session = start(Path(directory), more={MANAGER: WITHOUT_FORKS})  # as jobs do
        yield session
        session.stop()
        gateway = session.sparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM lives until then
        gateway.proc.wait(120)


@pytest.fixture(scope="session")
def node() -> Iterator[ProcessCluster]:
    with ProcessCluster(nodes=1, settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(node: ProcessCluster) -> str:
    """Where the one node is reached."""
    return node.bootstrap_servers


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where one node of Apache Kafka is reached."""
    home = str(tmp_path_factory.mktemp("kafka") / "node")
    port = free_port_block(1, (0, 101))  # for clients, and for the controller
    heap = {"KAFKA_HEAP": "-Xms256m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}  # it lives for a minute
    subprocess.run([KAFKA, "up", home, "1", str(port)], env=os.environ | heap, check=True, timeout=300)
    yield f"127.0.0.1:{port}"
    subprocess.run([KAFKA, "kill", home, "1"], check=True)


@pytest.fixture(params=["ottla", pytest.param("apache kafka", marks=pytest.mark.long)])
def broker(request: pytest.FixtureRequest) -> str:
    """Where either is reached. `make test` reads from Apache Kafka too, without Spark: tests/conformance/test_topic_source.py."""
    fixture = {"ottla": "bootstrap", "apache kafka": "apache_kafka"}[request.param]
    return str(request.getfixturevalue(fixture))


@pytest.fixture
def cluster() -> Iterator[ProcessCluster]:
    """Three nodes, for this test alone: it may kill them."""
    with ProcessCluster(nodes=3, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name no other test uses."""
    return f"{request.node.originalname.removeprefix('test_')}-{next(_numbers)}"[:200]


def pytest_configure(config: pytest.Config) -> None:
    """Claimed ports are freed when the process ends, and what pyspark leaves to the garbage collector is not what these tests are about."""
    config.addinivalue_line("markers", "long: minutes; `make test-spark` runs it, `make test` does not")
    for category in ("ResourceWarning", "DeprecationWarning", "pytest.PytestUnraisableExceptionWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{category}")
