"""Kafka's tools for groups and transactions say of Ottla what they say of Apache Kafka, command by command."""

import pytest

from tests.conformance import group_chapters, transaction_chapters
from tests.conformance.kafka_tools import Broker, KafkaTools, Told

CHAPTERS = (*group_chapters.CHAPTERS, *transaction_chapters.CHAPTERS)


@pytest.fixture(scope="module")
def told(tools: KafkaTools, ottla_node: str, kafka_node: str, tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """What is said of Ottla, and of Kafka. The chapters are about the same things, one after the other."""
    home = tmp_path_factory.mktemp("tools")
    return [Broker(tools, bootstrap, home).play(CHAPTERS) for bootstrap in (ottla_node, kafka_node)]


@pytest.mark.parametrize("chapter", [each.__name__ for each in CHAPTERS])
def test_kafkas_tools_say_the_same_as_of_kafka(told: list[Told], chapter: str) -> None:
    of_ottla, of_kafka = (each[chapter] for each in told)
    for ours, kafkas in zip(of_ottla, of_kafka, strict=True):
        assert ours == kafkas
