"""Replicas that catch up are fed at the throttle's rate, those in sync as ever, on the simulated network."""

import asyncio
from typing import Any

from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.testing.replication.client import Client
from ottla.testing.replication.cluster import Cluster, run

RECORD = b"x" * 10_000
RECORDS = 30  # 300 kB


def manager(cluster: Cluster, number: int) -> ReplicaManager:
    found = cluster.brokers[number].manager
    assert found is not None
    return found


async def left_behind(cluster: Cluster, **topic: Any) -> Client:
    """Broker 3 is down, out of the ISR, and lacks 300 kB."""
    await cluster.start(**topic)
    client = await cluster.client()
    cluster.brokers[3].kill()
    cluster.elect(1, (1, 2))
    for _ in range(RECORDS):
        assert (await client.produce(RECORD)).error_code == 0
    return client


async def catch_up_s(cluster: Cluster) -> float:
    """How long broker 3 takes, with everybody else at work."""
    await cluster.brokers[3].restart()
    return await cluster.until(lambda: 3 in cluster.isr())


def test_a_leader_feeds_a_replica_that_its_topic_names_at_the_rate() -> None:
    async def scenario(cluster: Cluster) -> None:
        client = await left_behind(cluster, leader_replication_throttled_replicas="0:1")
        manager(cluster, 1).leader_throttle.rate = 50_000
        catching_up = asyncio.ensure_future(catch_up_s(cluster))
        await asyncio.sleep(2)
        start = cluster.loop.time()
        assert (await client.produce(b"now")).error_code == 0, "who is in sync is fed as ever"
        assert cluster.loop.time() - start < 0.1
        assert 4 < await catching_up < 7

    run(scenario)


def test_a_leader_feeds_others_without_a_throttle() -> None:
    async def scenario(cluster: Cluster) -> None:
        await left_behind(cluster, leader_replication_throttled_replicas="0:2,1:1")
        manager(cluster, 1).leader_throttle.rate = 50_000
        assert await catch_up_s(cluster) < 0.5

    run(scenario)


def test_a_follower_fetches_what_its_topic_names_at_the_rate() -> None:
    async def scenario(cluster: Cluster) -> None:
        await left_behind(cluster, follower_replication_throttled_replicas="*")
        assert 4 < await catch_up_s(cluster) < 7

    run(scenario, follower_replication_throttled_rate="50000")


def test_a_rate_that_rises_takes_effect_within_a_second() -> None:
    async def scenario(cluster: Cluster) -> None:
        await left_behind(
            cluster, leader_replication_throttled_replicas="*", follower_replication_throttled_replicas="*"
        )
        manager(cluster, 1).leader_throttle.rate = 0
        catching_up = asyncio.ensure_future(catch_up_s(cluster))
        await asyncio.sleep(20)
        assert 3 not in cluster.isr(), "nothing goes at the rate of 0"
        manager(cluster, 1).leader_throttle.rate = 2**63 - 1
        start = cluster.loop.time()
        await catching_up
        assert cluster.loop.time() - start < 1.5

    run(scenario)


def test_a_follower_in_sync_fetches_without_a_throttle_under_a_new_leader_epoch() -> None:
    """It does not know yet how far the leader is, and producers wait for it."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(follower_replication_throttled_replicas="*", min_insync_replicas="3")
        client = await cluster.client()
        assert (await client.produce(b"before")).error_code == 0
        for number in (2, 3):
            manager(cluster, number).follower_throttle.rate = 0
        cluster.elect(1, (1, 2, 3))
        assert (await client.produce(b"after", timeout_ms=3_000)).error_code == 0

    run(scenario)
