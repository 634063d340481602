"""Producers: acks, refusals, duplicates, on the simulated network."""

import asyncio
import errno

import pytest

from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.log.records import EndMarker, end_marker_batch
from ottla.proto import metadata_pb2 as pb
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.disk import SimulatedFile
from ottla.testing.replication.broker import PORT, TOPIC, TOPIC_ID
from ottla.testing.replication.client import batch
from ottla.testing.replication.cluster import Cluster, run


def test_too_few_in_sync_refuse_acks_all_and_write_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1,), min_insync_replicas="3")
        cluster.refusal = ErrorCode.INELIGIBLE_REPLICA
        client = await cluster.client()
        ack = await client.produce(b"value")
        assert ack.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.brokers[1].log().log_end_offset == 0

    run(scenario)


def test_with_too_few_in_sync_consumers_do_not_see_what_acks_one_wrote() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1,), min_insync_replicas="3")
        cluster.refusal = ErrorCode.INELIGIBLE_REPLICA
        client = await cluster.client()
        assert (await client.produce(b"value", acks=1)).error_code == 0
        await asyncio.sleep(1)
        assert (await client.fetch(0)).high_watermark == 0

    run(scenario)


def test_acks_zero_is_not_answered() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        client.send_produce(b"silent", acks=0)
        assert (await client.produce(b"loud", acks=1)).base_offset == 1

    run(scenario)


def test_acks_zero_to_the_wrong_broker_closes_the_connection() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client(2)
        client.send_produce(b"lost", acks=0)
        with pytest.raises(asyncio.IncompleteReadError):
            await client.receive("Produce", 9, ProduceResponse)

    run(scenario)


def test_a_client_at_the_wrong_broker_is_told_the_right_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client(2)
        data = PartitionProduceData(0, bytes(batch(b"value")))
        client.send("Produce", 10, ProduceRequest(None, 1, 1_000, [TopicProduceData(TOPIC, partition_data=[data])]))
        response = await client.receive("Produce", 10, ProduceResponse)
        told = response.responses[0].partition_responses[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (1, 1)
        assert [(each.node_id, each.host, each.port) for each in response.node_endpoints] == [(1, "broker-1", PORT)]

    run(scenario)


def test_one_partition_that_fails_does_not_fail_the_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        good, bad = PartitionProduceData(0, bytes(batch(b"good"))), PartitionProduceData(7, bytes(batch(b"bad")))
        torn = PartitionProduceData(0, bytes(batch(b"torn"))[:-1])
        topic = TopicProduceData(TOPIC, partition_data=[good, bad, torn])
        client.send("Produce", 9, ProduceRequest(None, -1, 5_000, [topic]))
        response = await client.receive("Produce", 9, ProduceResponse)
        codes = [each.error_code for each in response.responses[0].partition_responses]
        assert codes[:2] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert codes[2] != 0

    run(scenario)


def test_acks_that_do_not_exist_are_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        assert (await client.produce(b"value", acks=2)).error_code == ErrorCode.INVALID_REQUIRED_ACKS

    run(scenario)


def test_a_repeated_batch_is_answered_with_its_old_offset_and_written_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        producer = {"producer_id": 5, "producer_epoch": 0}
        await client.produce(b"zero")
        for sequence in (0, 1, 1, 0):
            ack = await client.produce(b"%d" % sequence, base_sequence=sequence, **producer)
            assert (ack.error_code, ack.base_offset) == (0, sequence + 1)
        assert cluster.brokers[1].log().log_end_offset == 3

    run(scenario)


def test_waiting_producers_are_told_when_the_leader_changes() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        cluster.brokers[3].kill()
        client.send_produce(b"value")
        await asyncio.sleep(0.5)
        cluster.elect(2, (1, 2))
        response = await client.receive("Produce", 9, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_zstd_needs_a_client_that_knows_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        ack = await client.produce(b"value", acks=1, version=6, compression=4)
        assert ack.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await client.produce(b"value", acks=1, version=7, compression=4)).error_code == 0

    run(scenario)


@pytest.mark.parametrize("codec", ["producer", "gzip"])
def test_a_transaction_that_nobody_could_end_is_not_begun(codec: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), compression_type=codec)
        client = await cluster.client()
        await client.produce(b"before")
        ack = await client.produce(b"x" * 100_000, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        assert ack.error_code == ErrorCode.INVALID_TXN_STATE
        await client.produce(b"after")
        log = cluster.brokers[1].log()
        assert log.log_end_offset == log.high_watermark == log.last_stable_offset == 2

    run(scenario)


def test_control_batches_are_not_the_clients_to_write() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        marker = end_marker_batch(EndMarker(False, 0), producer_id=7, producer_epoch=0, timestamp=1_000)
        data = TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, bytes(marker))])
        client.send("Produce", 9, ProduceRequest(None, -1, 1_000, [data]))
        response = await client.receive("Produce", 9, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD

    run(scenario)


def test_clients_do_not_write_to_internal_topics() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        internal = pb.Topic(name="__consumer_offsets", topic_id=b"C" * 16)
        partition = pb.Partition(topic_id=b"C" * 16, replicas=[1], isr=[1], leader=1)
        cluster.tell(pb.MetadataRecord(topic=internal), pb.MetadataRecord(partition=partition))
        client = await cluster.client()
        ack = await client.produce(b"value", acks=1, topic="__consumer_offsets")
        assert ack.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(scenario)


def test_a_deleted_topic_is_gone_for_those_who_wait_on_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client, consumer = await cluster.client(), await cluster.client()
        await client.produce(b"value")
        waiting = asyncio.ensure_future(consumer.fetch(1, max_wait_ms=20_000))
        await asyncio.sleep(0.5)
        cluster.tell(pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=TOPIC_ID)))
        assert (await waiting).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.produce(b"late", acks=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        manager = cluster.brokers[2].manager
        assert manager is not None
        assert not manager.partitions

    run(scenario)


def test_changed_settings_hold_from_then_on() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1,))
        cluster.refusal = ErrorCode.INELIGIBLE_REPLICA
        client = await cluster.client()
        assert (await client.produce(b"value")).error_code == 0
        config = pb.Config(resource_type=2, resource_name=TOPIC, name="min.insync.replicas", value="2")
        cluster.tell(pb.MetadataRecord(config=config))
        assert (await client.produce(b"value")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    run(scenario)


def count_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The segments that were synced, from now on."""
    synced: list[str] = []
    sync = SimulatedFile.sync

    def counting(file: SimulatedFile) -> None:
        if file.path.endswith(".log"):
            synced.append(file.path)
        sync(file)

    monkeypatch.setattr(SimulatedFile, "sync", counting)
    return synced


@pytest.mark.parametrize("acks", [1, -1])
def test_a_hundred_producers_share_a_sync(acks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), ottla_flush_before_ack="true")
        clients = [await cluster.client() for _ in range(100)]
        for _ in range(5):
            synced.clear()
            for answer in await asyncio.gather(*(client.produce(b"value", acks=acks) for client in clients)):
                assert answer.error_code == 0
            # The first one's, and those that came while it ran; the network spreads arrivals a little.
            assert 1 <= len(synced) <= 5
        assert cluster.brokers[1].log().recovery_point == 500

    synced = count_syncs(monkeypatch)
    run(scenario)


def test_a_log_that_cannot_be_synced_for_want_of_descriptors_is_synced_when_there_are_some() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), ottla_flush_before_ack="true")
        client = await cluster.client()
        await client.produce(b"first")
        cluster.brokers[1].log().roll()  # a name to be made durable
        repair = cluster.brokers[1].node.platter.fail("/data", errno.EMFILE, ("sync_directory",))
        cluster.loop.call_later(2.5, repair)
        start = cluster.loop.time()
        assert (await client.produce(b"value", timeout_ms=10_000)).error_code == 0
        assert 2 < cluster.loop.time() - start < 5

    run(scenario)


def test_flush_before_ack_may_be_turned_on_and_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        log = cluster.brokers[1].log()
        await client.produce(b"value")
        assert (len(synced), log.recovery_point) == (0, 0)
        cluster.set_topic(ottla_flush_before_ack="true")
        await client.produce(b"value")
        assert (len(synced), log.recovery_point) == (1, 2)
        cluster.set_topic(ottla_flush_before_ack="false")
        await client.produce(b"value")
        assert (len(synced), log.recovery_point) == (1, 2)

    synced = count_syncs(monkeypatch)
    run(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_topic_deleted_while_it_is_synced_harms_nobody(acks: int) -> None:
    """The sync finds its file closed, which says nothing of the disk."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), ottla_flush_before_ack="true")
        client = await cluster.client()
        root = cluster.brokers[1].log().root
        cluster.brokers[1].node.slowness = 1_000
        client.send_produce(b"value", acks=acks)
        log = cluster.brokers[1].log()
        await cluster.until(lambda: log.log_end_offset == 1)
        cluster.tell(pb.MetadataRecord(remove_topic=pb.RemoveTopic(topic_id=TOPIC_ID)))
        response = await client.receive("Produce", 9, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await asyncio.sleep(5)
        assert root.failure is None

    run(scenario)


def test_a_new_logs_first_acknowledgement_waits_until_the_log_is_durable() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        log = cluster.brokers[1].log()
        log.distrust_names()  # as of a log that was created a moment ago
        for acks in (1, -1):
            assert (await client.produce(b"value", acks=acks)).error_code == 0
            assert not log.must_sync
        assert log.recovery_point == 0  # only its name and topic id had to be

    run(scenario)


def test_what_is_in_a_log_that_is_not_durable_yet_does_not_count_by_an_election() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        log = cluster.brokers[1].log()
        log.distrust_names()  # as of a log that was created a moment ago
        cluster.brokers[1].node.slowness = 1_000
        client.send_produce(b"value", acks=-1)
        await cluster.until(lambda: log.log_end_offset == 1)
        cluster.elect(1, (1,))
        assert log.must_sync
        assert log.high_watermark == 0
        assert (await client.receive("Produce", 9, ProduceResponse)).responses[0].partition_responses[0].error_code == 0
        assert not log.must_sync

    run(scenario)


def test_a_follower_that_syncs_is_not_kept_waiting_by_a_leader_without_room_for_its_session() -> None:
    """What it has synced it can tell with its next request alone, and that one follows the one that waits for other partitions."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(2, isr=(1, 2), partitions=2, ottla_flush_before_ack="true")
        client = await cluster.client()
        assert (await client.produce(b"first")).error_code == 0
        begun_s = asyncio.get_running_loop().time()
        for _ in range(10):
            assert (await client.produce(b"value")).error_code == 0
        assert asyncio.get_running_loop().time() - begun_s < 1, "twice the longest wait of a follower"

    run(scenario, max_incremental_fetch_session_cache_slots="0")
