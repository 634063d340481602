"""What Jepsen found of transactions in Kafka (KAFKA-17754, December 2024), by name, as far as partitions can prevent it.

A message of one transaction that is delayed until the producer's next one is under way counted as part of that. With
transaction.version 2 each transaction has an epoch of its own, and whatever is of an earlier one is refused.
"""

from typing import Any

from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.log.batch import headers
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.client import Client
from ottla.testing.replication.cluster import Cluster, run

NONE = ErrorCode.NONE
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
PRODUCER = 7
READ_COMMITTED = 1


async def produce(client: Client, value: bytes, epoch: int, sequence: int = 0, **more: Any) -> int:
    client.send_produce(
        value,
        version=12,
        transactional_id="t",
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
        **more,
    )
    response = await client.receive("Produce", 12, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


async def end(client: Client, epoch: int, *, commit: bool) -> int:
    """Ends the transaction whose epoch is one less."""
    return await client.end_transaction(PRODUCER, epoch, commit=commit, transaction_version=2)


async def visible(client: Client) -> tuple[list[int], list[int], int]:
    """First offsets of the batches that readers of what is committed get, those of aborted transactions, and how far they see."""
    found: list[int] = []
    aborted: dict[int, None] = {}
    offset = stable = 0
    while True:
        read = await client.fetch(offset, isolation_level=READ_COMMITTED)
        stable = read.last_stable_offset
        aborted |= dict.fromkeys(each.first_offset for each in read.aborted_transactions or ())
        if not read.records:
            return found, list(aborted), stable
        for _, header in headers(read.records):
            if not header.is_control:
                found.append(header.base_offset)
            offset = header.next_offset


def test_lost_write_an_abort_that_comes_late_does_not_take_the_next_transaction_with_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        assert await produce(client, b"first", 0) == NONE
        assert await end(client, 1, commit=False) == NONE
        assert await produce(client, b"second", 1) == NONE
        assert await end(client, 1, commit=False) == FENCED  # the abort of the first, again
        assert await produce(client, b"third", 1, 1) == NONE
        assert await end(client, 2, commit=True) == NONE
        assert await visible(client) == ([0, 2, 3], [0], 5)

    run(scenario)


def test_aborted_read_a_write_of_an_aborted_transaction_that_comes_late_is_not_committed_with_the_next() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        assert await produce(client, b"first", 0) == NONE
        assert await end(client, 1, commit=False) == NONE
        assert await produce(client, b"late", 0, 1) == FENCED
        assert await produce(client, b"second", 1) == NONE
        assert await produce(client, b"late", 0, 1) == FENCED
        assert await end(client, 2, commit=True) == NONE
        assert await visible(client) == ([0, 2], [0], 4)

    run(scenario)


def test_torn_transaction_a_commit_that_comes_late_does_not_commit_half_of_the_next() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        assert await produce(client, b"first", 0) == NONE
        assert await end(client, 1, commit=True) == NONE
        assert await produce(client, b"half", 1) == NONE
        assert await end(client, 1, commit=True) == FENCED
        assert (await visible(client))[2] == 2
        assert await produce(client, b"other half", 1, 1) == NONE
        assert await end(client, 2, commit=False) == NONE
        assert await visible(client) == ([0, 2, 3], [2], 5)

    run(scenario)


def test_torn_transaction_a_write_that_comes_late_to_a_partition_of_no_transaction_begins_none() -> None:
    """The partition never heard of the epoch: its leader asks who does, who says that it is over."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=2)
        client = await cluster.client()
        assert await produce(client, b"first", 0) == NONE
        assert await end(client, 1, commit=True) == NONE
        cluster.transactions.errors = [ErrorCode.PRODUCER_FENCED]
        assert await produce(client, b"late", 0, index=1) == FENCED
        assert cluster.brokers[1].log(1).log_end_offset == 0

    run(scenario)


def test_lost_write_a_first_batch_that_is_lost_is_not_replaced_by_the_second() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        cluster.transactions.errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert await produce(client, b"first", 0) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await produce(client, b"second", 0, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await produce(client, b"first", 0) == NONE
        assert await produce(client, b"second", 0, 1) == NONE
        assert await end(client, 1, commit=True) == NONE
        assert await visible(client) == ([0, 1], [], 3)

    run(scenario)
