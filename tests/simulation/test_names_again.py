"""Topics deleted and made anew under their old names, by a whole cluster that is killed at a bad moment."""

import asyncio

from ottla.broker.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.broker.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.broker.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.broker.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.testing.simulation.workload import check_history, read_partition
from tests.simulation.conftest import Rig, play

TOPIC = "flights"
CHECKPOINT_MS, CHECKPOINT = 5_000, {"log.flush.offset.checkpoint.interval.ms": "5000"}


def log_of(rig: Rig, broker: int) -> Log:
    server = rig.server(broker).broker
    assert server is not None
    return server.storage.manager.logs[TopicPartition(TOPIC, 0)]


async def delete_records(rig: Rig, offset: int) -> None:
    client = rig.client()
    _, brokers = await client.topic(TOPIC)
    topic = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, offset)])
    leader = brokers[rig.view(TOPIC, 0).leader]
    answer = await client.call(leader, DeleteRecordsRequest([topic], 1_000), DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == 0


async def delete_topic(rig: Rig) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1_000)
    answer = await rig.client().ask_any(request, DeleteTopicsResponse, 6)
    assert answer.responses[0].error_code == 0
    await rig.until(lambda: all(TOPIC not in rig.image(number).topics_by_name for number in rig.cluster.nodes))


def test_a_topic_made_anew_keeps_its_records_when_all_are_killed() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(TOPIC, 1, 3, retention_ms="-1")
        first = rig.produce(TOPIC, 0, 0.02)
        await rig.until(lambda: len(first.history.acknowledged) >= 60)
        rig.users[-1].cancel()
        await delete_records(rig, 50)
        await asyncio.sleep(1.1 * CHECKPOINT_MS / 1000)
        await delete_topic(rig)
        await rig.topic(TOPIC, 1, 3, retention_ms="-1")
        second = rig.produce(TOPIC, 0, 0.02)
        await rig.until(lambda: len(second.history.acknowledged) >= 20)
        rig.users[-1].cancel()
        for node in rig.cluster.nodes.values():
            node.kill()
        for node in rig.cluster.nodes.values():
            node.restart()
        await rig.until(lambda: all(rig.up(number) for number in (1, 2, 3)), 60)
        await rig.until(lambda: len(rig.view(TOPIC, 0).isr) == 3)
        assert [log_of(rig, number).log_start_offset for number in (1, 2, 3)] == [0, 0, 0]
        check_history(second.history, await read_partition(rig.client(), TOPIC, 0))

    play(scenario, 1, settings=CHECKPOINT)
