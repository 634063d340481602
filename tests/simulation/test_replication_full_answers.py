"""Answers that are full: what found no room in one comes in the next, for followers and for every kind of consumer."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ottla.broker.handlers.fetching import fetch_read
from ottla.broker.wire.messages.fetch_request import FetchRequest
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.broker import TOPIC
from ottla.testing.replication.client import Client, batch, fetch_request, offsets
from ottla.testing.replication.cluster import Cluster, run

VALUE = b"x" * 9_000
ROOM = 30_000  # for three of them


async def fill(cluster: Cluster, indexes: Sequence[int], value: bytes = VALUE) -> Client:
    client = await cluster.client()
    for index in indexes:
        assert (await client.produce(value, index=index)).error_code == 0
    return client


class Consumer:
    """Keeps a fetch session as the Java client does: an incremental request names what moved."""

    def __init__(self, client: Client, count: int, **options: Any) -> None:
        self._client = client
        self._options = options
        self._named = [(index, 0) for index in range(count)]
        self._session = self._epoch = 0

    async def poll(self) -> dict[int, list[int]]:
        body = fetch_request(self._named, session_id=self._session, session_epoch=self._epoch, **self._options)
        self._client.send("Fetch", 12, body)
        response = await self._client.receive("Fetch", 12, FetchResponse)
        assert response.error_code == 0
        self._session, self._epoch = response.session_id, self._epoch + 1
        got = {
            each.partition_index: offsets(each.records)
            for topic in response.responses
            for each in topic.partitions
            if each.records
        }
        self._named = [(index, found[-1] + 1) for index, found in got.items()]
        return got


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_session_brings_all_partitions_with_a_backlog_in_turn(isolation: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=10)
        consumer = Consumer(
            await fill(cluster, range(10)), 10, max_bytes=ROOM, max_wait_ms=5_000, isolation_level=isolation
        )
        start = cluster.loop.time()
        assert [list(await consumer.poll()) for _ in range(4)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
        assert cluster.loop.time() - start < 0.5

    run(scenario)


def test_partitions_that_go_on_having_records_do_not_keep_others_from_their_turn() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=4)
        for _ in range(3):
            await fill(cluster, range(4))
        consumer = Consumer(await cluster.client(), 4, max_bytes=2 * 9_500, partition_bytes=9_500)
        assert [list(await consumer.poll()) for _ in range(4)] == [[0, 1], [2, 3], [0, 1], [2, 3]]

    run(scenario)


def test_a_follower_gets_a_backlog_that_no_answer_holds() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1, 2), partitions=30)
        await asyncio.sleep(0.5)
        cluster.brokers[3].kill()
        for index in range(30):
            cluster.elect(1, (1, 2), index)
        await fill(cluster, range(30))
        await cluster.brokers[3].restart()
        assert await cluster.until(lambda: all(3 in cluster.isr(index) for index in range(30))) < 2

    run(scenario, replica_fetch_response_max_bytes=str(ROOM))


@pytest.mark.parametrize("min_bytes", [1, 1 << 20])
@pytest.mark.parametrize(
    ("index", "epoch", "error"),
    [
        pytest.param(2, 2, ErrorCode.UNKNOWN_LEADER_EPOCH, id="elected a moment ago"),
        pytest.param(3, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="created a moment ago"),
    ],
)
def test_a_follower_that_knew_before_its_leader_did_hears_so_in_an_answer_that_is_full(
    index: int, epoch: int, error: ErrorCode, min_bytes: int
) -> None:
    """It names a partition once: were it told nothing, it would wait for records, and its leader for a first fetch."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(2, isr=(1,), partitions=3)
        cluster.brokers[2].kill()
        follower = await fill(cluster, (0, 1))

        async def fetch(body: FetchRequest) -> FetchResponse:
            follower.send("Fetch", 12, body)
            return await follower.receive("Fetch", 12, FetchResponse)

        limits = {"replica_id": 2, "max_bytes": len(VALUE) + 500, "max_wait_ms": 20_000, "min_bytes": min_bytes}
        session = (await fetch(fetch_request([(0, 0), (1, 0)], session_epoch=0, **limits))).session_id
        body = fetch_request([(index, 0)], session_id=session, session_epoch=1, **limits)
        body.topics[0].partitions[0].current_leader_epoch = epoch
        (topic,) = (await fetch(body)).responses
        told = {each.partition_index: (each.error_code, bool(each.records)) for each in topic.partitions}
        assert told == {index: (error, False), 1: (0, True)}

    run(scenario)


def test_two_batches_larger_than_a_partitions_limit_are_soon_replicated() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=2)
        client = await fill(cluster, (0, 1), b"small")
        await asyncio.sleep(1)
        large = [PartitionProduceData(index, bytes(batch(VALUE * 2))) for index in (0, 1)]
        start = cluster.loop.time()
        body = ProduceRequest(None, -1, 60_000, [TopicProduceData(TOPIC, partition_data=large)])
        client.send("Produce", 9, body)
        answer = await client.receive("Produce", 9, ProduceResponse)
        assert [each.error_code for each in answer.responses[0].partition_responses] == [0, 0]
        assert cluster.loop.time() - start < 0.2

    run(scenario, replica_fetch_max_bytes="10000")


def test_a_follower_that_is_given_no_session_gets_everything_and_asks_no_faster_than_it_waits() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1,), partitions=12)
        for _ in range(3):
            await fill(cluster, range(12))
        await cluster.until(lambda: all(len(cluster.isr(index)) == 3 for index in range(12)), 5)
        reads.clear()
        await asyncio.sleep(10)
        assert len(reads) < 600  # 12 partitions, two followers, ten requests of each, looked at twice: 480

    reads: list[object] = []
    plain = fetch_read.read

    def read(*arguments: Any, **options: Any) -> Any:
        reads.append(None)
        return plain(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_read, "read", read)
        run(
            scenario,
            max_incremental_fetch_session_cache_slots="0",
            replica_fetch_response_max_bytes=str(ROOM),
            replica_fetch_max_bytes="10000",
            replica_fetch_wait_max_ms="1000",
        )


def test_a_consumer_without_a_session_is_told_of_every_partition_and_gets_what_it_names_first() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=5)
        client = await fill(cluster, range(5))
        order = list(range(5))
        for _ in range(5):
            client.send("Fetch", 12, fetch_request([(index, 0) for index in order], max_bytes=ROOM))
            (topic,) = (await client.receive("Fetch", 12, FetchResponse)).responses
            assert [each.partition_index for each in topic.partitions] == order
            assert [bool(each.records) for each in topic.partitions] == [True, True, True, False, False]
            order = [*order[1:], order[0]]

    run(scenario)


def test_a_small_batch_still_fits_behind_one_that_does_not() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=3)
        client = await fill(cluster, (0, 1))
        await fill(cluster, (2,), b"small")
        client.send("Fetch", 12, fetch_request([(0, 0), (1, 0), (2, 0)], max_bytes=10_000))
        (topic,) = (await client.receive("Fetch", 12, FetchResponse)).responses
        assert [bool(each.records) for each in topic.partitions] == [True, False, True]

    run(scenario)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_bytes": 15_000, "min_bytes": 15_000},  # one of them fits: there will never be 15,000 bytes in the answer
        {"max_bytes": 15_000, "min_bytes": 50_000},
        {"partition_bytes": 9_500, "min_bytes": 30_000},
        {"max_bytes": 0, "min_bytes": 1},
    ],
)
@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_an_answer_that_cannot_grow_is_not_waited_for(limits: dict[str, int], session_epoch: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=2)
        for _ in range(2):
            client = await fill(cluster, range(2))
        start = cluster.loop.time()
        body = fetch_request([(0, 0), (1, 0)], session_epoch=session_epoch, max_wait_ms=20_000, **limits)
        client.send("Fetch", 12, body)
        (topic,) = (await client.receive("Fetch", 12, FetchResponse)).responses
        assert topic.partitions[0].records
        assert cluster.loop.time() - start < 0.5

    run(scenario)


def test_min_bytes_are_not_waited_for_at_the_end_of_a_segment() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), segment_bytes="1048576")
        client = await cluster.client()
        for size in (600_000, 600_000, 600_000):
            assert (await client.produce(b"x" * size)).error_code == 0
        start = cluster.loop.time()
        answer = await client.fetch(0, min_bytes=1_000_000, max_wait_ms=20_000, partition_bytes=5 << 20)
        assert offsets(answer.records) == [0]
        assert cluster.loop.time() - start < 0.5

    run(scenario)


def test_a_fetch_costs_neither_idle_partitions_nor_those_that_find_no_room() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=200)
        consumer = Consumer(await fill(cluster, range(100)), 200, max_bytes=ROOM)
        await consumer.poll()
        for _ in range(3):
            reads.clear()
            assert len(await consumer.poll()) == 3
            assert len(reads) <= 8  # three served, one without room, and what is asked for anew

    reads: list[object] = []
    plain = fetch_read.read

    def read(*arguments: Any, **options: Any) -> Any:
        reads.append(None)
        return plain(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_read, "read", read)
        run(scenario)
