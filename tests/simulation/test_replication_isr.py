"""Who is in sync, on the simulated network."""

import asyncio
import errno
from functools import partial

import msgspec
import pytest

from ottla.broker.wire.messages.fetch_request import ForgottenTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta, differences
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.broker import TOPIC, TOPIC_ID
from ottla.testing.replication.client import fetch_request
from ottla.testing.replication.cluster import Cluster, run


def test_acks_all_is_not_answered_while_a_member_of_the_isr_is_gone() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await client.produce(b"before")
        cluster.brokers[3].kill()
        ack = await client.produce(b"after", timeout_ms=3_000)
        assert ack.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert ack.base_offset == 1

    run(scenario)


def test_a_dead_follower_leaves_the_isr_and_the_records_are_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        await client.produce(b"before")
        cluster.brokers[3].kill()
        start = cluster.loop.time()
        ack = await client.produce(b"after", timeout_ms=60_000)
        assert ack.error_code == 0
        await cluster.until(lambda: cluster.isr() == (1, 2))
        assert 4 < cluster.loop.time() - start < 8.5

    run(scenario, replica_lag_time_max_ms="5000")


def test_a_member_that_never_fetches_leaves_the_isr_of_an_idle_partition() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(elsewhere=1)  # nobody finds the leader
        assert cluster.isr() == (1, 2, 3)
        took = await cluster.until(lambda: cluster.isr() == (1,))
        assert 5 < took < 8.5

    run(scenario, replica_lag_time_max_ms="5000")


def test_who_left_the_isr_for_its_silence_stays_out_though_it_has_all_that_is_committed() -> None:
    """With fewer in sync than `min.insync.replicas` nothing more is committed, so who is silent lacks nothing of that."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(min_insync_replicas="2")
        client = await cluster.client()
        await client.produce(b"committed")
        for silent in (2, 3):
            cluster.brokers[silent].kill()  # whoever runs and cannot reach the leader: the controller hears of it
        await client.produce(b"not", acks=1)
        await cluster.until(lambda: cluster.isr() == (1,))
        await asyncio.sleep(30)
        assert cluster.alterations == [(1,)]
        assert (await client.produce(b"nor this")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        await cluster.brokers[2].restart()
        await cluster.until(lambda: cluster.isr() == (1, 2), 1)

    run(scenario, replica_lag_time_max_ms="5000")


def test_a_follower_that_cannot_begin_its_next_segment_leaves_the_isr_until_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(segment_bytes="1048576")
        client, value = await cluster.client(), b"x" * 300_000
        for _ in range(3):
            assert (await client.produce(value)).error_code == 0
        repair = cluster.brokers[3].node.platter.fail("/data/flights-0", errno.EMFILE, ("open", "create"))
        ack = await client.produce(value, timeout_ms=60_000)
        assert ack.error_code == 0
        await cluster.until(lambda: cluster.isr() == (1, 2), 1)
        assert (await client.produce(value, timeout_ms=1_000)).error_code == 0
        repair()
        await cluster.until(lambda: len(cluster.isr()) == 3, 10)
        assert cluster.brokers[3].log().log_end_offset == 5
        assert 2 < caplog.text.count("Could not replicate") < 8  # with powers of two

    run(scenario, replica_lag_time_max_ms="5000")


def test_a_follower_that_comes_back_catches_up_and_joins_the_isr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1, 2))
        cluster.brokers[3].kill()
        client = await cluster.client()
        for number in range(10):
            await client.produce(b"%d" % number)
        await cluster.brokers[3].restart()
        took = await cluster.until(lambda: len(cluster.isr()) == 3)
        assert took < 1
        assert cluster.brokers[3].log().read(0, 1 << 20).data == cluster.brokers[1].log().read(0, 1 << 20).data

    run(scenario)


def test_an_idle_follower_that_may_not_join_yet_joins_when_it_may() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.refusal = ErrorCode.INELIGIBLE_REPLICA
        await cluster.start(isr=(1, 2))
        await cluster.until(lambda: len(cluster.alterations) > 2)
        cluster.refusal = 0
        await cluster.until(lambda: len(cluster.isr()) == 3, 2)

    run(scenario)


def test_a_follower_that_fetches_other_partitions_only_falls_out_of_the_isr() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=2)
        cluster.brokers[2].kill()
        follower, client = await cluster.client(), await cluster.client()
        follower.send("Fetch", 12, fetch_request([(0, 0), (1, 0)], session_epoch=0, replica_id=2))
        session = (await follower.receive("Fetch", 12, FetchResponse)).session_id
        forgotten = [ForgottenTopic(TOPIC, TOPIC_ID, [0])]
        for epoch in range(1, 20):
            body = fetch_request([], session_id=session, session_epoch=epoch, replica_id=2, max_wait_ms=500)
            follower.send("Fetch", 12, msgspec.structs.replace(body, forgotten_topics_data=forgotten))
            await follower.receive("Fetch", 12, FetchResponse)
            forgotten = []
        await client.produce(b"value", acks=1)
        # It was caught up when it forgot the partition, and that is longer ago than the lag allows.
        assert await cluster.until(lambda: 2 not in cluster.isr()) < 2.6

    run(scenario, replica_lag_time_max_ms="5000")


def test_a_late_fetch_over_a_connection_that_was_given_up_takes_nothing_back() -> None:
    """What a link held while it was cut comes after what the follower said over the next connection; idle, it says it once."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1, 2))
        cluster.brokers[2].kill()
        former, follower, client = [await cluster.client() for _ in range(3)]
        former.send("Fetch", 12, fetch_request([(0, 0)], session_epoch=0, replica_id=2))
        given_up = (await former.receive("Fetch", 12, FetchResponse)).session_id
        await client.produce(b"value", acks=1)
        follower.send("Fetch", 12, fetch_request([(0, 1)], session_epoch=0, replica_id=2))
        session = (await follower.receive("Fetch", 12, FetchResponse)).session_id
        late = fetch_request([(0, 0)], session_id=given_up, session_epoch=1, replica_id=2)
        former.send("Fetch", 12, late)
        refused = await former.receive("Fetch", 12, FetchResponse)
        assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        for epoch in range(1, 30):
            body = fetch_request([], session_id=session, session_epoch=epoch, replica_id=2, max_wait_ms=500)
            follower.send("Fetch", 12, body)
            assert (await follower.receive("Fetch", 12, FetchResponse)).error_code == 0
        assert 2 in cluster.isr()

    run(scenario, replica_lag_time_max_ms="5000")


def test_a_broker_that_is_unfenced_joins_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1, 2), fenced=3)
        await asyncio.sleep(2.2)
        assert cluster.isr() == (1, 2)
        unfenced = pb.BrokerRegistrationChange(broker_id=3, fenced=False)
        cluster.tell(pb.MetadataRecord(broker_registration_change=unfenced))
        assert await cluster.until(lambda: len(cluster.isr()) == 3) < 0.1

    run(scenario)


def test_a_leader_that_was_away_does_not_blame_its_followers() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        leader = cluster.brokers[1].node
        for follower in (2, 3):
            for ends in ((leader, cluster.brokers[follower].node), (cluster.brokers[follower].node, leader)):
                cluster.loop.network.link(*ends).delay_ns = (50_000_000, 60_000_000)
        client.send_produce(b"on its way to the followers")
        await cluster.until(lambda: cluster.brokers[1].log().log_end_offset == 1)
        leader.pause()
        await asyncio.sleep(4.6)
        leader.resume()
        await asyncio.sleep(1)
        assert cluster.alterations == []

    run(scenario, replica_lag_time_max_ms="2000")


def test_a_setting_of_after_another_was_elected_commits_nothing_alone() -> None:
    """A leader that was away takes a snapshot: settings are told first, partitions in pieces. The other was elected as an eligible
    leader (KIP-966), for by the setting of before nothing was committed that it lacks."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(isr=(1,), min_insync_replicas="2")
        for number in (2, 3):
            cluster.brokers[number].kill()  # before they fetch once
        client = await cluster.client()
        await client.produce(b"nobody else has this", acks=1)
        leader = cluster.brokers[1]
        assert leader.manager is not None
        image, before = leader.image, leader.image.fork()
        elected = pb.PartitionChange(topic_id=TOPIC_ID, partition_id=0, leader=2, isr=pb.Replicas(ids=[2]))
        lowered = pb.Config(resource_type=2, resource_name=TOPIC, name="min.insync.replicas", value="1")
        for record in (pb.MetadataRecord(partition_change=elected), pb.MetadataRecord(config=lowered)):
            image.apply(record, MetadataDelta())
        for piece in differences(before, image):
            leader.run(partial(leader.manager.publish, piece, image))
            assert leader.log().high_watermark == 0
            assert (await client.produce(b"nor will have this")).error_code != ErrorCode.NONE

    run(scenario)
