"""Offsets by place, time and epoch, on the simulated network."""

import asyncio

import pytest

from ottla.broker.handlers.list_offsets import PIECE
from ottla.broker.handlers.offset_for_leader_epoch import end_of_epoch
from ottla.broker.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.broker.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.broker.wire.messages.offset_for_leader_epoch_request import OffsetForLeaderPartition
from ottla.log.batch import read_header
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, assemble_batch, encode_batch
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.broker import TOPIC
from ottla.testing.replication.cluster import Cluster, run


def test_the_end_offset_is_not_told_until_it_is_certain() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for number in range(3):
            await client.produce(b"%d" % number)
        assert await client.latest() == (0, 3)
        cluster.brokers[3].kill()
        await client.produce(b"unsure", timeout_ms=500)
        # Broker 2 has four records, knows three to be committed, and waits for broker 3.
        cluster.elect(2, (2, 3))
        other = await cluster.client(2)
        assert await other.latest() == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        await cluster.brokers[3].restart()
        await cluster.until(lambda: cluster.brokers[2].log().high_watermark == 4)
        assert await other.latest() == (0, 4)

    run(scenario)


def test_offsets_are_found_by_place_and_time() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        for timestamp in (1_000, 5_000, 3_000):
            await client.produce(b"value", acks=1, timestamp=timestamp)
        cluster.brokers[1].log().advance_log_start(1)
        assert await client.list_offset(-1) == (0, 3, 1)
        assert await client.list_offset(-2) == (0, 1, 1)
        assert await client.list_offset(-3) == (0, 1, 1)
        assert await client.list_offset(4_000) == (0, 1, 1)
        assert await client.list_offset(9_000) == (0, -1, -1)
        assert await client.list_offset(-4, version=8) == (0, 1, 1)
        assert await client.list_offset(-5, version=9) == (0, -1, -1)

    run(scenario)


def test_a_timestamp_newer_than_the_request_version_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        assert (await client.list_offset(-3, version=6))[0] == ErrorCode.UNSUPPORTED_VERSION
        assert (await client.list_offset(-4, version=7))[0] == ErrorCode.UNSUPPORTED_VERSION
        await client.produce(b"value", acks=1)
        for unknown in (-7, -(2**63)):
            assert await client.list_offset(unknown, version=11) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
        wrong = [ListOffsetsPartition(9, -1, -7)]
        client.send("ListOffsets", 7, ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, wrong)]))
        response = await client.receive("ListOffsets", 7, ListOffsetsResponse)
        assert response.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION, (
            "which partition is no matter"
        )

    run(scenario)


def test_clients_find_what_is_committed_and_followers_what_is_written() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await client.produce(b"safe", timestamp=1_000)
        cluster.brokers[3].kill()
        await client.produce(b"unsafe", acks=1, timestamp=2_000)
        assert (await client.list_offset(-1))[:2] == (0, 1)
        assert (await client.list_offset(-1, replica_id=2))[:2] == (0, 2)
        assert (await client.list_offset(2_000))[:2] == (0, -1)
        wrong = await cluster.client(2)
        assert (await wrong.list_offset(-1))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_a_partition_asked_for_twice_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        asked = ListOffsetsPartition(0, -1, -1)
        client.send("ListOffsets", 7, ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, [asked, asked])]))
        response = await client.receive("ListOffsets", 7, ListOffsetsResponse)
        assert [each.error_code for each in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2

    run(scenario)


def test_the_end_of_an_epoch_is_where_the_next_one_began() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        await client.produce(b"one")
        cluster.elect(1, (1,))
        await client.produce(b"two")
        assert await client.end_of_epoch(1) == (1, 1)
        assert await client.end_of_epoch(2) == (2, 2)
        assert await client.end_of_epoch(3) == (-1, -1)

    run(scenario)


def inside_out(log: Log, codec: int) -> bytearray:
    """A batch as a client's own mistake: sound by its CRC, and nothing that could be decompressed."""
    batch = encode_batch(
        [Record(log.log_end_offset, 2_000, None, b"x")], base_offset=log.log_end_offset, leader_epoch=1
    )
    header = read_header(batch)._replace(attributes=codec, max_timestamp=5_000)
    return assemble_batch(header, b"this was never compressed")


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_clients_nonsense_moves_no_leader(codec: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        await client.produce(b"before", timestamp=1_000)
        cluster.brokers[1].log().append_own(  # as versions before did, that did not look
            inside_out(cluster.brokers[1].log(), codec), 1, 0
        )
        assert (await client.produce(b"after", timestamp=1_000)).base_offset == 2
        for _ in range(3):
            assert (await client.list_offset(4_000))[:2] == (0, 1)
            await asyncio.sleep(2)
        assert cluster.damage_reports == 0
        assert (await client.produce(b"later", timestamp=1_000)).base_offset == 3

    run(scenario)


def test_others_are_served_while_a_large_batch_is_searched() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        searching, leaving, other = await cluster.client(), await cluster.client(), await cluster.client()
        await other.produce(bytes(40_000), timestamp=4_000)
        cluster.brokers[1].node.slowness = 10_000
        asked = [ListOffsetsPartition(0, -1, 3_000), ListOffsetsPartition(1, -1, 3_000)]
        for client in (leaving, searching):
            client.send("ListOffsets", 7, ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, asked)]))
        await asyncio.sleep(0.001)
        leaving.close()
        assert (await other.produce(b"small", acks=1)).error_code == 0
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(searching.receive("ListOffsets", 7, ListOffsetsResponse), 0.001)
        response = await searching.receive("ListOffsets", 7, ListOffsetsResponse)
        found = [(each.error_code, each.offset) for each in response.topics[0].partitions]
        assert found == [(0, 0), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]

    run(scenario)


def test_thousands_of_partitions_are_looked_at_in_pieces_and_answered_in_order() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client, leaving, other = await cluster.client(), await cluster.client(), await cluster.client()
        many = [ListOffsetsPartition(index, -1, -1) for index in range(3 * PIECE)]
        for each in (client, leaving):
            each.send("ListOffsets", 7, ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, many)]))
        client.send("ListOffsets", 7, ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, many[:1])]))
        leaving.close()
        assert (await other.list_offset(-1))[0] == 0
        response = await client.receive("ListOffsets", 7, ListOffsetsResponse)
        codes = [each.error_code for each in response.topics[0].partitions]
        assert codes == [0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (3 * PIECE - 1)
        response = await client.receive("ListOffsets", 7, ListOffsetsResponse)
        assert [each.error_code for each in response.topics[0].partitions] == [0]

    run(scenario)


def test_a_search_of_who_lost_the_leadership_meanwhile_finds_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await client.produce(bytes(40_000), timestamp=4_000)
        cluster.brokers[1].node.slowness = 10_000
        asked = [ListOffsetsPartition(0, -1, 3_000)]
        client.send("ListOffsets", 7, ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, asked)]))
        await asyncio.sleep(0.001)
        cluster.elect(2, (1, 2, 3))
        response = await client.receive("ListOffsets", 7, ListOffsetsResponse)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_a_disk_that_failed_is_told_as_such() -> None:
    """Whoever hears that another leads looks for it in vain: here nobody does, until the controller knows."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        await client.produce(b"value", acks=1)
        replicas = cluster.brokers[1].manager
        assert replicas is not None
        replicas.directory_failed([TopicPartition(TOPIC, 0)])
        for timestamp in (-1, -2, 1_000):
            assert (await client.list_offset(timestamp))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        told = end_of_epoch(replicas, TOPIC, OffsetForLeaderPartition(0, -1, 1))
        assert told.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)
