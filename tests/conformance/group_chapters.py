"""What Kafka's tools for consumer groups are asked."""

from collections.abc import Callable

from tests.conformance.conftest import fill
from tests.conformance.kafka_tools import Broker, in_common

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


def groups(broker: Broker, *commands: str) -> None:
    for words in commands:
        broker.ask("consumer-groups", words)


def of_a_group_at_work(broker: Broker) -> None:
    fill(broker.bootstrap, TOPIC, PARTITIONS, RECORDS)
    consumer = broker.tools.start("verifiable-consumer", *broker.where, "--topic", TOPIC, "--group-id", GROUP)
    consumer.wait_for('"offset":10', PARTITIONS)
    groups(broker, "--list", "--list --state", "--list --type", "--list --state Stable --type classic")
    groups(broker, "--list --state Empty", "--list --type consumer", "--describe --all-groups")
    for words in ("", "--verbose", "--members", "--members --verbose", "--state", "--state --verbose", "--offsets"):
        groups(broker, f"--describe --group {GROUP} {words}")
    groups(broker, f"--reset-offsets --group {GROUP} --topic {TOPIC} --to-earliest --dry-run")
    groups(broker, f"--reset-offsets --group {GROUP} --topic {TOPIC} --to-earliest --execute")
    groups(broker, f"--delete --group {GROUP}", f"--delete-offsets --group {GROUP} --topic {TOPIC}")
    broker.ask("groups", "--list")
    broker.answers.append(("verifiable-consumer", consumer.stop().in_common))


def of_an_empty_group(broker: Broker) -> None:
    groups(broker, "--list --state")
    for words in ("", "--members", "--members --verbose", "--state", "--offsets --verbose"):
        groups(broker, f"--describe --group {GROUP} {words}")


def of_resets(broker: Broker) -> None:
    plan = broker.home / "plan.csv"
    plan.write_text(f"{TOPIC},1,7\n{TOPIC},3,99\n", encoding="utf-8")
    reset = f"--reset-offsets --group {GROUP} --topic {TOPIC}"
    for way in RESETS:
        groups(broker, f"{reset} {way} --dry-run")
    groups(broker, f"{reset}:0,2 --to-offset 4 --execute", f"--describe --group {GROUP}")
    groups(broker, f"{reset} --to-current --dry-run --export")
    groups(broker, f"--reset-offsets --group {GROUP} --execute --from-file {plan}")
    groups(
        broker, f"--reset-offsets --group {GROUP} --all-topics --shift-by -1 --execute", f"--describe --group {GROUP}"
    )
    groups(broker, f"--reset-offsets --group fresh --topic {TOPIC} --to-latest --execute")
    groups(broker, "--reset-offsets --group fresh --topic nowhere --to-latest --execute")
    groups(broker, "--describe --group fresh", "--describe --all-groups --state")


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
    groups(broker, "--describe --group java", "--describe --group sticky")


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
    groups(broker, f"{delete} {TOPIC}:2", f"--describe --group {GROUP}", f"{delete} {TOPIC}:9", f"{delete} nowhere")
    groups(broker, "--delete-offsets --group nobody --topic nowhere", "--delete --group fresh --group nobody")
    groups(broker, f"--delete --group {GROUP}", f"--describe --group {GROUP}", f"--describe --group {GROUP} --members")
    groups(broker, f"--describe --group {GROUP} --state", "--list")


def of_settings_of_groups(broker: Broker) -> None:
    one, own = (
        "--entity-type groups --entity-name tuned",
        "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000",
    )
    broker.ask("configs", f"{one} --describe --all")
    broker.ask("configs", f"{one} --alter --add-config {own}")
    broker.ask("configs", "--entity-type groups --describe")
    broker.ask("configs", f"{one} --alter --delete-config consumer.session.timeout.ms,consumer.heartbeat.interval.ms")
    broker.ask("configs", f"{one} --describe")


CHAPTERS: tuple[Callable[[Broker], None], ...] = (
    of_a_group_at_work, of_an_empty_group, of_resets, of_offsets, of_java_consumers, of_the_offsets_topic, of_deletions,
    of_settings_of_groups,
)  # fmt: skip
