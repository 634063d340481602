"""The ends of transactions in partitions: markers that come twice, late, of an older coordinator, to a leader that goes."""

import asyncio
import errno

import pytest

from ottla.broker.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.broker.wire.messages.describe_producers_response import DescribeProducersResponse, ProducerState
from ottla.broker.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.broker.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse
from ottla.log.batch import headers
from ottla.proto import metadata_pb2 as pb
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.broker import TOPIC, TOPIC_ID
from ottla.testing.replication.client import Client, batch
from ottla.testing.replication.cluster import Cluster, run

NONE = ErrorCode.NONE
PRODUCER = 7
READ_COMMITTED = 1


def begin(cluster: Cluster, value: bytes = b"value", *, broker: int = 1, epoch: int = 0, sequence: int = 0) -> None:
    """A batch of a transaction is in the log."""
    producer = {"producer_id": PRODUCER, "producer_epoch": epoch, "base_sequence": sequence}
    cluster.brokers[broker].append_own(batch(value, transactional=True, **producer))


def markers(cluster: Cluster, broker: int = 1) -> int:
    """How many are in the log."""
    log, offset, found = cluster.brokers[broker].log(), 0, 0
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20)
        found += sum(header.is_control for _, header in headers(read.data))
        offset = read.next_offset
    return found


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_ends_a_transaction_and_lets_its_readers_go_on(version: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        begin(cluster)
        await cluster.until(lambda: cluster.brokers[1].log().high_watermark == 1)
        assert (await client.fetch(0, isolation_level=READ_COMMITTED)).last_stable_offset == 0
        asked = WritableTxnMarker(PRODUCER, 0, True, [WritableTxnMarkerTopic(TOPIC, [0, 9])], 3)
        client.send("WriteTxnMarkers", version, WriteTxnMarkersRequest([asked]))
        response = await client.receive("WriteTxnMarkers", version, WriteTxnMarkersResponse)
        told = response.markers[0].topics[0]
        assert (response.markers[0].producer_id, told.name) == (PRODUCER, TOPIC)
        assert [(each.partition_index, each.error_code) for each in told.partitions] == [
            (0, NONE),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        read = await client.fetch(0, isolation_level=READ_COMMITTED)
        assert (read.last_stable_offset, read.aborted_transactions) == (2, [])

    run(scenario)


def test_an_aborted_transaction_is_named_to_those_who_read_what_is_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        begin(cluster)
        assert await client.end_transaction(PRODUCER, 0, commit=False) == NONE
        read = await client.fetch(0, isolation_level=READ_COMMITTED)
        assert read.aborted_transactions is not None
        assert [(each.producer_id, each.first_offset) for each in read.aborted_transactions] == [(PRODUCER, 0)]

    run(scenario)


def test_a_marker_is_acknowledged_when_the_in_sync_replicas_have_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        begin(cluster)
        await cluster.until(lambda: cluster.brokers[1].log().high_watermark == 1)
        cluster.brokers[3].kill()
        client.send_marker(PRODUCER, 0)
        client.send_marker(PRODUCER, 0)  # a retry: the same holds for it
        await asyncio.sleep(1)
        log = cluster.brokers[1].log()
        assert (log.last_stable_offset, log.high_watermark) == (0, 1)
        cluster.elect(2, (1, 2, 3))
        assert [await client.marker_answer() for _ in range(2)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2

    run(scenario)


def test_a_second_marker_of_version_two_waits_for_the_first_to_be_committed_and_is_not_written() -> None:
    """Told at once, the coordinator would forget a transaction whose only marker may still be lost."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        begin(cluster)
        await cluster.until(lambda: cluster.brokers[1].log().high_watermark == 1)
        cluster.brokers[3].kill()
        for _ in range(2):
            client.send_marker(PRODUCER, 1, transaction_version=2)
        await asyncio.sleep(1)
        assert markers(cluster) == 1
        cluster.elect(2, (1, 2, 3))
        assert [await client.marker_answer() for _ in range(2)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2

    run(scenario)


def test_a_marker_that_comes_again_changes_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        begin(cluster)
        assert await client.end_transaction(PRODUCER, 1, transaction_version=2) == NONE
        begin(cluster, epoch=1)  # the next transaction of the producer is under way
        assert await client.end_transaction(PRODUCER, 1, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert cluster.brokers[1].log().last_stable_offset == 2

    run(scenario)


def test_a_marker_of_a_coordinator_that_is_over_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        begin(cluster)
        assert await client.end_transaction(PRODUCER, 0, coordinator_epoch=4) == NONE
        begin(cluster, sequence=1)
        late = await client.end_transaction(PRODUCER, 0, commit=False, coordinator_epoch=3)
        assert late == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await client.end_transaction(PRODUCER, 0, coordinator_epoch=4) == NONE

    run(scenario)


def test_a_marker_of_a_producer_epoch_that_is_over_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        begin(cluster, epoch=2)
        assert await client.end_transaction(PRODUCER, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await client.end_transaction(-1, 0) == ErrorCode.INVALID_REQUEST

    run(scenario)


def test_with_too_few_replicas_in_sync_a_marker_is_refused_and_taken_when_they_are_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1,))
        cluster.refusal = ErrorCode.INELIGIBLE_REPLICA
        client = await cluster.client()
        begin(cluster)
        cluster.set_topic(min_insync_replicas="2")
        assert await client.end_transaction(PRODUCER, 0) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert markers(cluster) == 0
        cluster.set_topic(min_insync_replicas="1")
        assert await client.end_transaction(PRODUCER, 0) == NONE

    run(scenario)


def test_a_marker_goes_to_the_leader_that_the_partition_has_now() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        first, second = await cluster.client(1), await cluster.client(2)
        begin(cluster)
        await cluster.until(lambda: cluster.brokers[2].log().log_end_offset == 1)
        assert await second.end_transaction(PRODUCER, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.elect(2, (1, 2, 3))
        assert await first.end_transaction(PRODUCER, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await second.end_transaction(PRODUCER, 0) == NONE
        await cluster.until(lambda: all(broker.log().last_stable_offset == 2 for broker in cluster.brokers.values()))

    run(scenario)


def test_a_leader_that_starts_again_between_batch_and_marker_still_knows_the_transaction() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        begin(cluster)
        await cluster.until(lambda: all(broker.log().log_end_offset == 1 for broker in cluster.brokers.values()))
        cluster.brokers[1].kill()
        await cluster.brokers[1].restart()
        cluster.elect(1, (1, 2, 3))
        assert cluster.brokers[1].log().last_stable_offset == 0
        client = await cluster.client()
        assert await client.end_transaction(PRODUCER, 0, commit=False) == NONE
        read = await client.fetch(0, isolation_level=READ_COMMITTED)
        assert read.aborted_transactions is not None
        assert (read.last_stable_offset, len(read.aborted_transactions)) == (2, 1)

    run(scenario)


def test_a_follower_cut_across_a_marker_has_the_transaction_open_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        begin(cluster)
        await cluster.until(lambda: all(broker.log().high_watermark == 1 for broker in cluster.brokers.values()))
        for broker_id in (2, 3):
            cluster.brokers[broker_id].kill()
        client.send_marker(PRODUCER, 0)
        await asyncio.sleep(0.1)
        assert markers(cluster) == 1
        for broker_id in (2, 3):
            await cluster.brokers[broker_id].restart()
        cluster.elect(2, (2, 3))
        other = await cluster.client(2)
        begin(cluster, b"more", broker=2, sequence=1)
        await cluster.until(lambda: (markers(cluster), cluster.brokers[1].log().high_watermark) == (0, 2))
        assert cluster.brokers[1].log().last_stable_offset == 0
        assert await other.end_transaction(PRODUCER, 0, commit=False) == NONE
        await cluster.until(lambda: cluster.brokers[1].log().last_stable_offset == 3)

    run(scenario)


def test_a_marker_that_the_disk_has_no_room_for_is_refused_and_taken_when_there_is() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        begin(cluster)
        repair = cluster.brokers[1].node.platter.fail("/data/flights-0/", errno.ENOSPC, ("write", "create"))
        assert await client.end_transaction(PRODUCER, 0, commit=False) == ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.brokers[1].log().last_stable_offset == 0
        repair()
        cluster.brokers[1].log().root.set_full(False)
        assert await client.end_transaction(PRODUCER, 0, commit=False) == NONE
        read = await client.fetch(0, isolation_level=READ_COMMITTED)
        assert read.aborted_transactions is not None
        assert (read.last_stable_offset, len(read.aborted_transactions)) == (2, 1)

    run(scenario)


def test_who_waits_with_a_marker_for_a_topic_that_is_deleted_is_told() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        begin(cluster)
        await cluster.until(lambda: cluster.brokers[1].log().high_watermark == 1)
        cluster.brokers[3].kill()
        client.send_marker(PRODUCER, 0)
        await asyncio.sleep(0.1)
        cluster.tell(pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=TOPIC_ID)))
        assert await client.marker_answer() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await client.end_transaction(PRODUCER, 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_a_producer_that_was_forgotten_ends_its_transaction_and_begins_another() -> None:
    """Idle ones are forgotten, but not while a transaction of theirs is open."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        begin(cluster)
        producers = cluster.brokers[1].log().producers
        assert producers.expire(1 << 60, 1) == 0
        assert await client.end_transaction(PRODUCER, 0) == NONE
        assert producers.expire(1 << 61, 1) == 1
        assert await client.end_transaction(PRODUCER, 0) == NONE  # a retry, of nobody that is known
        begin(cluster)
        assert await client.end_transaction(PRODUCER, 0, commit=False) == NONE
        assert cluster.brokers[1].log().last_stable_offset == 5

    run(scenario)


def test_markers_of_a_deleted_topic_have_nowhere_to_go() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        assert await client.end_transaction(PRODUCER, 0, topic="nix") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


# --- a transaction that hangs -----------------------------------------------------------------------------------------


async def described(client: Client, partition: int = 0) -> tuple[int, list[ProducerState]]:
    client.send("DescribeProducers", 0, DescribeProducersRequest([TopicRequest(TOPIC, [partition])]))
    response = await client.receive("DescribeProducers", 0, DescribeProducersResponse)
    told = response.topics[0].partitions[0]
    return told.error_code, told.active_producers


def test_every_replica_tells_of_producers_and_where_their_transactions_begin() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        begin(cluster)
        await cluster.until(lambda: all(broker.log().log_end_offset == 1 for broker in cluster.brokers.values()))
        for node_id in cluster.brokers:
            client = await cluster.client(node_id)
            error, (producer,) = await described(client)
            assert (error, producer.producer_id, producer.producer_epoch) == (NONE, PRODUCER, 0)
            assert (producer.last_sequence, producer.last_timestamp) == (0, 1_000)
            assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, 0)
            assert await described(client, 9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])

    run(scenario)


def test_what_a_tool_learns_of_a_hanging_transaction_is_enough_to_abort_it() -> None:
    """As kafka-transactions does it: the producer's own epoch, and no coordinator's."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        begin(cluster)
        assert await client.end_transaction(PRODUCER, 0, coordinator_epoch=6) == NONE
        begin(cluster, sequence=1)
        _, (producer,) = await described(client)
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (6, 2)
        options = {"commit": False, "coordinator_epoch": producer.coordinator_epoch}
        assert await client.end_transaction(PRODUCER, producer.producer_epoch, **options) == NONE
        _, (ended,) = await described(client)
        assert ended.current_txn_start_offset == -1
        assert cluster.brokers[1].log().last_stable_offset == 4

    run(scenario)
