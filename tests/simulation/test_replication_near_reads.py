"""Consumers that read from a follower near them (KIP-392), on the simulated network."""

import asyncio

import pytest

from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.proto import metadata_pb2 as pb
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.broker import TOPIC, TOPIC_ID
from ottla.testing.replication.client import Client, offsets
from ottla.testing.replication.cluster import Cluster, run

RACKS = {1: "a", 2: "b", 3: "c"}
AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER = "org.apache.kafka.common.replica.LeaderSelector"


async def filled(cluster: Cluster, **more: object) -> Client:
    """Three racks, one record everywhere, and a client of the leader."""
    await cluster.start(racks=RACKS, **more)  # type: ignore[arg-type]  # settings of the topic
    client = await cluster.client()
    await client.produce(b"one")
    await cluster.until(lambda: all(broker.log().high_watermark == 1 for broker in cluster.brokers.values()))
    return client


@pytest.mark.parametrize("version", [11, 12])
def test_a_consumer_is_sent_to_the_replica_in_its_rack(version: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await filled(cluster)
        told = await client.fetch(0, version=version, rack_id="b", max_wait_ms=10_000)
        assert (told.error_code, told.preferred_read_replica, told.records) == (0, 2, b"")
        near = await cluster.client(2)
        found = await near.fetch(0, version=version, rack_id="b")
        assert (offsets(found.records), found.preferred_read_replica) == ([0], -1)

    run(scenario, replica_selector_class=AWARE)


@pytest.mark.parametrize("rack", ["", "a", "d"])
def test_whom_nobody_else_is_near_reads_from_the_leader(rack: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await filled(cluster)
        found = await client.fetch(0, rack_id=rack)
        assert (offsets(found.records), found.preferred_read_replica) == ([0], -1)

    run(scenario, replica_selector_class=AWARE)


@pytest.mark.parametrize("selector", ["", LEADER])
def test_without_the_setting_nobody_is_sent_away(selector: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await filled(cluster)
        assert offsets((await client.fetch(0, rack_id="b")).records) == [0]

    run(scenario, replica_selector_class=selector)


def test_nobody_is_sent_where_the_records_are_not() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await filled(cluster, min_insync_replicas="1")
        cluster.brokers[2].kill()
        cluster.elect(1, (1, 3))
        assert offsets((await client.fetch(0, rack_id="b")).records) == [0]
        await cluster.brokers[2].restart()
        cluster.tell(
            pb.MetadataRecord(broker_registration_change=pb.BrokerRegistrationChange(broker_id=3, fenced=True))
        )
        assert offsets((await client.fetch(0, rack_id="c")).records) == [0]

    run(scenario, replica_selector_class=AWARE)


def test_nobody_is_sent_to_a_replica_that_is_not_in_sync() -> None:
    """Though it has the records, as far as its fetches tell."""

    async def scenario(cluster: Cluster) -> None:
        cluster.refusal = ErrorCode.INVALID_UPDATE_VERSION  # it does not come into the ISR
        await cluster.start(isr=(1, 3), racks=RACKS)
        client = await cluster.client()
        await client.produce(b"one")
        await cluster.until(lambda: cluster.brokers[2].log().high_watermark == 1)
        assert cluster.isr() == (1, 3)
        assert offsets((await client.fetch(0, rack_id="b")).records) == [0]

    run(scenario, replica_selector_class=AWARE)


def test_nobody_is_sent_to_a_replica_that_is_not_so_far() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await filled(cluster)
        cluster.brokers[2].kill()
        await client.produce(b"not there yet", acks=1)
        assert (await client.fetch(1, rack_id="b")).preferred_read_replica == 2
        assert (await client.fetch(2, rack_id="b")).preferred_read_replica == -1

    run(scenario, replica_selector_class=AWARE)


def test_a_consumer_waits_at_a_follower_for_what_is_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await filled(cluster)
        near = await cluster.client(2)
        waiting = asyncio.ensure_future(near.fetch(1, rack_id="b", max_wait_ms=10_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        start = cluster.loop.time()
        await client.produce(b"two")
        assert offsets((await waiting).records) == [1]
        assert cluster.loop.time() - start < 1.0

    run(scenario, replica_selector_class=AWARE)


def test_a_follower_shows_nothing_that_is_not_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await filled(cluster)
        near = await cluster.client(2)
        cluster.brokers[3].kill()
        await client.produce(b"uncommitted", acks=1)
        await cluster.until(lambda: cluster.brokers[2].log().log_end_offset == 2)
        assert (await near.fetch(1, rack_id="b", max_wait_ms=100)).records == b""

    run(scenario, replica_selector_class=AWARE)


def test_who_waits_for_many_bytes_is_sent_away_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await filled(cluster)
        start = cluster.loop.time()
        told = await client.fetch(0, rack_id="b", max_wait_ms=10_000, min_bytes=10_000)
        assert told.preferred_read_replica == 2
        assert cluster.loop.time() - start < 0.1

    run(scenario, replica_selector_class=AWARE)


def test_a_session_is_told_until_it_drops_the_partition() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await filled(cluster)

        async def ask(session: int, epoch: int, *wanted: FetchPartition, drop: tuple[int, ...] = ()) -> FetchResponse:
            topics = [FetchTopic(TOPIC, TOPIC_ID, list(wanted))] if wanted else []
            body = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                session_id=session,
                session_epoch=epoch,
                topics=topics,
                forgotten_topics_data=[ForgottenTopic(TOPIC, TOPIC_ID, list(drop))] if drop else [],
                rack_id="b",
            )
            client.send("Fetch", 12, body)
            return await client.receive("Fetch", 12, FetchResponse)

        def preferred(answer: FetchResponse) -> list[int]:
            found: list[PartitionData] = [each for topic in answer.responses for each in topic.partitions]
            return [each.preferred_read_replica for each in found]

        wanted = FetchPartition(0, 1, 0, partition_max_bytes=1 << 20)
        first = await ask(0, 0, wanted)
        assert preferred(first) == [2]
        assert preferred(await ask(first.session_id, 1)) == [2]
        assert preferred(await ask(first.session_id, 2, drop=(0,))) == []

    run(scenario, replica_selector_class=AWARE)


def test_an_old_idea_of_the_leader_is_told_before_anything_else() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await filled(cluster)
        asked = FetchPartition(0, 0, 0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(TOPIC, TOPIC_ID, [asked])]
        client.send("Fetch", 12, FetchRequest(max_wait_ms=0, session_epoch=-1, topics=topics, rack_id="b"))
        answer = await client.receive("Fetch", 12, FetchResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH

    run(scenario, replica_selector_class=AWARE)


def test_who_led_once_has_what_it_has_for_those_who_tell_no_epoch() -> None:
    """As any follower, in sync or not. Who tells the epoch in which it led hears of that, and asks the new leader."""

    async def scenario(cluster: Cluster) -> None:
        past = await filled(cluster)
        manager = cluster.brokers[1].manager
        assert manager is not None
        cluster.elect(2, (2, 3))
        await cluster.until(lambda: manager.partitions[TOPIC_ID, 0].leader is None)
        for epoch, error in ((-1, ErrorCode.OFFSET_OUT_OF_RANGE), (1, ErrorCode.FENCED_LEADER_EPOCH)):
            topics = [FetchTopic(TOPIC, TOPIC_ID, [FetchPartition(0, epoch, 2, partition_max_bytes=1 << 20)])]
            past.send("Fetch", 12, FetchRequest(max_wait_ms=0, session_epoch=-1, topics=topics))
            answer = await past.receive("Fetch", 12, FetchResponse)
            assert answer.responses[0].partitions[0].error_code == error

    run(scenario)
