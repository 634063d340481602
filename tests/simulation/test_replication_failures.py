"""What fails while a follower takes an answer in: it costs that partition a moment, and the others nothing."""

import asyncio
import errno
import logging
from typing import Any

import pytest

from ottla.broker.links.connection import LinkConnection
from ottla.broker.links.leader import LinkedLeader
from ottla.broker.replication.decisions.follower import FetchState
from ottla.broker.replication.deleting import delete_records
from ottla.log.log import Log
from ottla.testing.replication.broker import TOPIC_ID, Broker
from ottla.testing.replication.cluster import Cluster, run

MANY = 100
"""More than a link has room for questions."""


async def leave_out(cluster: Cluster, broker: Broker, *, isr: tuple[int, ...] = (1, 2)) -> None:
    """It is down, and out of the ISR."""
    await asyncio.sleep(0.3)
    broker.kill()
    cluster.elect(1, isr)


def test_a_follower_can_begin_where_records_were_deleted_within_a_batch() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1, 2))
        await leave_out(cluster, cluster.brokers[3])
        client = await cluster.client()
        await client.produce(*[b"%d" % number for number in range(10)])
        manager = cluster.brokers[1].manager
        assert manager is not None
        delete_records(manager.partitions[TOPIC_ID, 0], 5)
        await client.produce(b"more")
        await cluster.brokers[3].restart()
        await cluster.until(lambda: 3 in cluster.isr(), limit_s=1)
        leader, follower = cluster.brokers[1].log(), cluster.brokers[3].log()
        assert (follower.log_start_offset, follower.log_end_offset) == (5, 11)
        assert follower.read(5, 1 << 20).data == leader.read(5, 1 << 20).data
        assert follower.epochs.entries() == leader.epochs.entries()
        await client.produce(b"and more")
        for each in (leader, follower):
            assert each.log_end_offset == 12

    run(scenario)


def test_an_answer_that_was_half_written_is_gone_on_with_when_there_is_room() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(segment_bytes=str(1 << 20))
        await (await cluster.client()).produce(b"x" * (500 << 10))
        follower = cluster.brokers[3]
        await leave_out(cluster, follower)
        cluster.set_topic(segment_bytes=str(8 << 20))  # the leader fills one segment, the follower several
        client = await cluster.client()
        for _ in range(5):
            assert (await client.produce(b"x" * (300 << 10))).error_code == 0
        cluster.set_topic(segment_bytes=str(1 << 20))
        repair = follower.node.platter.fail("/data/flights-0/", errno.ENOSPC, ("create",))
        await follower.restart()
        await cluster.until(lambda: follower.log().log_end_offset == 2)
        await asyncio.sleep(5)
        repair()
        follower.log().root.set_full(False)  # as LogManager.check_space does
        assert await cluster.until(lambda: 3 in cluster.isr()) < 1.5

    run(scenario)


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no descriptor"), ValueError("a mistake of ours")])
def test_what_fails_for_one_partition_leaves_the_link_and_the_others_alone(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    links: list[LinkConnection] = []
    broken = True
    append, connected = Log.append_as_follower, LinkConnection.connection_made

    def fail(log: Log, *arguments: Any) -> Any:
        if broken and log.partition.partition == 1:
            raise error
        return append(log, *arguments)

    def note(link: LinkConnection, *arguments: Any) -> None:
        links.append(link)
        connected(link, *arguments)

    async def scenario(cluster: Cluster) -> None:
        nonlocal broken
        await cluster.start(2, isr=(1,), partitions=3)
        client = await cluster.client()
        for index in range(3):
            await client.produce(b"value", index=index, acks=1)
        await cluster.until(lambda: len(cluster.isr(0)) == len(cluster.isr(2)) == 2, 2)
        await asyncio.sleep(20)
        assert len(links) == 1
        assert len([each for each in caplog.records if "Could not replicate" in each.message]) < 30
        broken = False
        await cluster.until(lambda: cluster.brokers[2].log(1).log_end_offset == 1, 2)

    monkeypatch.setattr(Log, "append_as_follower", fail)
    monkeypatch.setattr(LinkConnection, "connection_made", note)
    caplog.set_level(logging.WARNING)
    run(scenario)


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no descriptor"), ValueError("a mistake of ours")])
def test_a_replica_that_cannot_be_hosted_does_not_keep_the_others_from_their_roles(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Log.open

    def fail(*arguments: Any, **options: Any) -> Log:
        if arguments[1].endswith("-0"):
            raise error
        return opened(*arguments, **options)

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=2)
        assert (await (await cluster.client()).produce(b"value", index=1)).error_code == 0
        manager = cluster.brokers[1].manager
        assert manager is not None
        assert list(manager.offline) == [(TOPIC_ID, 0), ("flights", 0)]

    monkeypatch.setattr(Log, "open", fail)
    run(scenario)


def test_settings_that_one_replica_cannot_take_are_taken_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    configure = Log.configure

    def fail(log: Log, *arguments: Any) -> None:
        if log.partition.partition == 0:
            raise OSError(errno.EIO, "a disk's end")
        configure(log, *arguments)

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=2)
        cluster.set_topic(max_message_bytes="12345")
        assert cluster.brokers[1].log(1).config.max_message_bytes == 12345

    monkeypatch.setattr(Log, "configure", fail)
    run(scenario)


def test_many_that_are_out_of_range_are_asked_for_so_many_at_a_time_and_soon() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(2, isr=(1,), partitions=MANY)
        follower = cluster.brokers[2]
        await asyncio.sleep(0.3)
        follower.kill()
        for index in range(MANY):
            cluster.elect(1, (1,), index)
        client = await cluster.client()
        manager = cluster.brokers[1].manager
        assert manager is not None
        for index in range(MANY):
            await client.produce(b"value", index=index, acks=1)
            delete_records(manager.partitions[TOPIC_ID, index], 1)
        await follower.restart()
        took = await cluster.until(lambda: all(2 in cluster.isr(index) for index in range(MANY)), limit_s=3)
        assert took < 0.5

    run(scenario)


def test_a_leader_that_moves_while_it_is_asked_for_its_offsets_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    find_offsets, asked = LinkedLeader.find_offsets, 0

    def find(*arguments: Any) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:  # the first question is on its way for as long as it takes
            find_offsets(*arguments)

    monkeypatch.setattr(LinkedLeader, "find_offsets", find)

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(2, isr=(1,))
        follower = cluster.brokers[2]
        await leave_out(cluster, follower, isr=(1,))
        client = await cluster.client()
        await client.produce(b"value")
        manager = cluster.brokers[1].manager
        assert manager is not None
        delete_records(manager.partitions[TOPIC_ID, 0], 1)
        await follower.restart()
        assert follower.manager is not None
        partition = follower.manager.partitions[TOPIC_ID, 0]
        assert partition.follower is not None
        state = partition.follower
        await cluster.until(lambda: state.state is FetchState.FINDING_OFFSETS)
        for port in (1, 9092):
            cluster.tell(cluster.registration(1, port=port))
        await cluster.until(lambda: 2 in cluster.isr(), limit_s=3)

    run(scenario)
