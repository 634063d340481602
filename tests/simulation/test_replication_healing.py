"""Replicas whose disks lie: they leave the ISR, cut what is damaged, and fetch it anew. Nobody is given a wrong record."""

import asyncio
from random import Random

import pytest

from ottla.broker.wire.messages.fetch_response import PartitionData
from ottla.log.batch import check_crc, headers
from ottla.log.errors import DamagedLogError
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.client import Client
from ottla.testing.replication.cluster import Cluster, run

RECORDS = 30
SEGMENT = "/data/flights-0/00000000000000000000.log"


async def written(cluster: Cluster, isr: tuple[int, ...] = (1, 2, 3)) -> Client:
    await cluster.start(isr=isr)
    client = await cluster.client()
    for number in range(RECORDS):
        await client.produce(b"value %d" % number)
    return client


def flip(cluster: Cluster, broker: int, offset: int, byte: int = 70) -> None:
    """Damages the batch at ``offset``: each holds one record, and ``byte`` 70 is in it."""
    log = cluster.brokers[broker].log()
    position = log.active.find(offset)[0]
    cluster.brokers[broker].node.platter.flip(SEGMENT, position + byte)


def contents(cluster: Cluster, broker: int) -> bytes:
    log = cluster.brokers[broker].log()
    log.recheck(0, 1 << 20)
    return log.read(0, 1 << 20).data


def all_equal(cluster: Cluster) -> bool:
    try:
        return len({contents(cluster, broker) for broker in (1, 2, 3)}) == 1
    except DamagedLogError:
        return False


def values(answer: PartitionData) -> list[int]:
    view = memoryview(answer.records or b"")
    for position, header in headers(view):
        check_crc(view, header, position)
    return [header.base_offset for _, header in headers(view)]


def find_damage(cluster: Cluster, broker: int) -> None:
    manager, process = cluster.brokers[broker].manager, cluster.brokers[broker].node.process
    assert manager is not None
    assert process is not None
    partition = manager.partitions["flights", 0]
    with pytest.raises(DamagedLogError) as found:
        partition.log.recheck(0, 1 << 20)
    process.run(manager.note_damage, partition, found.value)


def test_a_damaged_follower_leaves_the_isr_and_comes_back_whole() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await written(cluster)
        flip(cluster, 2, 10)
        find_damage(cluster, 2)
        await cluster.until(lambda: cluster.isr() == (1, 3))
        await cluster.until(lambda: set(cluster.isr()) == {1, 2, 3})
        assert all_equal(cluster)
        assert (await client.produce(b"more")).error_code == 0

    run(scenario)


def test_a_damaged_follower_is_cut_at_the_damage_and_not_before_it_left_the_isr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await written(cluster)
        flip(cluster, 2, 10)
        log = cluster.brokers[2].log()
        lowest: list[int] = []
        in_isr: list[bool] = []
        truncate = type(log).truncate_to

        def watched(self: object, offset: int) -> bool:
            if self is log:
                lowest.append(offset)
                in_isr.append(2 in cluster.isr())
            return truncate(self, offset)  # type: ignore[arg-type]  # it is a log

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(log), "truncate_to", watched)
            find_damage(cluster, 2)
            await cluster.until(lambda: cluster.isr() == (1, 3))
            await cluster.until(lambda: set(cluster.isr()) == {1, 2, 3})
        assert lowest == [10]
        assert in_isr == [False]

    run(scenario)


def test_a_damaged_leader_hands_over_and_is_healed_by_its_successor() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await written(cluster)
        flip(cluster, 1, 10)
        find_damage(cluster, 1)
        await cluster.until(lambda: cluster.leader() == 2)
        await cluster.until(lambda: set(cluster.isr()) == {1, 2, 3})
        assert all_equal(cluster)
        assert (await client.produce(b"more")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_followers_notice_what_their_leader_believes_in() -> None:
    """The leader wrote the bytes itself, so it does not check what it sends; who is sent them does."""

    async def scenario(cluster: Cluster) -> None:
        await written(cluster)
        cluster.brokers[3].kill()
        cluster.elect(1, (1, 2))
        client = await cluster.client()
        for number in range(5):
            assert (await client.produce(b"while away %d" % number)).error_code == 0
        flip(cluster, 1, RECORDS + 2)
        await cluster.brokers[3].restart()
        await cluster.until(lambda: cluster.leader() == 2)
        await cluster.until(lambda: set(cluster.isr()) == {1, 2, 3})
        assert all_equal(cluster)

    run(scenario)


def test_the_only_replica_in_sync_serves_what_is_good_and_names_what_is_not() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await written(cluster)
        for broker in (2, 3):
            cluster.brokers[broker].kill()
        cluster.elect(1, (1,))
        flip(cluster, 1, 10)
        find_damage(cluster, 1)
        assert values(await client.fetch(0)) == list(range(10))
        assert (await client.fetch(10)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert values(await client.fetch(11)) == list(range(11, RECORDS))
        await cluster.until(lambda: cluster.damage_reports >= 3, limit_s=30)
        assert cluster.leader() == 1
        assert cluster.brokers[1].log().log_end_offset == RECORDS, "nothing of it is cut while nobody has it"

    run(scenario)


def test_the_only_replica_in_sync_is_healed_once_it_has_company() -> None:
    async def scenario(cluster: Cluster) -> None:
        await written(cluster)
        for broker in (2, 3):
            cluster.brokers[broker].kill()
        cluster.elect(1, (1,))
        flip(cluster, 1, 10)
        find_damage(cluster, 1)
        await cluster.until(lambda: cluster.damage_reports == 2)
        await cluster.brokers[2].restart()
        await cluster.until(lambda: cluster.leader() == 2)
        await cluster.until(lambda: set(cluster.isr()) == {1, 2})
        assert contents(cluster, 1) == contents(cluster, 2)

    run(scenario)


@pytest.mark.parametrize("seed", range(12))
def test_flips_on_one_replica_at_a_time_lose_nothing_and_serve_nothing_wrong(seed: int) -> None:
    rng = Random(seed)

    async def scenario(cluster: Cluster) -> None:
        await written(cluster)
        acknowledged = RECORDS
        for _ in range(3):
            broker, offset = rng.choice((1, 2, 3)), rng.randrange(RECORDS)
            flip(cluster, broker, offset, rng.randrange(21, 70))
            find_damage(cluster, broker)
            client = await cluster.client(cluster.leader())
            answer = await client.fetch(0)
            assert values(answer) == list(range(len(values(answer))))
            await cluster.until(lambda: set(cluster.isr()) == {1, 2, 3} and all_equal(cluster))
            client = await cluster.client(cluster.leader())
            ack = await client.produce(b"after it")
            assert (ack.error_code, ack.base_offset) == (0, acknowledged)
            acknowledged += 1
            await asyncio.sleep(1.1)

    run(scenario, seed)
