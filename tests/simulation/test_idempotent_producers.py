"""Idempotent producers: each batch once and in order, whatever is sent again, in whatever order, and whoever leads meanwhile."""

import itertools
from random import Random
from typing import Any

import pytest

from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.log.producers.entry import SEQUENCE_MAX
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.client import Client
from ottla.testing.replication.cluster import Cluster, run

NONE = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
PRODUCER = 5
IN_FLIGHT = 5


def send(client: Client, sequence: int, epoch: int = 0, producer_id: int = PRODUCER) -> None:
    client.send_produce(b"%d" % sequence, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


async def answer(client: Client) -> tuple[int, int]:
    response = await client.receive("Produce", 9, ProduceResponse)
    told = response.responses[0].partition_responses[0]
    return told.error_code, told.base_offset


async def produce(client: Client, sequence: int, epoch: int = 0, **more: Any) -> tuple[int, int]:
    send(client, sequence, epoch, **more)
    return await answer(client)


@pytest.mark.parametrize("seed", range(5))
def test_five_in_flight_may_come_again_in_any_order(seed: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client, rng = await cluster.client(), Random(seed)
        assert await produce(client, 0) == (
            NONE,
            0,
        )  # a partition that does not know the producer takes any as its first
        written = 1
        while written < 40:
            sent = [written + each for each in range(IN_FLIGHT)]
            rng.shuffle(sent)
            for sequence in sent:
                send(client, sequence)
            for sequence in sent:
                error, offset = await answer(client)
                assert (error, offset) in ((NONE, sequence), (OUT_OF_ORDER, -1))
                if error == NONE and sequence == written:
                    written += 1
            repeated = rng.randrange(max(written - IN_FLIGHT, 0), written)
            assert await produce(client, repeated) == (NONE, repeated)
        assert cluster.brokers[1].log().log_end_offset == written

    run(scenario)


def test_what_is_older_than_five_batches_is_refused_and_not_written_twice() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for sequence in range(IN_FLIGHT + 1):
            assert await produce(client, sequence) == (NONE, sequence)
        assert await produce(client, 0) == (OUT_OF_ORDER, -1)

    run(scenario)


def test_the_next_leader_knows_what_was_written_under_the_last() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        first, second = await cluster.client(1), await cluster.client(2)
        for sequence in range(3):
            assert await produce(first, sequence) == (NONE, sequence)
        cluster.elect(2, (1, 2, 3))
        for sequence in (1, 2, 3, 2, 3):  # answers of the first leader may have been lost
            assert await produce(second, sequence) == (NONE, sequence)
        assert await produce(second, 9) == (OUT_OF_ORDER, -1)

    run(scenario)


def test_a_leader_that_was_killed_knows_its_producers_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for sequence in range(3):
            await produce(client, sequence)
        await cluster.until(lambda: all(each.log().log_end_offset == 3 for each in cluster.brokers.values()))
        cluster.brokers[1].kill()
        await cluster.brokers[1].restart()
        cluster.elect(1, (1, 2, 3))
        again = await cluster.client()
        assert [await produce(again, sequence) for sequence in (2, 3)] == [(NONE, 2), (NONE, 3)]

    run(scenario)


def test_producers_are_known_though_all_their_records_were_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        for sequence in range(3):
            await produce(client, sequence)
        log = cluster.brokers[1].log()
        log.advance_log_start(3)
        assert [await produce(client, sequence) for sequence in (2, 3, 9)] == [(NONE, 2), (NONE, 3), (OUT_OF_ORDER, -1)]

    run(scenario)


def test_after_the_greatest_sequence_comes_zero_and_both_are_known_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        sent = [SEQUENCE_MAX - 1, SEQUENCE_MAX, 0, 1]
        assert [await produce(client, each) for each in sent] == [(NONE, offset) for offset in range(4)]
        assert [await produce(client, each) for each in sent] == [(NONE, offset) for offset in range(4)]

    run(scenario)


def test_a_producer_that_raises_its_epoch_begins_at_zero_and_fences_what_is_left_of_it() -> None:
    """KIP-360: a client that does not know what became of a batch goes on in the next epoch."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        for sequence in range(3):
            await produce(client, sequence)
        assert await produce(client, 3, epoch=1) == (OUT_OF_ORDER, -1)
        assert await produce(client, 0, epoch=1) == (NONE, 3)
        for sequence in (2, 3):
            assert await produce(client, sequence) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await produce(client, 0, epoch=1) == (NONE, 3)

    run(scenario)


def test_an_old_batch_of_a_producer_that_was_forgotten_is_taken_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        for sequence in range(3):
            await produce(client, sequence)
        producers = cluster.brokers[1].log().producers
        for at_ms in itertools.islice(itertools.count(1 << 50, 1 << 50), 2):
            producers.expire(at_ms, 1_000)
        assert producers.producer_ids == []
        assert await produce(client, 3) == (NONE, 3)
        assert await produce(client, 3) == (NONE, 3)

    run(scenario)
