"""Consumer groups of the classic protocol, with clients that know nothing of us."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from click.testing import CliRunner
from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from ottla.cli.consume import consume
from ottla.cli.groups import groups
from ottla.testing.processes import ProcessCluster
from tests.integration.conftest import PARTITIONS, RECORDS

PATIENCE_S = 60


def librdkafka(cluster: ProcessCluster, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
        }
        | {name.replace("_", "."): value for name, value in settings.items()}
    )


def read(consumer: Consumer, count: int) -> list[int]:
    """So many records; fails when they do not come."""
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"only {len(found)} of {count} records"
        assert message.error() is None, message.error()
        value = message.value()
        assert value is not None
        found.append(int(value))
    return found


def in_partitions(numbers: list[int]) -> Iterator[list[int]]:
    for partition in range(PARTITIONS):
        yield [number for number in numbers if number % PARTITIONS == partition]


def test_librdkafka_reads_in_a_group_and_goes_on_where_it_committed(cluster: ProcessCluster, filled: str) -> None:
    consumer = librdkafka(cluster, filled)
    consumer.subscribe([filled])
    first = read(consumer, RECORDS // 2)
    consumer.commit(asynchronous=False)
    consumer.close()
    again = librdkafka(cluster, filled)
    again.subscribe([filled])
    rest = read(again, RECORDS - len(first))
    again.close()
    assert sorted(first + rest) == list(range(RECORDS))
    for numbers in in_partitions(first + rest):
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_share_the_partitions_and_take_over_those_of_one_that_leaves(
    cluster: ProcessCluster, filled: str, strategy: str
) -> None:
    members = [librdkafka(cluster, filled, partition_assignment_strategy=strategy) for _ in range(2)]
    for each in members:
        each.subscribe([filled])
    while sorted(len(each.assignment()) for each in members) != [2, 2]:
        for each in members:
            each.poll(0.1)
    members[0].close()
    while len(members[1].assignment()) != PARTITIONS:
        members[1].poll(0.1)
    members[1].close()


def test_a_static_member_comes_back_to_its_partitions(cluster: ProcessCluster, filled: str) -> None:
    first = librdkafka(cluster, filled, group_instance_id="one")
    first.subscribe([filled])
    read(first, 1)
    mine = first.assignment()
    first.close()  # a static member does not leave
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    described = admin.describe_consumer_groups([filled])[filled].result(60)
    assert [each.group_instance_id for each in described.members] == ["one"]
    back = librdkafka(cluster, filled, group_instance_id="one")
    back.subscribe([filled])
    read(back, 1)
    assert back.assignment() == mine
    back.close()


def test_an_administrator_sees_moves_and_deletes_a_group(cluster: ProcessCluster, filled: str) -> None:
    consumer = librdkafka(cluster, filled)
    consumer.subscribe([filled])
    read(consumer, RECORDS)
    consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    states = {each.group_id: each.state for each in admin.list_consumer_groups().result(60).valid}
    assert states[filled] is ConsumerGroupState.STABLE
    consumer.close()
    committed = consumer_offsets(cluster, filled)
    assert sum(committed) == RECORDS
    assert admin.delete_consumer_groups([filled])[filled].result(60) is None
    assert consumer_offsets(cluster, filled) == [-1001] * PARTITIONS, "librdkafka's word for none"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_ottla_consume_as_a_member_that_leaves(
    cluster: ProcessCluster, filled: str, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "consume", filled, "--group", filled]
    with subprocess.Popen([*command, "-b", cluster.bootstrap_servers], stdout=subprocess.PIPE) as member:
        assert member.stdout is not None
        printed = [int(member.stdout.readline()) for _ in range(RECORDS)]
        member.send_signal(number)
        assert member.wait(PATIENCE_S) == 0
    assert sorted(printed) == list(range(RECORDS))
    assert consumer_offsets(cluster, filled) == [RECORDS // PARTITIONS] * PARTITIONS
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    assert admin.describe_consumer_groups([filled])[filled].result(60).state == ConsumerGroupState.EMPTY


def consumer_offsets(cluster: ProcessCluster, topic: str) -> list[int]:
    with closing(librdkafka(cluster, topic)) as consumer:
        places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        return [each.offset for each in consumer.committed(places, PATIENCE_S)]


def test_the_commands_for_groups_show_reset_and_delete_one(cluster: ProcessCluster, filled: str) -> None:
    def ottla(*words: str) -> list[dict[str, Any]]:
        told = CliRunner().invoke(groups, [*words, "-b", cluster.bootstrap_servers])
        assert told.exception is None, told.exception
        found: list[dict[str, Any]] = json.loads(told.output) if "json" in words else []
        return found

    consumer = librdkafka(cluster, filled)
    consumer.subscribe([filled])
    read(consumer, RECORDS)
    consumer.commit(asynchronous=False)
    rows = ottla("describe", filled, "-o", "json")
    assert [(each["partition"], each["committed"], each["lag"]) for each in rows] == [
        (index, RECORDS // PARTITIONS, 0) for index in range(PARTITIONS)
    ]
    assert {each["client"] for each in rows} == {"rdkafka"}
    assert {each["lag seconds"] for each in rows} == {0}
    (joined,) = ottla("explain", filled, "-o", "json")
    assert (joined["cause"]["kind"], joined["outcome"], joined["moved_count"]) == ("join", "stable", PARTITIONS)
    assert (filled, "Stable") in [(each["group"], each["state"]) for each in ottla("list", "-o", "json")]
    stable = CliRunner().invoke(groups, ["reset-offsets", filled, "--to-earliest", "-b", cluster.bootstrap_servers])
    assert "stop them first" in str(stable.exception)
    consumer.close()
    rows = ottla("reset-offsets", filled, "--shift-by", "-10", "--dry-run", "-o", "json")
    assert {each["new"] for each in rows} == {RECORDS // PARTITIONS - 10}
    assert sum(consumer_offsets(cluster, filled)) == RECORDS
    ottla("reset-offsets", filled, "--topic", filled, "--to-offset", "5")
    assert consumer_offsets(cluster, filled) == [5] * PARTITIONS
    behind = ottla("describe", filled, "-o", "json")
    assert all(0 < each["lag seconds"] < PATIENCE_S for each in behind)
    assert {each["lag"] for each in behind} == {RECORDS // PARTITIONS - 5}
    assert ottla("explain", filled, "-o", "json")[-1]["cause"]["kind"] == "leave"
    ottla("delete-offsets", filled, "--topic", f"{filled}:0,1")
    assert consumer_offsets(cluster, filled) == [-1001] * 2 + [5] * 2
    ottla("reset-offsets", filled, "--topic", filled, "--by-duration", "1h")
    assert consumer_offsets(cluster, filled) == [0] * PARTITIONS
    ottla("delete", filled)
    assert filled not in [each["group"] for each in ottla("list", "-o", "json")]


@pytest.mark.parametrize("words", [[], ["--group-protocol", "consumer"]], ids=["classic", "consumer"])
def test_the_command_to_consume_goes_on_where_its_group_is(
    cluster: ProcessCluster, filled: str, words: list[str]
) -> None:
    found = []
    for count in (RECORDS // 2, RECORDS // 2):
        more = ["--group", filled, *words, "--max-messages", str(count), "-b", cluster.bootstrap_servers]
        told = CliRunner().invoke(consume, [filled, *more])
        assert told.exception is None, told.exception
        found += [int(line) for line in told.stdout.splitlines()]
    assert sorted(found) == list(range(RECORDS))
    assert sum(consumer_offsets(cluster, filled)) == RECORDS


def test_a_protocol_of_groups_needs_a_group() -> None:
    told = CliRunner().invoke(consume, ["t", "--group-protocol", "consumer"])
    assert told.exit_code == 2
    assert "name it with --group" in told.output


def test_who_assigns_partitions_himself_commits_without_a_group(cluster: ProcessCluster, filled: str) -> None:
    consumer = librdkafka(cluster, filled)
    consumer.assign([TopicPartition(filled, 0, 0)])
    read(consumer, RECORDS // PARTITIONS)
    consumer.commit(asynchronous=False)
    consumer.close()
    assert consumer_offsets(cluster, filled)[0] == RECORDS // PARTITIONS


def test_kafka_python_reads_in_a_group_and_goes_on_where_it_committed(cluster: ProcessCluster, filled: str) -> None:
    found: list[int] = []
    for count in (RECORDS // 2, RECORDS // 2):
        with closing(
            KafkaConsumer(
                filled,
                bootstrap_servers=cluster.bootstrap_servers.split(","),
                group_id=filled,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                consumer_timeout_ms=1000 * PATIENCE_S,
                max_poll_records=10,
            )
        ) as consumer:
            mine = [int(message.value) for _, message in zip(range(count), consumer, strict=False)]
            consumer.commit()
        found += mine
    assert sorted(found) == list(range(RECORDS))


def test_aiokafka_reads_in_a_group_and_goes_on_where_it_committed(cluster: ProcessCluster, filled: str) -> None:
    async def run(count: int) -> list[int]:
        consumer = AIOKafkaConsumer(
            filled,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=filled,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            found = [int((await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value) for _ in range(count)]
            await consumer.commit()
            return found
        finally:
            await consumer.stop()

    found = asyncio.run(run(RECORDS // 2)) + asyncio.run(run(RECORDS // 2))
    assert sorted(found) == list(range(RECORDS))
