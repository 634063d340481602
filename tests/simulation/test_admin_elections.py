"""What an administrator does about leaders and replicas, in the simulated cluster: unclean elections, reassignments."""

import asyncio

import pytest

from ottla.broker.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.broker.wire.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from ottla.broker.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.broker.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.broker.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.broker.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.broker.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.broker.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.broker.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from ottla.broker.wire.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from ottla.quorum.metadata.views import BROKER_RESOURCE, NO_LEADER, TOPIC_RESOURCE
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.workload import SimulatedProducer, check_history, read_partition
from tests.simulation.conftest import Rig, play

UNCLEAN = 1


async def placed(rig: Rig, *brokers: int) -> None:
    """The topic t with one partition on these."""
    topic = CreatableTopic(
        "t",
        -1,
        -1,
        [CreatableReplicaAssignment(0, list(brokers))],
        [CreatableTopicConfig("min.insync.replicas", "1"), CreatableTopicConfig("retention.ms", "-1")],
    )
    answer = await rig.client().ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=1000), CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE
    await rig.until(lambda: "t" in rig.image().topics_by_name)


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
        await placed(rig, 4, 5)
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


async def move(rig: Rig, replicas: list[int] | None) -> None:
    topic = ReassignableTopic("t", [ReassignablePartition(0, replicas)])
    answer = await rig.client().ask_any(
        AlterPartitionReassignmentsRequest(1000, True, [topic]), AlterPartitionReassignmentsResponse
    )
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE


async def ongoing(rig: Rig) -> int:
    answer = await rig.client().ask_any(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse)
    return sum(len(topic.partitions) for topic in answer.topics)


async def all_is_there(rig: Rig, producer: SimulatedProducer) -> None:
    await rig.goes_on(producer)  # with the leader of now, whose high watermark may have begun below the last one's
    for user in rig.users:
        user.cancel()
    check_history(producer.history, await read_partition(rig.client(), "t", 0))


def hosts(rig: Rig, number: int) -> bool:
    broker = rig.server(number).broker
    assert broker is not None
    return ("t", 0) in broker.replicas.partitions


def test_a_partition_moves_to_other_brokers_under_load_and_leaves_nothing_behind() -> None:
    async def scenario(rig: Rig) -> None:
        await placed(rig, 1, 2)
        producer = rig.produce("t", 0)
        await rig.goes_on(producer)
        await move(rig, [4, 3])
        await rig.until(lambda: rig.view("t", 0).replicas == (4, 3))
        await rig.goes_on(producer)
        await rig.until(lambda: sorted(rig.view("t", 0).isr) == [3, 4])
        assert (rig.view("t", 0).adding, rig.view("t", 0).removing, await ongoing(rig)) == ((), (), 0)
        await rig.until(lambda: [number for number in rig.cluster.nodes if hosts(rig, number)] == [3, 4])
        await all_is_there(rig, producer)

    play(scenario, plain_brokers=1)


def test_a_move_to_a_broker_that_is_away_waits_for_it_or_is_given_up() -> None:
    async def scenario(rig: Rig) -> None:
        await placed(rig, 1, 2)
        producer = rig.produce("t", 0)
        await rig.goes_on(producer)
        rig.cluster.nodes[4].kill()
        await move(rig, [4])
        await rig.until(lambda: rig.view("t", 0).adding == (4,))
        await rig.goes_on(producer)
        assert await ongoing(rig) == 1
        await move(rig, None)
        await rig.until(lambda: rig.view("t", 0).replicas == (1, 2))
        await move(rig, [4])
        await rig.restart(4)
        await rig.until(lambda: rig.view("t", 0).replicas == (4,))
        await rig.goes_on(producer)
        await all_is_there(rig, producer)

    play(scenario, plain_brokers=1)
