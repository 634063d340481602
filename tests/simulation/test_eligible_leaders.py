"""Eligible leaders (KIP-966) in the simulated cluster: who leads when nobody is in sync, and who must not."""

import asyncio
from collections.abc import Callable

import pytest

from ottla.broker.replication.hosting import Replica
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.wire.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.broker.wire.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse
from ottla.broker.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.broker.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.broker.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.broker.wire.messages.update_features_response import UpdateFeaturesResponse
from ottla.log.config import LogConfig
from ottla.log.names import TopicPartition
from ottla.quorum.controller.decisions import configs, partition_change
from ottla.quorum.controller.decisions.elr import ELR_VERSION
from ottla.quorum.metadata.views import NO_LEADER, RECOVERED, TOPIC_RESOURCE
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.workload import SimulatedProducer, check_history, read_partition
from tests.simulation.conftest import Rig, play

TWO = ("/data", "/more")


async def keep_eligible(rig: Rig) -> None:
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(ELR_VERSION, 1, upgrade_type=1)])
    answer = await rig.client().ask_any(request, UpdateFeaturesResponse)
    assert answer.error_code == ErrorCode.NONE


async def set_minimum(rig: Rig, value: str) -> None:
    change = AlterableConfig("min.insync.replicas", 0, value)
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC_RESOURCE, "t", [change])])
    answer = await rig.client().ask_any(request, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE


def cut_off(rig: Rig, one: int, other: int) -> None:
    nodes = rig.cluster.nodes
    rig.loop.network.cut_between([nodes[one]], [nodes[other]])


async def alone_in_sync(rig: Rig, minimum: str = "2") -> SimulatedProducer:
    """4 leads `t` alone, 5 lives and is cut off from it alone; a producer's records are on both."""
    await keep_eligible(rig)
    await rig.place("t", [4, 5], min_insync_replicas=minimum, retention_ms="-1")
    producer = rig.produce("t", 0)
    await rig.goes_on(producer)
    cut_off(rig, 4, 5)
    await rig.until(lambda: rig.view("t", 0).isr == (4,))
    return producer


def test_who_has_all_that_is_committed_leads_when_the_last_in_sync_is_gone() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await alone_in_sync(rig)
        assert rig.view("t", 0).elr == (5,)
        request = DescribeTopicPartitionsRequest([TopicRequest("t")])
        answer = await rig.client().ask_any(request, DescribeTopicPartitionsResponse)
        assert answer.topics[0].partitions[0].eligible_leader_replicas == [5]
        rig.cluster.nodes[4].kill()
        await rig.until(lambda: rig.view("t", 0).leader == 5)
        assert (rig.view("t", 0).isr, rig.view("t", 0).leader_recovery_state) == ((5,), RECOVERED)
        rig.loop.network.mend_all()
        await rig.restart(4)
        await rig.until(lambda: sorted(rig.view("t", 0).isr) == [4, 5])
        await rig.goes_on(producer)
        check_history(producer.history, await read_partition(rig.client(), "t", 0))

    play(scenario, plain_brokers=2)


def who_leads_then(minimum: str, later: str) -> int:
    """4 was allowed to commit without 5, by the minimum of ``later`` if not by that of before, and is gone."""
    led: list[int] = []

    async def scenario(rig: Rig) -> None:
        producer = await alone_in_sync(rig, minimum)
        if later != minimum:
            await set_minimum(rig, later)
        await rig.goes_on(producer)
        await rig.goes_on(producer)
        rig.cluster.nodes[4].kill()
        await rig.until(lambda: rig.view("t", 0).isr != (4,))
        await asyncio.sleep(1)
        led.append(rig.view("t", 0).leader)
        if led == [NO_LEADER]:
            rig.loop.network.mend_all()
            await rig.restart(4)
            await rig.goes_on(producer)
            check_history(producer.history, await read_partition(rig.client(), "t", 0))

    play(scenario, plain_brokers=2)
    return led[0]


def test_who_was_eligible_by_an_older_minimum_does_not_lead() -> None:
    assert who_leads_then("2", later="1") == NO_LEADER


def test_who_left_when_enough_were_in_sync_without_it_does_not_lead() -> None:
    assert who_leads_then("1", later="1") == NO_LEADER


def test_without_these_rules_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(configs, "_check_min_in_sync", lambda *_: [])
        assert who_leads_then("2", later="1") == 5
    with monkeypatch.context() as without:
        without.setattr(partition_change, "eligible", lambda candidates, *_: candidates)
        assert who_leads_then("1", later="1") == 5


def test_who_led_last_leads_again_when_all_lost_their_power() -> None:
    async def scenario(rig: Rig) -> None:
        await keep_eligible(rig)
        await rig.place("t", [4, 5], min_insync_replicas="2", retention_ms="-1")
        await rig.goes_on(rig.produce("t", 0))
        rig.cluster.nodes[5].crash()
        await rig.until(lambda: rig.view("t", 0).isr == (4,))
        rig.cluster.nodes[4].crash()
        await rig.until(lambda: rig.view("t", 0).isr == ())
        assert rig.view("t", 0).last_known_elr == (4,)
        await rig.restart(5)
        await asyncio.sleep(3)
        assert rig.view("t", 0).leader == NO_LEADER, "4 may have more"
        await rig.restart(4)
        await rig.until(lambda: rig.view("t", 0).leader == 4)
        await rig.until(lambda: sorted(rig.view("t", 0).isr) == [4, 5])
        assert rig.view("t", 0).leader_recovery_state == RECOVERED

    play(scenario, plain_brokers=2)


def test_who_led_last_leads_again_when_its_directory_comes_back_that_failed_at_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The replica's log could not be read: its directory is told as failed, and not that the replica is in none."""
    fail: list[Callable[[], Callable[[], None]]] = []
    mend: list[Callable[[], None]] = []
    create = ReplicaManager._create

    def fails(manager: ReplicaManager, replica: Replica) -> Partition:
        if manager.node_id == 4 and replica.topic == "t" and fail:
            mend.append(fail.pop()())
            log = manager._logs.get_or_create(TopicPartition("t", 0), LogConfig(), replica.topic_id)
            log.configure(log.config)  # reads it
        return create(manager, replica)

    monkeypatch.setattr(ReplicaManager, "_create", fails)

    async def scenario(rig: Rig) -> None:
        await rig.place("first", [4, 5])  # beside the metadata log: `t` gets the other directory
        await alone_in_sync(rig, minimum="1")
        platter = rig.cluster.nodes[4].platter
        rig.cluster.nodes[4].kill()
        await rig.until(lambda: rig.view("t", 0).leader == NO_LEADER)
        fail.append(lambda: platter.fail(TWO[1]))
        await rig.restart(4)
        await rig.until(lambda: bool(mend) and rig.view("t", 0).leader == NO_LEADER and not rig.view("t", 0).elr)
        mend[0]()
        await rig.restart(4)
        await rig.until(lambda: rig.view("t", 0).leader == 4)

    play(scenario, plain_brokers=2, directories=TWO)
