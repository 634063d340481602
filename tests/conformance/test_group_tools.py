"""Kafka's tools for consumer groups say of Ottla what they say of Apache Kafka, command by command."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.conftest import fill
from tests.conformance.kafka_tools import KafkaTools, in_common

TOPIC, GROUP = "flights", "readers"
PARTITIONS, RECORDS = 4, 40
RESETS = (
    "--to-earliest", "--to-latest", "--to-offset 3", "--to-offset 100", "--shift-by -2", "--shift-by 100", "--shift-by -100",
    "--to-current", "--to-datetime 2023-11-14T22:13:30.000", "--to-datetime 2030-01-01T00:00:00.000", "--by-duration P1D",
)  # fmt: skip
OFFSETS = (
    "", "--time earliest", "--time latest", "--time max-timestamp", "--time earliest-local", "--time latest-tiered",
    "--time 1700000010500", "--time 1900000000000", f"--topic {TOPIC} --partitions 1,2", f"--topic-partitions {TOPIC}:0-2",
    "--exclude-internal-topics", "--topic nowhere",
)  # fmt: skip
FORMATTERS = "org.apache.kafka.tools.consumer"
FIRST = '"protocolType":"","generation":0'
"""Kafka writes that a group has come to be; with us its first generation says so."""


class Broker:
    """Its answers, in the order of the questions."""

    def __init__(self, tools: KafkaTools, bootstrap: str, home: Path) -> None:
        self.tools = tools
        self.where = ("--bootstrap-server", bootstrap)
        self.plan = home / "plan.csv"
        self.plan.write_text(f"{TOPIC},1,7\n{TOPIC},3,99\n", encoding="utf-8")
        self.answers: list[tuple[str, list[str]]] = []

    def ask(self, tool: str, words: str) -> None:
        said = self.tools.run(tool, *self.where, *words.split())
        self.answers.append((f"{tool} {words}", said.in_common))

    def groups(self, *commands: str) -> None:
        for words in commands:
            self.ask("consumer-groups", words)


def of_a_group_at_work(broker: Broker) -> None:
    consumer = broker.tools.start("verifiable-consumer", *broker.where, "--topic", TOPIC, "--group-id", GROUP)
    consumer.wait_for('"offset":10', PARTITIONS)
    broker.groups("--list", "--list --state", "--list --type", "--list --state Stable --type classic")
    broker.groups("--list --state Empty", "--list --type consumer", "--describe --all-groups")
    for words in ("", "--verbose", "--members", "--members --verbose", "--state", "--state --verbose", "--offsets"):
        broker.groups(f"--describe --group {GROUP} {words}")
    broker.groups(f"--reset-offsets --group {GROUP} --topic {TOPIC} --to-earliest --dry-run")
    broker.groups(f"--reset-offsets --group {GROUP} --topic {TOPIC} --to-earliest --execute")
    broker.groups(f"--delete --group {GROUP}", f"--delete-offsets --group {GROUP} --topic {TOPIC}")
    broker.ask("groups", "--list")
    broker.answers.append(("verifiable-consumer", consumer.stop().in_common))


def of_an_empty_group(broker: Broker) -> None:
    broker.groups("--list --state")
    for words in ("", "--members", "--members --verbose", "--state", "--offsets --verbose"):
        broker.groups(f"--describe --group {GROUP} {words}")


def of_resets(broker: Broker) -> None:
    reset = f"--reset-offsets --group {GROUP} --topic {TOPIC}"
    for way in RESETS:
        broker.groups(f"{reset} {way} --dry-run")
    broker.groups(f"{reset}:0,2 --to-offset 4 --execute", f"--describe --group {GROUP}")
    broker.groups(f"{reset} --to-current --dry-run --export")
    broker.groups(f"--reset-offsets --group {GROUP} --execute --from-file {broker.plan}")
    broker.groups(
        f"--reset-offsets --group {GROUP} --all-topics --shift-by -1 --execute", f"--describe --group {GROUP}"
    )
    broker.groups(f"--reset-offsets --group fresh --topic {TOPIC} --to-latest --execute")
    broker.groups("--reset-offsets --group fresh --topic nowhere --to-latest --execute")
    broker.groups("--describe --group fresh", "--describe --all-groups --state")


def of_offsets(broker: Broker) -> None:
    for words in OFFSETS:
        broker.ask("get-offsets", words)


def of_java_consumers(broker: Broker) -> None:
    """A group reads everything, commits, and goes on there; also with cooperative members."""
    read = f"--topic {TOPIC} --from-beginning --formatter-property print.partition=true"
    cooperative = "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    broker.ask("console-consumer", f"{read} --group java --max-messages {RECORDS}")
    broker.ask("console-consumer", f"{read} --group java --timeout-ms 1000")
    broker.ask("console-consumer", f"{read} --group sticky --max-messages {RECORDS} --command-property {cooperative}")
    broker.groups("--describe --group java", "--describe --group sticky")


def of_the_offsets_topic(broker: Broker) -> None:
    """Kafka's formatters read what we write, each record of each partition; a group's come once more, from who read the first."""
    for formatter in ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter"):
        words = f"--topic __consumer_offsets --from-beginning --timeout-ms 3000 --group {formatter}"
        how = f"--formatter {FORMATTERS}.{formatter} --command-property enable.auto.commit=false"
        said = broker.tools.run("console-consumer", *broker.where, *words.split(), *how.split())
        records = said.out.replace("}{", "}\n{").splitlines()
        broker.answers.append((formatter, sorted(in_common(each) for each in records if FIRST not in each)))


def of_deletions(broker: Broker) -> None:
    delete = f"--delete-offsets --group {GROUP} --topic"
    broker.groups(f"{delete} {TOPIC}:2", f"--describe --group {GROUP}", f"{delete} {TOPIC}:9", f"{delete} nowhere")
    broker.groups("--delete-offsets --group nobody --topic nowhere", "--delete --group fresh --group nobody")
    broker.groups(f"--delete --group {GROUP}", f"--describe --group {GROUP}", f"--describe --group {GROUP} --members")
    broker.groups(f"--describe --group {GROUP} --state", "--list")


CHAPTERS: tuple[Callable[[Broker], None], ...] = (
    of_a_group_at_work, of_an_empty_group, of_resets, of_offsets, of_java_consumers, of_the_offsets_topic, of_deletions,
)  # fmt: skip
Told = dict[str, list[tuple[str, list[str]]]]


@pytest.fixture(scope="module")
def told(tools: KafkaTools, ottla_node: str, kafka_node: str, tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """What Ottla's clients and Kafka's are told, by chapter. The chapters are about the same groups, one after the other."""
    home = tmp_path_factory.mktemp("groups")
    return [_play(tools, bootstrap, home) for bootstrap in (ottla_node, kafka_node)]


def _play(tools: KafkaTools, bootstrap: str, home: Path) -> Told:
    fill(bootstrap, TOPIC, PARTITIONS, RECORDS)
    broker = Broker(tools, bootstrap, home)
    told: Told = {}
    for chapter in CHAPTERS:
        chapter(broker)
        told[chapter.__name__], broker.answers = broker.answers, []
    return told


@pytest.mark.parametrize("chapter", [each.__name__ for each in CHAPTERS])
def test_kafkas_tools_say_the_same_as_of_kafka(told: list[Told], chapter: str) -> None:
    of_ottla, of_kafka = (each[chapter] for each in told)
    for ours, kafkas in zip(of_ottla, of_kafka, strict=True):
        assert ours == kafkas
