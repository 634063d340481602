"""What Kafka's tools for topics, settings, logs and clusters are asked."""

import re
from collections.abc import Callable

from tests.conformance.conftest import fill
from tests.conformance.kafka_tools import Broker

TOPIC = "trips"
BAD_TOPICS = (
    "--create --topic bad/name", "--create --topic trips-a --partitions 0", "--create --topic b --partitions 1 --replication-factor 2",
    "--create --topic b --config no.such.setting=1", "--create --topic b --config retention.ms=soon",
    "--create --topic b --config min.insync.replicas=0", "--create --topic b --replica-assignment 1:1",
    "--create --topic b --replica-assignment 9", "--create --topic b --partitions 2 --replica-assignment 1,1",
    "--alter --topic trips-a --partitions 2", "--alter --topic trips-a --partitions 3", "--alter --topic nowhere --partitions 3",
    "--delete --topic nowhere", "--describe --topic nowhere", "--describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ",
)  # fmt: skip
SETTINGS_OF_TOPICS = (
    "--alter --add-config retention.ms=1000000", "--alter --add-config cleanup.policy=[compact,delete],segment.ms=100000",
    "--describe", "--describe --all", "--alter --delete-config segment.ms", "--alter --delete-config not.there",
    "--alter --add-config retention.ms=soon", "--alter --add-config no.such.setting=1", "--describe",
)  # fmt: skip
SETTINGS_OF_BROKERS = (
    "--describe --entity-type brokers --entity-name 1",
    "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2",
    "--alter --entity-type brokers --entity-default --add-config log.retention.ms=90000000",
    "--describe --entity-type brokers --entity-default",
    "--alter --entity-type brokers --entity-name 1 --add-config node.id=7",
    "--alter --entity-type brokers --entity-name 1 --add-config num.io.threads=none",
    "--alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.threads",
    "--alter --entity-type brokers --entity-default --delete-config log.retention.ms",
    "--describe --entity-type brokers", "--describe --entity-type brokers --entity-name 9",
    "--describe --entity-type topics", "--describe --entity-type topics --entity-name nowhere",
    "--alter --entity-type broker-loggers --entity-name 1 --add-config no.such.Logger=INFO",
    "--alter --entity-type broker-loggers --entity-name 1 --add-config root=LOUD",
    "--alter --entity-type broker-loggers --entity-name 1 --delete-config root",
    "--alter --entity-type broker-loggers --entity-name 1 --add-config root=WARN",
)  # fmt: skip


def of_topics(broker: Broker) -> None:
    def topics(*commands: str) -> None:
        for words in commands:
            broker.ask("topics", words)

    topics("--create --topic trips-a --partitions 3 --replication-factor 1 --config retention.ms=123456")
    topics("--create --topic trips-a", "--create --topic trips-a --if-not-exists", "--create --topic trips-b")
    topics("--create --topic trips-c --replica-assignment 1,1", "--create --topic with.dot --partitions 1")
    broker.ask_until("topics", "--list --exclude-internal", "with.dot")  # a broker hears a moment after it was answered
    topics(
        "--list --topic trips-.*",
        "--describe --topic trips-a",
        "--describe --topic trips-[bc]",
    )
    topics(*(f"--describe --exclude-internal {words}" for words in (
        "--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions", "--at-min-isr-partitions",
        "--topics-with-overrides",
    )))  # fmt: skip
    topics(*BAD_TOPICS)
    topics("--alter --topic trips-a --partitions 5")
    broker.ask_until("topics", "--describe --topic trips-a", "Partition: 4")
    topics("--alter --topic nowhere --partitions 5 --if-exists", "--delete --topic nowhere --if-exists")
    topics("--delete --topic trips-b", "--delete --topic trips-c", "--delete --topic with.dot")
    broker.ask_until_gone("topics", "--list --exclude-internal", "trips-c", "with.dot")


def of_settings(broker: Broker) -> None:
    # Kafka sets this one by itself where leaders are elected out of the eligible (KIP-966).
    broker.ask("configs", "--alter --entity-type brokers --entity-default --add-config min.insync.replicas=1")
    for words in SETTINGS_OF_TOPICS:
        broker.ask("configs", f"{words} --entity-type topics --entity-name trips-a")
    for words in SETTINGS_OF_BROKERS:
        broker.ask("configs", words)
        if words.endswith("threads=2"):  # Kafka takes a moment until it goes by it
            broker.ask_until("configs", "--describe --entity-type brokers --entity-name 1", "threads=2 sensitive")


def of_records_that_go(broker: Broker) -> None:
    fill(broker.bootstrap, TOPIC, 2, 20)
    for name, offsets in {"some": (4, -1), "more": (5, 11), "none": (0, 0)}.items():
        plan = broker.home / f"{name}.json"
        told = ",".join(f'{{"topic":"{TOPIC}","partition":{at},"offset":{to}}}' for at, to in enumerate(offsets))
        plan.write_text(f'{{"partitions":[{told}],"version":1}}', encoding="utf-8")
        broker.ask("delete-records", f"--offset-json-file {plan}")
    broker.ask("get-offsets", f"--topic {TOPIC} --time earliest")


def of_log_directories(broker: Broker) -> None:
    for words in (
        f"--topic-list {TOPIC}",
        f"--broker-list 1 --topic-list {TOPIC}",
        "--broker-list 1,7",
        "--topic-list nowhere",
    ):
        broker.ask("log-dirs", f"--describe {words}")


def of_the_cluster(broker: Broker) -> None:
    broker.ask("cluster", "cluster-id")
    broker.ask("cluster", "list-endpoints")
    broker.ask("cluster", "list-endpoints --include-fenced-brokers")
    broker.ask("cluster", "unregister --id 77")
    broker.ask("metadata-quorum", "describe --status")
    broker.ask("metadata-quorum", "describe --replication")
    broker.ask("metadata-quorum", "describe --replication --human-readable")


CHAPTERS: tuple[Callable[[Broker], None], ...] = (
    of_topics,
    of_settings,
    of_records_that_go,
    of_log_directories,
    of_the_cluster,
)

OUR_WORDS = re.compile(r"(Exception: |Error while executing topic command : |broker ID 77 failed: ).*")
"""What follows is said in our words, and tells more."""
OUR_SYNONYMS = re.compile(
    r"(, )?DEFAULT_CONFIG:(log\.(retention|roll|roll\.jitter)\.hours=\d+|log\.flush\.interval\.ms=9223372036854775807)"
)
"""Where a time comes from that Kafka holds in a coarser setting, or in none."""


def told(lines: list[str]) -> list[str]:
    """What both brokers are to have in common, of what a tool printed."""
    ours = (line for line in lines if not line.startswith("ottla."))
    return sorted(OUR_SYNONYMS.sub("", OUR_WORDS.sub(r"\1...", line)) for line in ours)
