"""What a follower knows of a leader that dies, before and after the controller does, on the simulated network."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from ottla.broker.replication.following.fetchers import LOST_MS
from ottla.broker.replication.replica_manager import FENCED_LATELY_MS, ReplicaManager
from ottla.proto import metadata_pb2 as pb
from ottla.testing.replication.cluster import Cluster, run


def ask(cluster: Cluster, node_id: int, what: Callable[[ReplicaManager], frozenset[int]]) -> frozenset[int]:
    """Asks a broker by its own clock."""
    broker = cluster.brokers[node_id]
    assert broker.manager is not None
    assert broker.node.process is not None
    told: list[frozenset[int]] = []
    broker.node.process.run(lambda manager: told.append(what(manager)), broker.manager)
    return told[0]


def lost(cluster: Cluster, node_id: int = 2) -> frozenset[int]:
    return ask(cluster, node_id, ReplicaManager.lost_leaders)


def fenced_lately(cluster: Cluster) -> frozenset[int]:
    return ask(cluster, 1, ReplicaManager.fenced_lately)


def fencing(node_id: int, *, fenced: bool = True) -> pb.MetadataRecord:
    change = pb.BrokerRegistrationChange(broker_id=node_id, fenced=fenced)
    return pb.MetadataRecord(broker_registration_change=change)


def test_a_follower_knows_at_once_that_its_leader_died_until_there_is_another() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await asyncio.sleep(0.3)
        assert lost(cluster) == frozenset()
        cluster.brokers[1].kill()
        assert await cluster.until(lambda: lost(cluster) == {1}, 1) < 0.1
        cluster.elect(2, (2, 3))
        assert lost(cluster) == frozenset()
        assert lost(cluster, 3) == frozenset()

    run(scenario)


def test_a_leader_that_is_not_replaced_is_named_again_after_a_moment() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await asyncio.sleep(0.3)
        cluster.brokers[1].kill()
        await cluster.until(lambda: lost(cluster) == {1}, 1)
        await asyncio.sleep(LOST_MS / 1000 + 0.01)
        assert lost(cluster) == frozenset()

    run(scenario)


def test_a_leader_that_can_be_reached_again_is_not_lost() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await asyncio.sleep(0.3)
        cluster.brokers[1].kill()
        await cluster.until(lambda: lost(cluster) == {1}, 1)
        await cluster.brokers[1].restart()
        assert await cluster.until(lambda: lost(cluster) == frozenset(), 1) < 0.5

    run(scenario)


def test_a_power_cut_does_not_look_like_a_process_that_ended() -> None:
    """Its connections stay open, to nobody; so they do across a network that is cut."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await asyncio.sleep(0.3)
        cluster.brokers[1].node.crash()
        for _ in range(100):
            assert lost(cluster) == frozenset()
            await asyncio.sleep(0.1)

    run(scenario)


def test_a_broker_was_fenced_lately_for_a_moment_and_not_once_it_is_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(fenced=3)
        assert fenced_lately(cluster) == frozenset(), "it never was in service, as far as anybody here knows"
        cluster.tell(fencing(2))
        assert fenced_lately(cluster) == {2}
        cluster.tell(fencing(2, fenced=False))
        assert fenced_lately(cluster) == frozenset()
        cluster.tell(fencing(2))
        await asyncio.sleep(FENCED_LATELY_MS / 1000 + 0.01)
        assert fenced_lately(cluster) == frozenset()

    run(scenario)


def test_a_leader_that_keeps_a_fetch_as_long_as_it_may_is_not_silent(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await asyncio.sleep(1)
        caplog.set_level(logging.INFO, "ottla.broker.links")
        await asyncio.sleep(30)
        assert not caplog.records
        cluster.brokers[1].node.crash()
        await asyncio.sleep(25)
        assert {each.getMessage() for each in caplog.records} >= {"Broker 1 is out of reach: no answer for 20000 ms"}

    run(scenario, replica_fetch_wait_max_ms="10000")
