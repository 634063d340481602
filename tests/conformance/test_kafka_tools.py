"""Kafka's tools say of Ottla what they say of Apache Kafka, command by command."""

import re

import pytest

from tests.conformance import admin_chapters, group_chapters, transaction_chapters
from tests.conformance.kafka_tools import Broker, KafkaTools, Told

CHAPTERS = (*group_chapters.CHAPTERS, *transaction_chapters.CHAPTERS, *admin_chapters.CHAPTERS)
IN_OUR_WORDS = {each.__name__ for each in admin_chapters.CHAPTERS}


@pytest.fixture(scope="module")
def told(tools: KafkaTools, ottla_node: str, kafka_node: str, tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """What is said of Ottla, and of Kafka. The chapters are about the same things, one after the other."""
    home = tmp_path_factory.mktemp("tools")
    return [Broker(tools, bootstrap, home).play(CHAPTERS) for bootstrap in (ottla_node, kafka_node)]


@pytest.mark.parametrize("chapter", [each.__name__ for each in CHAPTERS])
def test_kafkas_tools_say_the_same_as_of_kafka(told: list[Told], chapter: str) -> None:
    of_ottla, of_kafka = (each[chapter] for each in told)
    for ours, kafkas in zip(of_ottla, of_kafka, strict=True):
        if chapter in IN_OUR_WORDS:
            ours, kafkas = ((asked, admin_chapters.told(lines)) for asked, lines in (ours, kafkas))
        assert ours == kafkas


NOT_THERE = re.compile(r"Quotas|Scram|DelegationToken|Share|Streams")
"""Quotas, passwords, tokens; share and streams groups."""


def test_every_api_of_kafkas_brokers_is_offered_in_the_same_versions(
    tools: KafkaTools, ottla_node: str, kafka_node: str
) -> None:
    of_ottla, of_kafka = (
        [
            re.sub(r"^\(?BROKER.*", "", line)
            for line in tools.run("broker-api-versions", "--bootstrap-server", each).in_common
        ]
        for each in (ottla_node, kafka_node)
    )
    missing = [ours for ours, kafkas in zip(of_ottla, of_kafka, strict=True) if ours.rstrip(",") != kafkas.rstrip(",")]
    assert [line for line in missing if not NOT_THERE.search(line)] == []
    assert all("UNSUPPORTED" in line for line in missing)
