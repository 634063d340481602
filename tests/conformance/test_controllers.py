"""Kafka's tools say of Ottla's controllers what they say of Apache Kafka's."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.local_cluster import Shape
from ottla.testing.ports import free_port_block
from ottla.testing.processes import ProcessCluster
from tests.conformance.conftest import SETTINGS
from tests.conformance.controller_chapters import CHAPTERS, CHAPTERS_OF_DEDICATED, Controllers, told
from tests.conformance.kafka_tools import KAFKA, KafkaTools, Told

HEAP = {"KAFKA_HEAP": "-Xms128m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1", "KAFKA_ROLES": "controller"}
LESS_HASTY = "controller.quorum.fetch.timeout.ms=10000\ncontroller.quorum.election.timeout.ms=3000\n"
"""Two on a busy machine may lose their leader for a minute otherwise. Not more: once a fetch timeout a voter says what it supports."""


def compare(of_ottla: list[tuple[str, list[str]]], of_kafka: list[tuple[str, list[str]]]) -> None:
    for (ours, our_lines), (kafkas, kafkas_lines) in zip(of_ottla, of_kafka, strict=True):
        assert (one_of_two(ours), told(our_lines)) == (one_of_two(kafkas), told(kafkas_lines))


def one_of_two(asked: str) -> str:
    """Either may be the one that follows."""
    return re.sub(r"(?<=-id )\S+|(?<=--command-config )\S+", "N", asked)


@pytest.fixture(scope="module")
def combined(tools: KafkaTools, kafka_node: str, tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """Nodes that are brokers and controllers: Ottla's, and Kafka's."""
    home = tmp_path_factory.mktemp("controllers")
    kafkas = f"127.0.0.1:{int(kafka_node.split(':')[1]) + 101}"
    with ProcessCluster(nodes=1, settings=SETTINGS) as ottla:
        places = [f"localhost:{ottla.node(1).controller_port}", kafkas]
        return [Controllers(tools, where, home).play(CHAPTERS) for where in places]


@pytest.fixture(scope="module")
def two_of_kafka(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Where they are, and their directory."""
    home, port = tmp_path_factory.mktemp("kafka"), free_port_block(2, (0, 101))
    home, extra = home / "nodes", home / "extra.properties"
    extra.write_text(LESS_HASTY)
    subprocess.run([KAFKA, "up", str(home), "2", str(port), str(extra)], env=os.environ | HEAP, check=True, timeout=300)
    yield f"127.0.0.1:{port + 101},127.0.0.1:{port + 102}", home
    for number in ("1", "2"):
        subprocess.run([KAFKA, "kill", str(home), number], check=True)


@pytest.fixture(scope="module")
def dedicated(
    tools: KafkaTools, two_of_kafka: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> list[Told]:
    """Two nodes that are controllers only: Ottla's, and Kafka's."""
    home = tmp_path_factory.mktemp("controllers")
    kafkas, at = two_of_kafka
    with ProcessCluster(shape=Shape(only_controllers=2)) as ottla:
        ours = ",".join(f"localhost:{node.controller_port}" for node in ottla.nodes)
        properties = [node.properties for node in ottla.nodes]
        sites = [
            Controllers(tools, ours, home, properties),
            Controllers(tools, kafkas, home, [at / f"s{number}.properties" for number in (1, 2)]),
        ]
        for site in sites:
            site.wait_for_a_follower()
        return [site.play(CHAPTERS_OF_DEDICATED) for site in sites]


@pytest.mark.parametrize("chapter", [each.__name__ for each in CHAPTERS])
def test_kafkas_tools_say_of_a_combined_nodes_controller_what_they_say_of_kafkas(
    combined: list[Told], chapter: str
) -> None:
    compare(*(each[chapter] for each in combined))


@pytest.mark.parametrize("chapter", [each.__name__ for each in CHAPTERS_OF_DEDICATED])
def test_kafkas_tools_say_of_controllers_alone_what_they_say_of_kafkas(dedicated: list[Told], chapter: str) -> None:
    compare(*(each[chapter] for each in dedicated))
