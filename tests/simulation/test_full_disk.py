"""A disk without room: a state of the broker, not its end. Needs no mount, so it runs everywhere."""

import asyncio
import errno

import pytest

from ottla.broker.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.broker.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.workload import check_history, read_partition
from tests.simulation.conftest import Rig, play

TOPIC = "flights"
FLOOR = 64 << 20


def test_below_the_floor_records_are_refused_old_ones_served_and_all_is_well_when_there_is_room() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 1, 1, retention_ms="-1")
        assert await rig.produce_once(TOPIC, 0, b"1") == 0
        platter = rig.cluster.nodes[1].platter
        capacity = platter.capacity_bytes
        platter.capacity_bytes = platter.used_bytes + FLOOR - 1
        await asyncio.sleep(1.1)
        assert await rig.produce_once(TOPIC, 0, b"2") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await read_partition(rig.client(), TOPIC, 0) == [(1, 0)]
        platter.capacity_bytes = platter.used_bytes + FLOOR + 1  # not enough yet: it would flutter
        await asyncio.sleep(1.1)
        assert await rig.produce_once(TOPIC, 0, b"3") == ErrorCode.KAFKA_STORAGE_ERROR
        platter.capacity_bytes = capacity
        await asyncio.sleep(1.1)
        assert await rig.produce_once(TOPIC, 0, b"4") == 0
        assert await read_partition(rig.client(), TOPIC, 0) == [(1, 0), (4, 1)]
        assert rig.cluster.lives[1] == 1

    play(scenario, nodes=1, settings={"ottla.free.bytes.floor": str(FLOOR), "min.insync.replicas": "1"})


@pytest.mark.parametrize("left_bytes", [0, 50, 5_000])
def test_a_write_that_finds_no_room_is_refused_whole(left_bytes: int) -> None:
    """The data has a disk of its own here: the metadata log's is not full, or the node would end."""

    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 1, 1, retention_ms="-1")
        assert await rig.produce_once(TOPIC, 0, b"1") == 0
        platter = rig.cluster.nodes[1].platter
        capacity = platter.capacity_bytes
        mend = platter.fail("/data/flights-0", number=28, operations=("write",)) if not left_bytes else None
        platter.capacity_bytes = platter.used_bytes + left_bytes
        errors = [await rig.produce_once(TOPIC, 0, b"7" * 2_000) for _ in range(4)]
        platter.capacity_bytes = capacity
        if mend is not None:
            mend()
        assert errors[-1] == ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.sleep(1.1)
        assert await rig.produce_once(TOPIC, 0, b"4") == 0
        found = [number for number, _ in await read_partition(rig.client(), TOPIC, 0)]
        assert found == [1, *[int(b"7" * 2_000)] * errors.count(0), 4]
        assert rig.cluster.lives[1] == 1

    play(scenario, nodes=1, settings={"min.insync.replicas": "1"})


@pytest.mark.parametrize("left_bytes", [0, 40, 300])
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_controller_without_room_for_its_log_ends_and_comes_back_when_there_is(left_bytes: int, leads: bool) -> None:
    """It acknowledges nothing that it could not write, the others go on, and what was committed meanwhile reaches it."""

    async def scenario(rig: Rig) -> None:
        numbers = [number for number in rig.cluster.nodes if _leads(rig, number) is leads]
        node, lives = rig.cluster.nodes[numbers[0]], rig.cluster.lives
        node.platter.capacity_bytes = node.platter.used_bytes + left_bytes
        for number in range(4):
            await rig.topic(f"meanwhile-{number}", 1, 1)
        await rig.until(lambda: node.process is None)
        assert "No space left" in str(node.exit)
        assert "make room" in str(node.exit)

        await asyncio.wait([node.restart()], timeout=5)
        assert "o space left" in str(node.exit), "nor without room at the start"
        assert lives[numbers[0]] == 2
        node.platter.capacity_bytes = 1 << 40
        rig.loop.unhandled.clear()
        await rig.restart(numbers[0])
        await rig.topic("afterwards", 1, 1)
        assert len(rig.image(numbers[0]).topics_by_name) == 5

    play(scenario, nodes=3)


def _leads(rig: Rig, number: int) -> bool:
    quorum = rig.server(number).quorum
    return quorum is not None and quorum.is_leader


@pytest.mark.parametrize("seed", range(3))
def test_a_full_follower_leaves_the_isr_and_comes_back(seed: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 3, 3, retention_ms="-1")
        producers = [rig.produce(TOPIC, index, 0.03) for index in range(3)]
        await rig.goes_on(*producers)
        platter = rig.cluster.nodes[2].platter
        capacity = platter.capacity_bytes
        platter.capacity_bytes = platter.used_bytes + FLOOR - 1
        await asyncio.sleep(5)
        await rig.goes_on(*(each for each in producers if rig.view(TOPIC, each.history.partition).leader != 2))
        platter.capacity_bytes = capacity
        await rig.until(lambda: all(len(rig.view(TOPIC, index).isr) == 3 for index in range(3)))
        await rig.goes_on(*producers)
        for user in rig.users:
            user.cancel()
        for producer in producers:
            found = await read_partition(rig.client(), TOPIC, producer.history.partition)
            check_history(producer.history, found)
        assert rig.cluster.lives[2] == 1

    play(scenario, seed, settings={"ottla.free.bytes.floor": str(FLOOR)})


@pytest.mark.parametrize("seed", range(4))
def test_a_full_leader_gives_its_partitions_to_who_has_room(seed: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 3, 3, retention_ms="-1")
        producers = [rig.produce(TOPIC, index, 0.03) for index in range(3)]
        await rig.goes_on(*producers)
        platter = rig.cluster.nodes[2].platter
        capacity = platter.capacity_bytes
        platter.capacity_bytes = platter.used_bytes + FLOOR - 1
        await rig.until(lambda: all(set(rig.view(TOPIC, index).isr) == {1, 3} for index in range(3)), 5)
        await rig.goes_on(*producers)
        platter.capacity_bytes = capacity
        await rig.until(lambda: all(len(rig.view(TOPIC, index).isr) == 3 for index in range(3)))
        await rig.goes_on(*producers)
        for user in rig.users:
            user.cancel()
        for producer in producers:
            check_history(producer.history, await read_partition(rig.client(), TOPIC, producer.history.partition))

    play(scenario, seed, settings={"ottla.free.bytes.floor": str(FLOOR), "replica.lag.time.max.ms": "60000"})


def test_a_full_follower_deletes_what_is_deleted_though_it_cannot_take_what_is_written() -> None:
    """How else would there be room?"""

    async def scenario(rig: Rig) -> None:
        await rig.place(TOPIC, [1, 2, 3], retention_ms="-1")
        producer = rig.produce(TOPIC, 0, 0.03)
        await rig.goes_on(producer)
        broker = rig.server(2).broker
        assert broker is not None
        log = broker.replicas.partitions[TOPIC, 0].log
        await rig.until(lambda: log.high_watermark >= 5)
        rig.cluster.nodes[2].platter.capacity_bytes = rig.cluster.nodes[2].platter.used_bytes + FLOOR - 1
        await rig.until(lambda: 2 not in rig.view(TOPIC, 0).isr)
        request = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 5)])], 1_000)
        answer = await rig.client().call(rig.cluster.brokers[0], request, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        await rig.until(lambda: log.log_start_offset == 5, 5)

    play(scenario, settings={"ottla.free.bytes.floor": str(FLOOR)})


def test_where_all_disks_are_full_the_leadership_goes_round_ever_more_slowly() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 1, 3, retention_ms="-1")
        producer = rig.produce(TOPIC, 0, 0.03)
        await rig.goes_on(producer)
        capacities = {number: node.platter.capacity_bytes for number, node in rig.cluster.nodes.items()}
        for node in rig.cluster.nodes.values():
            node.platter.capacity_bytes = node.platter.used_bytes + FLOOR - 1
        epoch = rig.view(TOPIC, 0).leader_epoch
        await asyncio.sleep(40)
        assert 0 < rig.view(TOPIC, 0).leader_epoch - epoch < 20
        for number, node in rig.cluster.nodes.items():
            node.platter.capacity_bytes = capacities[number]
        await rig.until(lambda: len(rig.view(TOPIC, 0).isr) == 3)
        await rig.goes_on(producer)

    play(scenario, settings={"ottla.free.bytes.floor": str(FLOOR)})


def test_replicas_of_a_topic_that_is_made_while_a_disk_is_full_are_led_by_others_and_made_when_there_is_room() -> None:
    async def scenario(rig: Rig) -> None:
        platter, topic = rig.cluster.nodes[2].platter, "late"
        mend = platter.fail("/data/late-", errno.ENOSPC)
        await rig.topic(topic, 6, 3, retention_ms="-1")
        await rig.until(lambda: all(2 not in rig.view(topic, index).isr for index in range(6)), 5)
        assert all(rig.view(topic, index).leader in (1, 3) for index in range(6))
        mend()
        await rig.until(lambda: all(len(rig.view(topic, index).isr) == 3 for index in range(6)), 10)

    play(scenario, settings={"min.insync.replicas": "1"})


def test_a_topic_that_is_made_while_a_disk_is_full_is_written_to_without_that_replica() -> None:
    """It was in sync when the topic was made, so that it counts as caught up for the lag time, if nobody says better."""

    async def scenario(rig: Rig) -> None:
        rig.cluster.nodes[2].platter.fail("/data/late-", errno.ENOSPC)
        await rig.place("late", [1, 2, 3], retention_ms="-1")
        await rig.until(lambda: 2 not in rig.view("late", 0).isr, 5)
        await rig.goes_on(rig.produce("late", 0, 0.03))

    play(scenario, settings={"min.insync.replicas": "1", "replica.lag.time.max.ms": "60000"})


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("partitions", [6, 80], ids=["at once", "over turns of the loop"])
def test_a_topic_that_is_made_while_all_disks_are_full_is_led_when_there_is_room(seed: int, partitions: int) -> None:
    """Nobody has records of it, so that nobody has to decide who leads: not even of the replica that was the last to say that it is in
    no directory."""

    async def scenario(rig: Rig) -> None:
        mends = [node.platter.fail("/data/late-", errno.ENOSPC) for node in rig.cluster.nodes.values()]
        await rig.topic("late", partitions, 3, retention_ms="-1")
        await rig.until(lambda: all(rig.view("late", index).leader == -1 for index in range(partitions)), 5)
        for mend in mends:
            mend()
        await rig.until(lambda: all(len(rig.view("late", index).isr) == 3 for index in range(partitions)), 10)
        await rig.goes_on(*(rig.produce("late", index, 0.03) for index in range(6)))

    play(scenario, seed)


def test_the_only_replica_of_a_topic_that_is_made_while_the_disk_is_full_leads_when_there_is_room() -> None:
    async def scenario(rig: Rig) -> None:
        mend = rig.cluster.nodes[1].platter.fail("/data/flights-", errno.ENOSPC)
        await rig.topic(TOPIC, 1, 1, retention_ms="-1")
        broker = rig.server(1).broker
        assert broker is not None
        offline = broker.replicas.offline
        await rig.until(lambda: (TOPIC, 0) in offline, 5)
        assert rig.view(TOPIC, 0).leader == 1, "nobody else could lead, and nothing is lost"
        mend()
        await rig.until(lambda: (TOPIC, 0) not in offline, 10)
        assert await rig.produce_once(TOPIC, 0, b"1") == 0

    play(scenario, nodes=1, settings={"min.insync.replicas": "1"})
