"""Consumers: waiting, limits, sessions, epochs, on the simulated network."""

import asyncio

import msgspec
import pytest

from ottla.broker.handlers.fetching import fetch, fetch_read
from ottla.broker.handlers.fetching.fetch_read import Reader
from ottla.broker.handlers.fetching.pending_fetch import PendingFetch
from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.log.batch import read_header
from ottla.log.names import TopicPartition
from ottla.log.records import Record, assemble_batch, encode_batch
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.broker import TOPIC, TOPIC_ID
from ottla.testing.replication.client import fetch_request, offsets
from ottla.testing.replication.cluster import Cluster, run


def test_a_consumer_that_waits_in_an_old_epoch_is_told_of_the_new_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        asked = FetchPartition(0, 1, 0, partition_max_bytes=100)
        body = FetchRequest(max_wait_ms=20_000, min_bytes=1, topics=[FetchTopic(TOPIC, TOPIC_ID, [asked])])
        client.send("Fetch", 12, msgspec.structs.replace(body, session_epoch=-1))
        await asyncio.sleep(0.5)
        start = cluster.loop.time()
        cluster.elect(1, (1, 2, 3))
        response = await client.receive("Fetch", 12, FetchResponse)
        assert response.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert cluster.loop.time() - start < 0.1

    run(scenario)


def test_consumers_do_not_see_what_is_not_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await client.produce(b"value")
        cluster.brokers[3].kill()
        assert (await client.produce(b"unsafe", acks=1)).error_code == 0
        assert offsets((await client.fetch(0)).records) == [0]
        assert (await client.fetch(1, max_wait_ms=100)).records == b""

    run(scenario)


def test_a_consumer_waits_for_records_and_gets_them_when_they_are_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        producer, consumer = await cluster.client(), await cluster.client()
        waiting = asyncio.ensure_future(consumer.fetch(0, max_wait_ms=10_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        start = cluster.loop.time()
        await producer.produce(b"value")
        assert offsets((await waiting).records) == [0]
        assert cluster.loop.time() - start < 0.5

    run(scenario)


def test_a_consumer_that_waited_long_enough_gets_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        consumer = await cluster.client()
        start = cluster.loop.time()
        answer = await consumer.fetch(0, max_wait_ms=700)
        assert (answer.error_code, answer.records) == (0, b"")
        assert 0.7 <= cluster.loop.time() - start < 0.75

    run(scenario)


def test_followers_with_nothing_to_fetch_are_answered_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle leader wakes once for all of them. Their wait is never over late, and a consumer's is none of it (the test above)."""
    answered_ms: list[int] = []
    expire = PendingFetch.expire

    def noted(self: PendingFetch) -> None:
        answered_ms.append(self._manager.timers.now_ms())
        expire(self)

    monkeypatch.setattr(PendingFetch, "expire", noted)

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await asyncio.sleep(1)
        answered_ms.clear()
        await asyncio.sleep(5)

    run(scenario)
    beats_ms = answered_ms[::2]
    assert answered_ms[1::2] == beats_ms
    assert {each % 500 for each in beats_ms} == {0}
    assert len(beats_ms) == 10


def test_min_bytes_are_waited_for() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        producer, consumer = await cluster.client(), await cluster.client()
        waiting = asyncio.ensure_future(consumer.fetch(0, max_wait_ms=10_000, min_bytes=1_000))
        for _ in range(3):
            await producer.produce(b"x" * 400, acks=1)
            await asyncio.sleep(0.1)
        assert offsets((await waiting).records) == [0, 1, 2]

    run(scenario)


def test_the_first_batch_comes_even_if_it_is_over_the_limit() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        for _ in range(2):
            await client.produce(b"x" * 5_000, acks=1)
        assert offsets((await client.fetch(0, max_bytes=100)).records) == [0]
        assert offsets((await client.fetch(0, partition_bytes=100)).records) == [0]

    run(scenario)


def test_an_offset_out_of_range_is_an_error() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        assert (await client.fetch(5, max_wait_ms=1_000)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario)


def test_clients_too_old_to_know_of_failed_disks_are_told_to_look_for_the_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        broker = cluster.brokers[1]
        manager = broker.manager
        assert manager is not None
        broker.run(lambda: manager.directory_failed([TopicPartition(TOPIC, 0)]))
        for version, error in ((5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)):
            assert (await client.fetch(0, version=version)).error_code == error
        for version, error in ((3, ErrorCode.NOT_LEADER_OR_FOLLOWER), (4, ErrorCode.KAFKA_STORAGE_ERROR)):
            assert (await client.produce(b"value", acks=1, version=version)).error_code == error

    run(scenario)


def test_another_leader_epoch_is_an_error() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        for epoch, error in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH), (1, 0)):
            asked = FetchPartition(0, epoch, 0, partition_max_bytes=100)
            client.send("Fetch", 12, FetchRequest(topics=[FetchTopic(TOPIC, TOPIC_ID, [asked])], session_epoch=-1))
            response = await client.receive("Fetch", 12, FetchResponse)
            assert response.responses[0].partitions[0].error_code == error

    run(scenario)


def test_a_session_answers_with_what_changed_only() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=3)
        client = await cluster.client()
        client.send("Fetch", 13, fetch_request([(0, 0), (1, 0), (2, 0)], session_epoch=0))
        opened = await client.receive("Fetch", 13, FetchResponse)
        assert [each.partition_index for each in opened.responses[0].partitions] == [0, 1, 2]
        assert opened.session_id != 0
        await client.produce(b"value", acks=1, index=1)
        client.send("Fetch", 13, fetch_request([], session_id=opened.session_id, session_epoch=1))
        second = await client.receive("Fetch", 13, FetchResponse)
        assert [each.partition_index for each in second.responses[0].partitions] == [1]
        client.send("Fetch", 13, fetch_request([(1, 1)], session_id=opened.session_id, session_epoch=2))
        third = await client.receive("Fetch", 13, FetchResponse)
        assert third.responses == []

    run(scenario)


def test_a_parked_session_wakes_for_a_partition_the_request_did_not_name() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=2)
        client, producer = await cluster.client(), await cluster.client()
        client.send("Fetch", 13, fetch_request([(0, 0), (1, 0)], session_epoch=0))
        opened = await client.receive("Fetch", 13, FetchResponse)
        client.send("Fetch", 13, fetch_request([], session_id=opened.session_id, session_epoch=1, max_wait_ms=20_000))
        await asyncio.sleep(1)
        await producer.produce(b"value", acks=1, index=1)
        woken = await client.receive("Fetch", 13, FetchResponse)
        assert [each.partition_index for each in woken.responses[0].partitions] == [1]

    run(scenario)


def test_a_forgotten_partition_is_answered_no_more() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=2)
        client = await cluster.client()
        client.send("Fetch", 13, fetch_request([(0, 0), (1, 0)], session_epoch=0))
        opened = await client.receive("Fetch", 13, FetchResponse)
        forgotten = [ForgottenTopic(TOPIC, TOPIC_ID, [1])]
        body = fetch_request([], session_id=opened.session_id, session_epoch=1, forgotten_topics_data=forgotten)
        client.send("Fetch", 13, body)
        await client.receive("Fetch", 13, FetchResponse)
        await client.produce(b"value", acks=1, index=1)
        client.send("Fetch", 13, fetch_request([], session_id=opened.session_id, session_epoch=2))
        assert (await client.receive("Fetch", 13, FetchResponse)).responses == []

    run(scenario)


def test_a_request_that_does_not_wait_for_the_one_before_gets_both_answers() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=2)
        client = await cluster.client()
        client.send("Fetch", 13, fetch_request([(0, 0)], session_epoch=0))
        opened = await client.receive("Fetch", 13, FetchResponse)
        for epoch in (1, 2):
            body = fetch_request([], session_id=opened.session_id, session_epoch=epoch, max_wait_ms=5_000)
            client.send("Fetch", 13, body)
        start = cluster.loop.time()
        await client.receive("Fetch", 13, FetchResponse)
        assert cluster.loop.time() - start < 1
        await client.receive("Fetch", 13, FetchResponse)
        assert 4.5 < cluster.loop.time() - start < 5.5

    run(scenario)


def test_a_closed_connection_leaves_nothing_behind() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        client.send("Fetch", 12, fetch_request([(0, 0)], max_wait_ms=60_000))
        await asyncio.sleep(0.1)
        manager = cluster.brokers[1].manager
        assert manager is not None
        partition = manager.partitions[TOPIC_ID, 0]
        assert len(partition.watches.commits) == 1
        client.close()
        await asyncio.sleep(0.1)
        assert not partition.watches.commits

    run(scenario)


def test_consumers_may_read_from_a_follower_what_it_knows_to_be_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        producer, consumer = await cluster.client(), await cluster.client(2)
        await producer.produce(b"value")
        answer = await consumer.fetch(0, max_wait_ms=5_000)
        assert offsets(answer.records) == [0]
        old = await consumer.fetch(0, version=10)
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def emptied(base_offset: int, last_offset: int) -> bytearray:
    """A batch of which compaction left nothing but its bounds."""
    sound = encode_batch([Record(base_offset, 1_000, b"k", b"")], base_offset=base_offset, leader_epoch=1)
    header = read_header(sound)._replace(records_count=0, last_offset_delta=last_offset - base_offset)
    return assemble_batch(header, b"")


def test_a_reader_is_led_past_batches_that_compaction_emptied() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), cleanup_policy="compact")
        client = await cluster.client()
        log = cluster.brokers[1].log()
        whole = encode_batch([Record(10, 1_000, b"k", b"value")], base_offset=10, leader_epoch=1)
        for batch in (emptied(0, 4), emptied(5, 9), whole, emptied(11, 14), emptied(15, 19)):
            log.append_own(batch, 1, 0)
        log.set_high_watermark(20)
        for start, size, found in ((0, 1, [10]), (0, 140, [10, 11]), (0, 1 << 20, [0, 5, 10, 11, 15]), (6, 1, [10])):
            answer = await client.fetch(start, partition_bytes=size)
            assert (answer.error_code, offsets(answer.records)) == (0, found)
        manager = cluster.brokers[1].manager
        assert manager is not None
        wanted = (0, -1, 0, -1, -1, 1 << 20, b"", -1)
        for size, places in (
            (61, []),
            (100, [10]),
            (140, [10, 11]),
        ):  # as a partition that is not the first in its answer
            part, more = fetch_read.read(manager.partitions[TOPIC, 0], wanted, Reader(12), size, minimum_one=False)
            assert (offsets(part[7]), more) == (places, True)
        for start in (11, 15):  # to the end there is nothing else, and a reader has to come to the end
            assert offsets((await client.fetch(start, partition_bytes=1)).records) == [15]

    run(scenario)


def test_answers_are_small_while_clients_hold_all_the_memory_there_is() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for _ in range(20):
            await client.produce(bytes(20_000))
        budget = cluster.brokers[1].network.budget
        budget.bytes_max = 0
        budget.add(1)
        short = await client.fetch(0, max_wait_ms=10_000, min_bytes=300_000)
        budget.add(-1)
        assert 1 <= len(offsets(short.records)) <= 4
        assert len(offsets((await client.fetch(0)).records)) == 20

    run(scenario)


def test_one_answer_holds_what_a_turn_of_the_loop_may_read_and_the_next_ones_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "ANSWER_BYTES", 2_500)

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), partitions=4)
        client = await cluster.client()
        for index in range(4):
            await client.produce(bytes(1_000), acks=1, index=index)
        client.send("Fetch", 13, fetch_request([(index, 0) for index in range(4)], session_epoch=0, min_bytes=1))
        opened = await client.receive("Fetch", 13, FetchResponse)
        first = [each.partition_index for each in opened.responses[0].partitions if each.records]
        assert first == [0, 1]
        body = fetch_request([(0, 1), (1, 1)], session_id=opened.session_id, session_epoch=1)
        client.send("Fetch", 13, body)
        second = await client.receive("Fetch", 13, FetchResponse)
        assert [each.partition_index for each in second.responses[0].partitions if each.records] == [2, 3]
        body = fetch_request([(index, 0) for index in range(4)], session_epoch=-1, min_bytes=4_000)
        client.send("Fetch", 13, body)
        all_at_once = await client.receive("Fetch", 13, FetchResponse)
        assert sum(len(each.records or b"") for each in all_at_once.responses[0].partitions) > 4_000

    run(scenario)
