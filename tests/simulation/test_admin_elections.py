"""Partitions that lost their last replica in sync, in the simulated cluster, and what an administrator does about them."""

import asyncio

import pytest

from ottla.broker.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.broker.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.broker.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.broker.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.quorum.metadata.views import BROKER_RESOURCE, NO_LEADER, TOPIC_RESOURCE
from ottla.runtime.errors import ErrorCode
from tests.simulation.conftest import Rig, play

UNCLEAN = 1


async def allow_on(rig: Rig, resource_type: int, name: str) -> None:
    change = AlterableConfig("unclean.leader.election.enable", 0, "true")
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(resource_type, name, [change])])
    answer = await rig.client().ask_any(request, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE


async def elect(rig: Rig) -> None:
    request = ElectLeadersRequest(UNCLEAN, [TopicPartitions("t", [0])])
    answer = await rig.client().ask_any(request, ElectLeadersResponse)
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("way", ["topic", "all topics", "on request"])
def test_a_partition_whose_last_replica_in_sync_is_lost_is_led_when_that_is_allowed(way: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.place("t", [4, 5], min_insync_replicas="1", retention_ms="-1")
        producer = rig.produce("t", 0)
        await rig.goes_on(producer)
        rig.cluster.nodes[5].kill()
        await rig.until(lambda: rig.view("t", 0).isr == (4,))
        await rig.goes_on(producer)
        rig.cluster.nodes[4].kill()
        await rig.until(lambda: rig.view("t", 0).leader == NO_LEADER)
        await rig.restart(5)
        await asyncio.sleep(5)
        assert rig.view("t", 0).leader == NO_LEADER
        if way == "on request":
            await elect(rig)
        else:
            await allow_on(rig, *((TOPIC_RESOURCE, "t") if way == "topic" else (BROKER_RESOURCE, "")))
        await rig.until(lambda: rig.view("t", 0).leader == 5, 1)
        await rig.goes_on(rig.produce("t", 0))  # the first one's sequence is lost with its last records
        await rig.restart(4)
        await rig.until(lambda: sorted(rig.view("t", 0).isr) == [4, 5])

    play(scenario, plain_brokers=2)
