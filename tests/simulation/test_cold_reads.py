"""Fetches of what is not in the page cache: a thread waits for the disk, the loop does not."""

import asyncio
import errno

import pytest

from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.disk import SimulatedFile
from ottla.testing.replication.client import Client, fetch_request, offsets
from ottla.testing.replication.cluster import Cluster, run

VALUE = b"v" * 500_000  # two to a segment
COUNT = 10


async def fill(cluster: Cluster, *, partitions: int = 1) -> Client:
    """Ten batches over five segments of each partition; all but the newest are cold from now on."""
    await cluster.start(1, isr=(1,), partitions=partitions, segment_bytes="1048576", retention_ms="-1")
    client = await cluster.client()
    for index in range(partitions):
        for _ in range(COUNT):
            assert (await client.produce(VALUE, index=index)).error_code == 0
    chill(cluster)
    return client


def chill(cluster: Cluster) -> None:
    cluster.brokers[1].node.platter.cold["/data"] = None


def slow_down(cluster: Cluster) -> None:
    """Threads take up to seconds."""
    cluster.brokers[1].node.slowness = 10_000


def test_cold_records_come_and_nobody_else_waits() -> None:
    async def scenario(cluster: Cluster) -> None:
        client, other = await fill(cluster), await cluster.client()
        slow_down(cluster)
        waiting = asyncio.ensure_future(client.fetch(0, max_wait_ms=10))
        await asyncio.sleep(0.005)
        start = cluster.loop.time()
        assert await other.latest() == (0, COUNT)
        assert cluster.loop.time() - start < 0.05
        assert not waiting.done()
        assert offsets((await waiting).records) == [0, 1]
        assert cluster.loop.time() - start > 0.05

    run(scenario)


def test_all_of_a_cold_log_is_read_in_order() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await fill(cluster)
        offset = 0
        while offset < COUNT:
            chill(cluster)
            found = offsets((await client.fetch(offset, max_wait_ms=500)).records)
            assert found[0] == offset
            offset = found[-1] + 1

    run(scenario)


def test_what_was_written_last_is_read_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await fill(cluster)
        slow_down(cluster)
        start = cluster.loop.time()
        assert offsets((await client.fetch(COUNT - 1)).records) == [COUNT - 1]
        assert cluster.loop.time() - start < 0.05

    def is_cached(*_: object) -> bool:
        raise AssertionError("it was asked")

    monkeypatch.setattr(SimulatedFile, "is_cached", is_cached)
    run(scenario)


def test_several_cold_partitions_are_waited_for_together() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await fill(cluster, partitions=3)
        client.send("Fetch", 12, fetch_request([(0, 0), (1, 2), (2, 9)], max_wait_ms=500))
        response = await client.receive("Fetch", 12, FetchResponse)
        found = {each.partition_index: offsets(each.records) for each in response.responses[0].partitions}
        assert found == {0: [0, 1], 1: [2, 3], 2: [9]}

    run(scenario)


def test_a_consumer_that_leaves_meanwhile_is_not_answered() -> None:
    async def scenario(cluster: Cluster) -> None:
        client, other = await fill(cluster), await cluster.client()
        slow_down(cluster)
        client.send("Fetch", 12, fetch_request([(0, 0)]))
        await asyncio.sleep(0.005)
        client.close()
        assert offsets((await other.fetch(0)).records) == [0, 1]
        await asyncio.sleep(20)
        assert cluster.loop.unhandled == []

    run(scenario)


def test_news_during_the_wait_does_not_answer_twice() -> None:
    async def scenario(cluster: Cluster) -> None:
        client, other = await fill(cluster, partitions=2), await cluster.client()
        client.send("Fetch", 12, fetch_request([(0, 0), (1, COUNT)], session_epoch=0, max_wait_ms=10_000))
        response = await client.receive("Fetch", 12, FetchResponse)
        assert response.session_id
        chill(cluster)
        slow_down(cluster)
        client.send(
            "Fetch", 12,
            fetch_request([(0, 2)], session_id=response.session_id, session_epoch=1, max_wait_ms=10_000),
        )  # fmt: skip
        await asyncio.sleep(0.005)
        cluster.brokers[1].node.slowness = 1
        assert (await other.produce(VALUE, index=1)).error_code == 0
        response = await client.receive("Fetch", 12, FetchResponse)
        found = {each.partition_index: offsets(each.records) for each in response.responses[0].partitions}
        assert found[0] == [2, 3]
        await asyncio.sleep(20)
        assert cluster.loop.unhandled == []

    run(scenario)


def test_a_client_that_does_not_wait_for_its_answer_gets_it_all_the_same() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await fill(cluster)
        client.send("Fetch", 12, fetch_request([(0, COUNT)], session_epoch=0))
        session = (await client.receive("Fetch", 12, FetchResponse)).session_id
        slow_down(cluster)
        for epoch in (1, 2):
            client.send("Fetch", 12, fetch_request([(0, 2 * epoch)], session_id=session, session_epoch=epoch))
        assert (await client.receive("Fetch", 12, FetchResponse)).responses == []  # what is at hand: nothing yet
        (topic,) = (await client.receive("Fetch", 12, FetchResponse)).responses
        assert offsets(topic.partitions[0].records) == [4, 5]

    run(scenario)


def test_a_wait_that_is_over_does_not_make_the_loop_read_from_the_disk() -> None:
    async def scenario(cluster: Cluster) -> None:
        client, other = await fill(cluster), await cluster.client()
        asked = fetch_request([(0, 8)], max_wait_ms=1_000, min_bytes=50 << 20, partition_bytes=60 << 20)
        client.send("Fetch", 12, asked)
        await asyncio.sleep(0.5)
        assert (await other.produce(VALUE)).error_code == 0  # another segment: the one of offset 8 is closed
        assert (await other.produce(VALUE)).error_code == 0
        chill(cluster)
        slow_down(cluster)
        await asyncio.sleep(0.45)
        assert await other.latest() == (0, COUNT + 2)
        start = cluster.loop.time()
        (topic,) = (await client.receive("Fetch", 12, FetchResponse)).responses
        assert offsets(topic.partitions[0].records) == [8, 9]
        assert cluster.loop.time() - start > 0.1  # the thread's time
        assert not cluster.brokers[1].node.platter.cold  # it was not read before a thread had

    run(scenario)


def test_a_disk_that_fails_while_it_is_waited_for_is_told() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await fill(cluster)
        cluster.brokers[1].node.platter.fail("/data/flights-0", errno.EIO, ("read",))
        assert (await client.fetch(0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)
