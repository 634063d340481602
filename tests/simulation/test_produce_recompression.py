"""Topics with a ``compression.type`` of their own: large batches go through a thread, and nothing is overtaken."""

import asyncio
from typing import Any

import pytest

from ottla.broker.replication.appending import must_prepare
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.log.batch import BatchHeader, headers
from ottla.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from ottla.log.log import Log
from ottla.log.records import decode_records
from ottla.log.results import AppendInfo
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.broker import TOPIC
from ottla.testing.replication.client import Client, batch
from ottla.testing.replication.cluster import Cluster, run

LARGE = b"large " * 10_000
CODECS = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}


async def answers(client: Client, count: int) -> list[tuple[int, int]]:
    """(error, base offset) of the next answers."""
    found = []
    for _ in range(count):
        response = await client.receive("Produce", 9, ProduceResponse)
        each = response.responses[0].partition_responses[0]
        found.append((each.error_code, each.base_offset))
    return found


async def begun(cluster: Cluster) -> None:
    """Waits until a batch is with the thread."""
    broker = cluster.brokers[1]
    assert broker.manager is not None
    partition = broker.manager.partitions[TOPIC, 0]
    await cluster.until(lambda: must_prepare(partition, memoryview(b"")))


def stored(log: Log) -> list[tuple[BatchHeader, list[bytes | None]]]:
    data = log.read(0, 1 << 30).data
    return [
        (header, [record.value for record in decode_records(data[position : position + header.size_bytes], header)])
        for position, header in headers(data)
    ]


def values(log: Log) -> list[bytes | None]:
    return [value for _, found in stored(log) for value in found]


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("source", CODECS.values())
def test_a_batch_is_stored_in_the_topics_codec(target: str, source: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), compression_type=target)
        client = await cluster.client()
        assert (await client.produce(LARGE, b"small", compression=source)).error_code == 0
        ((header, found),) = stored(cluster.brokers[1].log())
        assert (header.compression, found) == (CODECS[target], [LARGE, b"small"])

    run(scenario)


def test_small_batches_do_not_overtake_a_large_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(compression_type="gzip")
        client, other = await cluster.client(), await cluster.client()
        for base, acks in ((0, -1), (4, 1)):
            client.send_produce(LARGE, acks=acks)
            client.send_produce(b"first", acks=acks)
            client.send_produce(b"second", acks=acks)
            await asyncio.sleep(0.0005)
            other.send_produce(b"other", acks=acks)
            assert await answers(client, 3) == [(0, base), (0, base + 1), (0, base + 2)]
            assert await answers(other, 1) == [(0, base + 3)]
        assert values(cluster.brokers[1].log()) == [LARGE, b"first", b"second", b"other"] * 2
        assert {header.compression for header, _ in stored(cluster.brokers[1].log())} == {GZIP}

    run(scenario)


def test_sequences_are_checked_in_the_order_of_arrival() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(compression_type="zstd")
        client = await cluster.client()
        for sequence, value in enumerate([LARGE, b"1", LARGE, b"3", LARGE]):
            client.send_produce(value, producer_id=7, producer_epoch=0, base_sequence=sequence)
        client.send_produce(LARGE, producer_id=7, producer_epoch=0, base_sequence=9)
        client.send_produce(LARGE, producer_id=7, producer_epoch=0, base_sequence=2)
        assert await answers(client, 7) == [
            *((0, offset) for offset in range(5)),
            (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
            (0, 2),  # repeated: answered with its old offset
        ]
        found = stored(cluster.brokers[1].log())
        assert [header.base_sequence for header, _ in found] == [0, 1, 2, 3, 4]
        assert all(header.compression == ZSTD for header, _ in found)

    run(scenario)


def test_acks_zero_keeps_the_order_too() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), compression_type="lz4")
        client = await cluster.client()
        client.send_produce(LARGE, acks=0)
        client.send_produce(b"small", acks=0)
        assert (await client.produce(b"loud", acks=1)).base_offset == 2
        assert values(cluster.brokers[1].log()) == [LARGE, b"small", b"loud"]

    run(scenario)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_small_batch_that_inflates_much_is_not_looked_at_on_the_loop(codec: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client, other = await cluster.client(), await cluster.client()
        cluster.brokers[1].node.slowness = 1_000
        client.send_produce(bytes(300_000), compression=codec)
        await begun(cluster)
        client.send_produce(b"behind it")
        assert await answers(client, 2) == [(0, 0), (0, 1)]
        assert (await other.produce(b"small", compression=codec)).base_offset == 2
        assert values(cluster.brokers[1].log()) == [bytes(300_000), b"behind it", b"small"]

    run(scenario)


def test_one_bad_batch_costs_itself_only() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), compression_type="lz4", max_message_bytes="100000")
        client = await cluster.client()
        damaged = batch(LARGE)
        damaged[-1] ^= 1
        data = [
            PartitionProduceData(0, bytes(damaged)),
            PartitionProduceData(0, bytes(batch(LARGE))),
            PartitionProduceData(9, bytes(batch(LARGE))),
        ]
        client.send("Produce", 9, ProduceRequest(None, -1, 1_000, [TopicProduceData(TOPIC, partition_data=data)]))
        response = await client.receive("Produce", 9, ProduceResponse)
        found = [(each.error_code, each.base_offset) for each in response.responses[0].partition_responses]
        assert found == [(ErrorCode.CORRUPT_MESSAGE, -1), (0, 0), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]

    run(scenario)


def test_max_message_bytes_holds_for_the_recompressed_batch() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), compression_type="uncompressed", max_message_bytes="50000")
        client = await cluster.client()
        assert (await client.produce(LARGE, compression=GZIP)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert cluster.brokers[1].log().log_end_offset == 0

    run(scenario)


def test_append_time_is_stamped_before_the_batch_is_recompressed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), compression_type="gzip", message_timestamp_type="LogAppendTime")
        client = await cluster.client()
        ack = await client.produce(LARGE, b"small")
        data = cluster.brokers[1].log().read(0, 1 << 20).data
        ((_, header),) = headers(data)
        assert header.max_timestamp == ack.log_append_time_ms > 1_000
        assert {record.timestamp for record in decode_records(data, header)} == {ack.log_append_time_ms}

    run(scenario)


def test_who_lost_the_leadership_meanwhile_writes_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(compression_type="gzip")
        client = await cluster.client()
        log = cluster.brokers[1].log()
        cluster.brokers[1].node.slowness = 1_000
        client.send_produce(LARGE)
        await begun(cluster)
        cluster.elect(2, (1, 2, 3))
        assert await answers(client, 1) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
        assert log.log_end_offset == 0

    run(scenario)


def test_a_client_that_leaves_meanwhile_disturbs_nobody() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(compression_type="gzip")
        leaving, staying = await cluster.client(), await cluster.client()
        cluster.brokers[1].node.slowness = 1_000
        leaving.send_produce(LARGE)
        await begun(cluster)
        leaving.close()
        assert (await staying.produce(b"next")).base_offset == 1

    run(scenario)


def test_a_changed_setting_does_not_let_batches_pass_each_other() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), compression_type="gzip")
        client = await cluster.client()
        log = cluster.brokers[1].log()
        cluster.brokers[1].node.slowness = 1_000
        client.send_produce(LARGE)
        await begun(cluster)
        cluster.set_topic(compression_type="producer")
        client.send_produce(b"small")
        assert await answers(client, 2) == [(0, 0), (0, 1)]
        assert [header.compression for header, _ in stored(log)] == [GZIP, NONE]

    run(scenario)


def test_a_mistake_of_ours_ends_one_connection_and_nobody_else_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Log.append_prepared
    failures = iter([RuntimeError("a mistake")])

    def fail_once(*args: Any, **kwargs: Any) -> AppendInfo:
        for failure in failures:
            raise failure
        return write(*args, **kwargs)

    monkeypatch.setattr(Log, "append_prepared", fail_once)

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), compression_type="gzip")
        unlucky, waiting, later = await cluster.client(), await cluster.client(), await cluster.client()
        unlucky.send_produce(LARGE, acks=1)
        await asyncio.sleep(0.0005)
        waiting.send_produce(b"behind", acks=1)
        assert await asyncio.wait_for(answers(waiting, 1), 5) == [(0, 0)]
        with pytest.raises(asyncio.IncompleteReadError):
            await asyncio.wait_for(answers(unlucky, 1), 5)
        assert (await later.produce(b"later", acks=1)).base_offset == 1

    run(scenario)
