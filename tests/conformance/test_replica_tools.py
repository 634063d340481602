"""kafka-reassign-partitions and kafka-leader-election say of two brokers of Ottla what they say of two of Apache Kafka."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.formatting import format_directories
from ottla.testing.ports import free_port_block
from ottla.testing.processes import ProcessCluster
from tests.conformance.kafka_tools import KAFKA, PATIENT, Broker, KafkaTools, Told
from tests.conformance.replica_chapters import CHAPTERS

SETTINGS = {"offsets.topic.num.partitions": "8", "auto.leader.rebalance.enable": "false"}
HEAP = {"KAFKA_HEAP": "-Xms256m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1", "KAFKA_LOG_DIRS": "2"}


@pytest.fixture(scope="module")
def two_of_kafka(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Where they are, and their directory."""
    home, port = tmp_path_factory.mktemp("kafka"), free_port_block(2, (0, 101))
    extra = home / "extra.properties"
    extra.write_text(f"auto.leader.rebalance.enable=false\nbroker.rack=\n{PATIENT}")
    subprocess.run(
        [KAFKA, "up", str(home / "nodes"), "2", str(port), str(extra)], env=os.environ | HEAP, check=True, timeout=300
    )
    yield f"127.0.0.1:{port}", home / "nodes"
    for number in ("1", "2"):
        subprocess.run([KAFKA, "kill", str(home / "nodes"), number], check=True)


@pytest.fixture(scope="module")
def told(tools: KafkaTools, two_of_kafka: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """What is said of Ottla, and of Kafka."""
    home = tmp_path_factory.mktemp("plans")
    kafkas, at = two_of_kafka
    ottla = ProcessCluster(nodes=2, settings=SETTINGS)
    for node in ottla.nodes:
        node.set({"log.dirs": f"{node.home}/data,{node.home}/more"})
        format_directories(node.properties, ottla.cluster_id, ignore_formatted=True)
    with ottla:
        sites = [Broker(tools, ottla.bootstrap_servers, home), Broker(tools, kafkas, home)]
        sites[0].directories = [f"{ottla.node(1).home}/{name}" for name in ("data", "more")]
        sites[1].directories = [f"{at}/{name}1" for name in ("data", "more")]
        return [site.play(CHAPTERS) for site in sites]


@pytest.mark.parametrize("chapter", [each.__name__ for each in CHAPTERS])
def test_kafkas_tools_for_replicas_say_the_same_as_of_kafka(told: list[Told], chapter: str) -> None:
    of_ottla, of_kafka = (each[chapter] for each in told)
    for ours, kafkas in zip(of_ottla, of_kafka, strict=True):
        assert ours == kafkas
