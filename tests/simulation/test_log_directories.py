"""Brokers with several log directories (KIP-858): placement, and what the loss of one costs."""

import asyncio

import pytest

from ottla.broker.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.broker.wire.messages.alter_replica_log_dirs_response import AlterReplicaLogDirsResponse
from ottla.broker.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.broker.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.broker.wire.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.broker.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from ottla.log.names import TopicPartition
from ottla.quorum.metadata.views import DIRECTORY_UNASSIGNED, NO_LEADER
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.testing.simulation.workload import check_history, read_partition
from tests.simulation.conftest import Rig, play

FIRST, SECOND = "/data", "/more"
THIRD = "/third"
TWO = (FIRST, SECOND)
TOPIC, PARTITIONS = "flights", 4


def place(rig: Rig, broker: int, index: int) -> str:
    """The directory of a replica, as its broker has it."""
    server = rig.server(broker).broker
    assert server is not None
    return server.storage.manager.logs[TopicPartition(TOPIC, index)].root.path


def in_directory(rig: Rig, broker: int, path: str, partitions: int = PARTITIONS) -> list[int]:
    return [index for index in range(partitions) if place(rig, broker, index) == path]


def told(rig: Rig, broker: int, index: int) -> bytes:
    """The directory of a replica, as the metadata has it."""
    return rig.view(TOPIC, index).directory_of(broker)


async def assigned(rig: Rig) -> None:
    """Waits until the metadata knows the directory of every replica."""

    def everything() -> bool:
        return all(
            told(rig, broker, index) != DIRECTORY_UNASSIGNED
            for index, view in rig.image().topics_by_name[TOPIC].partitions.items()
            for broker in view.replicas
        )

    await rig.until(everything)


async def lead_from(rig: Rig, leader: int) -> None:
    """The topic, all of whose partitions ``leader`` leads."""
    replicas = [leader, *(each for each in (1, 2, 3) if each != leader)]
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=replicas) for index in range(PARTITIONS)
    ]
    kept = [CreatableTopicConfig(name="retention.ms", value="-1")]
    topic = CreatableTopic(TOPIC, -1, -1, assignments, kept)
    answer = await rig.client().ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), CreateTopicsResponse)
    assert answer.topics[0].error_code == 0
    await rig.until(lambda: all(TOPIC in rig.image(number).topics_by_name for number in rig.cluster.nodes))
    await assigned(rig)


def test_partitions_are_spread_and_the_controller_learns_where_they_are() -> None:
    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 1)
        for broker in (1, 2, 3):
            assert len(in_directory(rig, broker, FIRST)) == len(in_directory(rig, broker, SECOND)) == 2
            manager = rig.server(broker).broker.storage.manager  # type: ignore[union-attr]  # every node is a broker
            ids = {root.path: root.directory_id for root in manager.roots}
            assert [told(rig, broker, index) for index in range(PARTITIONS)] == [
                ids[place(rig, broker, index)] for index in range(PARTITIONS)
            ]

    play(scenario, directories=TWO)


@pytest.mark.parametrize("seed", range(3))
def test_a_lost_directory_costs_its_partitions_the_leader_and_the_others_nothing(seed: int) -> None:
    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 2)
        producers = [rig.produce(TOPIC, index) for index in range(PARTITIONS)]
        await rig.goes_on(*producers)
        lost, kept = in_directory(rig, 2, SECOND), in_directory(rig, 2, FIRST)
        before = {index: rig.view(TOPIC, index) for index in range(PARTITIONS)}

        mend = rig.cluster.nodes[2].platter.fail(SECOND)
        await rig.until(lambda: all(2 not in rig.view(TOPIC, index).isr for index in lost))
        await rig.goes_on(*producers)

        assert all(rig.view(TOPIC, index).leader in (1, 3) for index in lost)
        assert all(rig.view(TOPIC, index).leader == 2 for index in kept)
        assert all(rig.view(TOPIC, index).leader_epoch == before[index].leader_epoch for index in kept)
        assert not rig.image().brokers[2].fenced
        assert rig.cluster.lives[2] == 1

        mend()
        await rig.restart(2)
        await rig.until(lambda: all(len(rig.view(TOPIC, index).isr) == 3 for index in range(PARTITIONS)))
        await rig.goes_on(*producers)
        for user in rig.users:
            user.cancel()
        for producer in producers:
            found = await read_partition(rig.client(), TOPIC, producer.history.partition)
            check_history(producer.history, found)

    play(scenario, seed, directories=TWO)


def test_a_directory_that_comes_back_after_its_replicas_were_made_anew_stops_nobody() -> None:
    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 1)
        producers = [rig.produce(TOPIC, index) for index in range(PARTITIONS)]
        await rig.goes_on(*producers)
        lost = in_directory(rig, 2, SECOND)
        mend = rig.cluster.nodes[2].platter.fail(SECOND)
        await rig.until(lambda: all(2 not in rig.view(TOPIC, index).isr for index in lost))
        await rig.restart(2)
        await rig.until(lambda: all(len(rig.view(TOPIC, index).isr) == 3 for index in range(PARTITIONS)))
        assert in_directory(rig, 2, FIRST) == list(range(PARTITIONS))
        mend()
        await rig.restart(2)
        assert in_directory(rig, 2, FIRST) == list(range(PARTITIONS)), "the old copies do not count"
        kept = SimulatedDisk(rig.cluster.nodes[2].platter).list_directory(SECOND)
        assert len([name for name in kept if name.endswith("-stray")]) == len(lost)
        await rig.until(lambda: all(len(rig.view(TOPIC, index).isr) == 3 for index in range(PARTITIONS)))
        await rig.goes_on(*producers)
        for producer in producers:
            found = await read_partition(rig.client(), TOPIC, producer.history.partition)
            check_history(producer.history, found)

    play(scenario, directories=TWO)


def test_a_follower_that_lost_a_directory_leaves_the_isr_of_those_partitions_only() -> None:
    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 1)
        producers = [rig.produce(TOPIC, index) for index in range(PARTITIONS)]
        await rig.goes_on(*producers)
        lost, kept = in_directory(rig, 3, SECOND), in_directory(rig, 3, FIRST)
        rig.cluster.nodes[3].platter.fail(SECOND)
        await rig.until(lambda: all(3 not in rig.view(TOPIC, index).isr for index in lost))
        await asyncio.sleep(5)
        assert all(3 not in rig.view(TOPIC, index).isr for index in lost)
        assert all(len(rig.view(TOPIC, index).isr) == 3 for index in kept)
        await rig.goes_on(*producers)

    play(scenario, directories=TWO)


def test_nobody_waits_for_a_follower_that_lost_its_directory() -> None:
    """Its broker runs, so that it counts as caught up for the lag time, if nobody says better."""

    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 1)
        producers = [rig.produce(TOPIC, index) for index in range(PARTITIONS)]
        await rig.goes_on(*producers)
        lost = in_directory(rig, 3, SECOND)
        rig.cluster.nodes[3].platter.fail(SECOND)
        await rig.until(lambda: all(3 not in rig.view(TOPIC, index).isr for index in lost))
        await rig.goes_on(*producers)

    play(scenario, directories=TWO, settings={"replica.lag.time.max.ms": "60000"})


def test_a_lost_replica_of_an_idle_partition_does_not_pass_for_one_in_sync() -> None:
    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 1)
        lost = in_directory(rig, 3, SECOND)
        rig.cluster.nodes[3].platter.fail(SECOND)
        await rig.until(lambda: all(3 not in rig.view(TOPIC, index).isr for index in lost))
        await asyncio.sleep(5)
        assert all(3 not in rig.view(TOPIC, index).isr for index in lost)
        broker = rig.server(3).broker
        assert broker is not None
        hosted = [broker.replicas.partitions[TOPIC, index] for index in lost]
        assert [(each.leader, each.follower) for each in hosted] == [(None, None)] * len(lost)

    play(scenario, directories=TWO)


def test_a_directory_whose_disk_was_unmounted_is_noticed() -> None:
    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 1)
        lost = in_directory(rig, 1, SECOND)
        disk = SimulatedDisk(rig.cluster.nodes[1].platter)
        disk.rename(SECOND, "/elsewhere")
        disk.make_directories(SECOND)
        await rig.until(lambda: all(rig.view(TOPIC, index).leader == 2 for index in lost), 5)
        assert disk.list_directory(SECOND) == [], "nothing may be written to what lies below"

    play(scenario, directories=TWO)


def test_without_another_replica_clients_are_told_what_is_wrong() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 2, 1, retention_ms="-1")
        await assigned(rig)
        (lost,), (kept,) = in_directory(rig, 1, SECOND, 2), in_directory(rig, 1, FIRST, 2)
        rig.cluster.nodes[1].platter.fail(SECOND)
        assert await rig.produce_once(TOPIC, lost) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await rig.produce_once(TOPIC, kept) == 0
        await rig.until(lambda: rig.view(TOPIC, lost).leader == NO_LEADER)
        assert rig.view(TOPIC, kept).leader == 1
        assert await rig.produce_once(TOPIC, lost) == ErrorCode.KAFKA_STORAGE_ERROR

    play(scenario, nodes=1, directories=TWO, settings={"min.insync.replicas": "1"})


def test_a_broker_starts_without_a_directory_and_makes_nothing_up_for_it() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 2, 1, retention_ms="-1")
        await assigned(rig)
        (lost,), (kept,) = in_directory(rig, 1, SECOND, 2), in_directory(rig, 1, FIRST, 2)
        assert [await rig.produce_once(TOPIC, index) for index in (lost, kept)] == [0, 0]
        mend = rig.cluster.nodes[1].platter.fail(SECOND)
        await rig.restart(1)
        assert await rig.produce_once(TOPIC, kept) == 0
        assert await rig.produce_once(TOPIC, lost) == ErrorCode.KAFKA_STORAGE_ERROR
        assert (rig.view(TOPIC, lost).leader, rig.view(TOPIC, kept).leader) == (NO_LEADER, 1)
        mend()
        await rig.restart(1)
        await rig.until(lambda: rig.view(TOPIC, lost).leader == 1)
        broker = rig.server(1).broker
        assert broker is not None
        assert broker.storage.manager.logs[TopicPartition(TOPIC, lost)].log_end_offset == 1

    play(scenario, nodes=1, directories=TWO, settings={"min.insync.replicas": "1"})


@pytest.mark.parametrize("paths", [[FIRST], [SECOND, FIRST]])
def test_a_node_ends_when_the_metadata_logs_directory_is_lost(paths: list[str]) -> None:
    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 1)
        rig.loop.set_exception_handler(lambda *_: None)
        for path in paths:
            rig.cluster.nodes[1].platter.fail(path)
        await rig.until(lambda: rig.cluster.nodes[1].process is None, 10)
        rig.loop.unhandled.clear()  # the failure itself

    play(scenario, directories=TWO)


async def move(rig: Rig, broker: int, path: str, *indexes: int) -> list[int]:
    """The errors of the answers."""
    topic = AlterReplicaLogDirTopic(TOPIC, list(indexes))
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [topic])])
    answer = await rig.client().call(rig.cluster.brokers[broker - 1], request, AlterReplicaLogDirsResponse)
    return [each.error_code for result in answer.results for each in result.partitions]


@pytest.mark.parametrize("flush", ["false", "true"])
@pytest.mark.parametrize("seed", range(2))
def test_replicas_move_to_another_directory_under_load(seed: int, flush: str) -> None:
    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 1)
        producers = [rig.produce(TOPIC, index, 0.005) for index in range(PARTITIONS)]
        await rig.goes_on(*producers)
        for broker in (1, 2):  # a leader and a follower
            moving = in_directory(rig, broker, FIRST)
            assert await move(rig, broker, SECOND, *moving) == [0] * len(moving)
            await rig.until(lambda broker=broker: len(in_directory(rig, broker, SECOND)) == PARTITIONS)  # type: ignore[misc]  # bound now
        await rig.goes_on(*producers)
        ids = {number: rig.server(number).broker.storage.manager.roots[1].directory_id for number in (1, 2)}  # type: ignore[union-attr]  # every node is a broker
        await rig.until(
            lambda: all(told(rig, number, index) == ids[number] for number in (1, 2) for index in range(PARTITIONS))
        )
        assert all(rig.view(TOPIC, index).leader_epoch == 0 for index in range(PARTITIONS)), "nobody noticed"
        for number in (1, 2):
            await rig.restart(number)
            assert len(in_directory(rig, number, SECOND)) == PARTITIONS
        await rig.until(lambda: all(len(rig.view(TOPIC, index).isr) == 3 for index in range(PARTITIONS)))
        await rig.goes_on(*producers)
        for user in rig.users:
            user.cancel()
        for producer in producers:
            found = await read_partition(rig.client(), TOPIC, producer.history.partition)
            check_history(producer.history, found)

    play(scenario, seed, directories=TWO, settings={"ottla.flush.before.ack": flush})


def test_moves_that_cannot_be_are_refused() -> None:
    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 1)
        (there, *_) = in_directory(rig, 1, SECOND)
        assert await move(rig, 1, "/nowhere", there) == [ErrorCode.LOG_DIR_NOT_FOUND]
        assert await move(rig, 1, SECOND, there, 99) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        rig.cluster.nodes[1].platter.fail(SECOND)
        await rig.until(lambda: 1 not in rig.view(TOPIC, there).isr)
        (other, *_) = (index for index in range(PARTITIONS) if index != there and 1 in rig.view(TOPIC, index).isr)
        assert await move(rig, 1, SECOND, other) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert await move(rig, 1, FIRST, there) == [ErrorCode.KAFKA_STORAGE_ERROR]

    play(scenario, directories=TWO)


def test_who_gives_a_replica_its_directory_before_it_came_is_told_to_wait() -> None:
    """kafka-reassign-partitions does, of replicas that are about to come, and asks again after this error only."""

    async def scenario(rig: Rig) -> None:
        await rig.place(TOPIC, [1, 2])
        answers = await move(rig, 3, SECOND, 0, 99)
        assert answers == [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    play(scenario, directories=TWO)


def test_a_move_is_seen_and_may_be_taken_back() -> None:
    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 1)
        (index, *_) = in_directory(rig, 1, FIRST)
        await rig.goes_on(rig.produce(TOPIC, index))
        assert await move(rig, 1, SECOND, index) == [0]
        answer = await rig.client().call(
            rig.cluster.brokers[0],
            DescribeLogDirsRequest([DescribableLogDirTopic(TOPIC, [index])]),
            DescribeLogDirsResponse,
        )
        seen = {
            result.log_dir: [(each.is_future_key, each.offset_lag > 0) for each in topic.partitions]
            for result in answer.results
            for topic in result.topics
        }
        assert seen == {FIRST: [(False, False)], SECOND: [(True, True)]}
        assert await move(rig, 1, FIRST, index) == [0]
        await asyncio.sleep(2)
        assert place(rig, 1, index) == FIRST
        left = SimulatedDisk(rig.cluster.nodes[1].platter).list_directory(SECOND)
        assert not [name for name in left if name.endswith("-future")]

    play(scenario, directories=TWO, settings={"replica.alter.log.dirs.io.max.bytes.per.second": "1000"})


@pytest.mark.parametrize("path", TWO)
def test_a_directory_that_fails_during_a_move_ends_it(path: str) -> None:
    async def scenario(rig: Rig) -> None:
        await lead_from(rig, 1)
        # Of a follower, and away from the metadata log's directory or to a third one, so that the node lives on.
        moving = in_directory(rig, 3, SECOND)
        producers = [rig.produce(TOPIC, index, 0.01) for index in moving]
        await rig.goes_on(*producers)
        assert await move(rig, 3, THIRD, *moving) == [0] * len(moving)
        rig.cluster.nodes[3].platter.fail(THIRD if path == FIRST else SECOND)
        lost = [] if path == FIRST else moving
        await asyncio.sleep(8)
        assert [index for index in moving if 3 not in rig.view(TOPIC, index).isr] == lost
        await rig.goes_on(*producers)
        assert rig.cluster.lives[3] == 1

    play(scenario, directories=(FIRST, SECOND, THIRD))
