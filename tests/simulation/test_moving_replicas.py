"""Partitions that move to other brokers, in the simulated cluster: under load, given up. Under faults: the dimension `moves`."""

import asyncio

from ottla.broker.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.broker.wire.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from ottla.broker.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from ottla.broker.wire.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import BrokerConnection
from ottla.testing.simulation.cluster import CLIENT_PORT
from ottla.testing.simulation.workload import SimulatedProducer, check_history, read_partition
from tests.simulation.conftest import Rig, play


async def ask_to_move(rig: Rig, replicas: list[int] | None) -> int:
    """The answer's error, of the request or of the partition."""
    topic = ReassignableTopic("t", [ReassignablePartition(0, replicas)])
    request = AlterPartitionReassignmentsRequest(1000, True, [topic])
    answer = await rig.client().ask_any(request, AlterPartitionReassignmentsResponse)
    return answer.error_code or answer.responses[0].partitions[0].error_code


async def move(rig: Rig, replicas: list[int] | None) -> None:
    assert await ask_to_move(rig, replicas) == ErrorCode.NONE


async def ongoing(rig: Rig) -> int:
    answer = await rig.client().ask_any(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse)
    return sum(len(topic.partitions) for topic in answer.topics)


async def all_is_there(rig: Rig, producer: SimulatedProducer) -> None:
    await rig.goes_on(producer)  # with the leader of now, whose high watermark may have begun below the last one's
    for user in rig.users:
        user.cancel()
    check_history(producer.history, await read_partition(rig.client(), "t", 0))


def hosts(rig: Rig) -> list[int]:
    """The brokers with a replica."""
    brokers = {number: rig.server(number).broker for number in rig.cluster.nodes}
    return [
        number for number, broker in brokers.items() if broker is not None and ("t", 0) in broker.replicas.partitions
    ]


def test_a_partition_moves_to_other_brokers_under_load_and_leaves_nothing_behind() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.place("t", [1, 2], min_insync_replicas="1", retention_ms="-1")
        producer = rig.produce("t", 0)
        await rig.goes_on(producer)
        await move(rig, [4, 3])
        await rig.until(lambda: rig.view("t", 0).replicas == (4, 3))
        await rig.goes_on(producer)
        await rig.until(lambda: sorted(rig.view("t", 0).isr) == [3, 4])
        assert (rig.view("t", 0).adding, rig.view("t", 0).removing, await ongoing(rig)) == ((), (), 0)
        await rig.until(lambda: hosts(rig) == [3, 4])
        await all_is_there(rig, producer)

    play(scenario, plain_brokers=1)


def test_a_move_to_a_broker_that_is_away_waits_for_it_or_is_given_up() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.place("t", [1, 2], min_insync_replicas="1", retention_ms="-1")
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


def test_whoever_is_asked_lists_a_move_that_was_acknowledged() -> None:
    """A broker hears of it a moment later than who asked for it."""

    async def scenario(rig: Rig) -> None:
        await rig.place("t", [1, 2], retention_ms="-1")
        rig.cluster.nodes[4].kill()  # so that it goes on
        places = [(rig.cluster.nodes[number].name, CLIENT_PORT) for number in (1, 2, 3)]
        brokers = [await BrokerConnection.open(*place) for place in places]
        for target in (4, None) * 5:
            await move(rig, None if target is None else [target])
            asked = [
                each.call(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse) for each in brokers
            ]
            found = [len(answer.topics) for answer in await asyncio.gather(*asked)]
            assert found == [0 if target is None else 1] * len(brokers)
        for each in brokers:
            each.close()

    play(scenario, plain_brokers=1)
