"""DescribeProducers of partitions with many producers, and of many partitions: over turns of the loop."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ottla.broker.handlers.describe_producers import ROWS_A_TURN
from ottla.broker.network.beside import LARGE_BYTES
from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.broker.wire.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.log.batch import TRANSACTIONAL, BatchHeader
from ottla.log.producers.state import ProducerStateManager
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site


def add_partition(site: Site, index: int, count: int, *, is_usable: bool = True) -> ProducerStateManager:
    """Each of ``count`` producers has a transaction open."""
    producers = ProducerStateManager()
    for number in range(count):
        header = BatchHeader(0, 49, 0, 2, 0, TRANSACTIONAL, 0, 5, 1_000 + number, number, 3, 9, 1)
        producers.update(header, 70 + number)
    site.replicas.partitions["t", index] = SimpleNamespace(usable=is_usable, log=SimpleNamespace(producers=producers))
    return producers


def states(count: int) -> list[ProducerState]:
    return [ProducerState(number, 3, 9, 1_000 + number, -1, 70 + number) for number in range(count)]


def answered(site: Site, *topics: TopicRequest, meanwhile: Callable[[], None] = lambda: None) -> tuple[Any, int]:
    """The response, and the turns that it took. ``meanwhile`` is called before the second."""

    async def scenario() -> int:
        site.send(DescribeProducersRequest(list(topics)), 0)
        meanwhile()
        turns = 0
        while not site.written:
            await asyncio.sleep(0)
            turns += 1
            assert turns < 1_000
        return turns

    turns = asyncio.run(scenario())
    return site.received("DescribeProducersResponse", 0), turns


def test_few_producers_are_told_at_once(site: Site) -> None:
    add_partition(site, 0, 2)
    add_partition(site, 1, 2, is_usable=False)
    site.replicas.missing_error = lambda *_: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[attr-defined]
    response, turns = answered(site, TopicRequest("t", [0, 1, 2]), TopicRequest("u", []))
    assert turns == 0
    assert response == DescribeProducersResponse(
        topics=[
            TopicResponse(
                "t",
                [
                    PartitionResponse(0, active_producers=states(2)),
                    PartitionResponse(1, ErrorCode.KAFKA_STORAGE_ERROR, "its disk failed"),
                    PartitionResponse(2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no replica of the partition is here"),
                ],
            ),
            TopicResponse("u", []),
        ]
    )


def test_partitions_of_a_large_request_are_told_apart_beside_the_loop(site: Site) -> None:
    site.replicas.missing_error = lambda *_: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[attr-defined]
    indexes = list(range(LARGE_BYTES // 4))

    async def scenario() -> None:
        site.send(DescribeProducersRequest([TopicRequest("t", indexes), TopicRequest("t", indexes[:9])]), 0)
        ((read, _),) = site.beside.waiting
        assert {topic: list(of_topic) for topic, of_topic in read().items()} == {"t": indexes}
        site.beside.finish_one()
        for _ in range(1 + len(indexes) // ROWS_A_TURN):
            await asyncio.sleep(0)

    asyncio.run(scenario())
    (topic,) = site.received("DescribeProducersResponse", 0).topics
    assert [each.partition_index for each in topic.partitions] == indexes


def test_errors_are_counted(site: Site) -> None:
    add_partition(site, 0, 1)
    add_partition(site, 1, 1, is_usable=False)
    site.replicas.missing_error = lambda *_: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[attr-defined]
    answered(site, TopicRequest("t", [0, 1, 2, 3]))
    key = BY_NAME["DescribeProducers"].key
    assert site.connection.counters.errors == {
        (key, ErrorCode.KAFKA_STORAGE_ERROR): 1,
        (key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): 2,
    }


def test_many_producers_are_told_over_turns(site: Site) -> None:
    count = 5 * ROWS_A_TURN
    add_partition(site, 0, count)
    response, turns = answered(site, TopicRequest("t", [0]))
    assert turns >= 5
    assert response.topics[0].partitions[0].active_producers == states(count)


def test_many_partitions_are_told_over_turns(site: Site) -> None:
    count = ROWS_A_TURN
    for index in range(count):
        add_partition(site, index, 1)
    response, turns = answered(site, TopicRequest("t", list(range(count))))
    assert turns >= 1
    assert [each.active_producers for each in response.topics[0].partitions] == [states(1)] * count


def test_a_partition_that_is_named_again_and_again_is_told_once(site: Site) -> None:
    add_partition(site, 0, 2)
    response, _ = answered(site, TopicRequest("t", [0] * 1_000), TopicRequest("t", [0]))
    assert response.topics == [TopicResponse("t", [PartitionResponse(0, active_producers=states(2))])]


def test_who_is_forgotten_meanwhile_is_left_out(site: Site) -> None:
    count = 3 * ROWS_A_TURN
    producers = add_partition(site, 0, count)
    response, _ = answered(site, TopicRequest("t", [0]), meanwhile=producers.clear)
    told = response.topics[0].partitions[0].active_producers
    assert told == states(count)[: len(told)]
    assert 0 < len(told) < count
