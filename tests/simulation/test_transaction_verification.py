"""Transactions begin in a partition only when their coordinator vouches for them: answers late, lost, never, to a leader that is none
any more."""

import asyncio
from typing import Any

import pytest

from ottla.broker.replication.verified_appends import guards_of
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.runtime.errors import ErrorCode
from ottla.testing.replication.broker import TOPIC
from ottla.testing.replication.client import Client, batch
from ottla.testing.replication.cluster import Cluster, run

NONE = ErrorCode.NONE
PRODUCER = 7
OLD, KNOWS_ABORTABLE, ADDS_NOTHING = 10, 11, 12
"""Versions of Produce."""


def send(client: Client, value: bytes = b"value", *, sequence: int = 0, **more: Any) -> None:
    options: dict[str, Any] = {
        "version": ADDS_NOTHING,
        "producer_epoch": 0,
        "producer_id": PRODUCER,
        "transactional_id": "t",
    } | more
    client.send_produce(value, base_sequence=sequence, transactional=True, **options)


async def answer(client: Client, version: int = ADDS_NOTHING) -> tuple[int, int]:
    response = await client.receive("Produce", version, ProduceResponse)
    told = response.responses[0].partition_responses[0]
    return told.error_code, told.base_offset


async def produce(client: Client, value: bytes = b"value", **more: Any) -> tuple[int, int]:
    send(client, value, **more)
    return await answer(client, more.get("version", ADDS_NOTHING))


@pytest.mark.parametrize("version", [9, OLD, KNOWS_ABORTABLE, ADDS_NOTHING])
def test_the_coordinator_is_asked_once_a_transaction(version: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        cluster.transactions.node_id = 2
        client = await cluster.client()
        for sequence in range(3):
            assert await produce(client, sequence=sequence, version=version) == (NONE, sequence)
        (asked,) = cluster.transactions.asked
        (transaction,) = asked.transactions
        assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("t", PRODUCER, 0)
        assert transaction.verify_only is (version != ADDS_NOTHING)
        assert [(each.name, each.partitions) for each in transaction.topics] == [(TOPIC, [0])]
        manager = cluster.brokers[1].manager
        assert manager is not None
        guards = guards_of(manager.partitions[TOPIC, 0])
        assert guards.expire(1 << 60, 0) == 0  # nothing of it is kept

    run(scenario)


@pytest.mark.parametrize("compression", ["producer", "gzip"])
def test_a_transaction_begins_where_the_broker_sets_the_time(compression: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(message_timestamp_type="LogAppendTime", compression_type=compression)
        client = await cluster.client()
        for sequence in range(2):
            assert await produce(client, sequence=sequence) == (NONE, sequence)

    run(scenario)


def test_what_is_asked_in_one_turn_shares_a_request() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(partitions=2)
        client = await cluster.client()
        producer = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": 0}
        parts = [PartitionProduceData(index, bytes(batch(b"v", transactional=True, **producer))) for index in (0, 1)]
        client.send("Produce", 12, ProduceRequest("t", -1, 1_000, [TopicProduceData(TOPIC, partition_data=parts)]))
        response = await client.receive("Produce", 12, ProduceResponse)
        assert [each.error_code for each in response.responses[0].partition_responses] == [NONE, NONE]
        (asked,) = cluster.transactions.asked
        assert asked.transactions[0].topics[0].partitions == [0, 1]

    run(scenario)


@pytest.mark.parametrize("codec", ["producer", "gzip"])
def test_batches_that_a_thread_looks_at_are_verified_too(codec: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,), compression_type=codec)
        client = await cluster.client()
        cluster.transactions.errors = [ErrorCode.INVALID_TXN_STATE]
        assert await produce(client, b"x" * 100_000) == (ErrorCode.INVALID_TXN_STATE, -1)
        assert await produce(client, b"x" * 100_000) == (NONE, 0)

    run(scenario)


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, KNOWS_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, OLD, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, OLD, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ADDS_NOTHING, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, KNOWS_ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, ADDS_NOTHING, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_the_coordinator_says_is_told_in_the_clients_words(said: ErrorCode, version: int, told: ErrorCode) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, isr=(1,))
        client = await cluster.client()
        cluster.transactions.errors = [said]
        assert await produce(client, version=version) == (told, -1)
        log = cluster.brokers[1].log()
        assert log.log_end_offset == 0

    run(scenario)


@pytest.mark.parametrize("is_there", [True, False])
def test_without_a_coordinator_producers_try_again(is_there: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        cluster.transactions.node_id = 2 if is_there else None
        client = await cluster.client()
        cluster.brokers[2].kill()
        assert await produce(client) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        cluster.transactions.node_id = 1
        send(client)
        await asyncio.sleep(0.5)
        assert cluster.brokers[1].log().log_end_offset == 1

    run(scenario)


def test_a_coordinator_that_breaks_the_connection_is_no_proof() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        cluster.transactions.node_id = 2
        client = await cluster.client()
        cluster.transactions.holds = True
        send(client)
        await cluster.until(lambda: len(cluster.transactions.asked) == 1)
        cluster.brokers[2].kill()
        assert await answer(client) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)

    run(scenario)


def test_while_the_transaction_before_is_ended_a_partition_is_added_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        cluster.transactions.errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
        assert await produce(client) == (NONE, 0)
        assert len(cluster.transactions.asked) == 4
        cluster.transactions.errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 100
        refused = await produce(client, producer_id=PRODUCER + 1, transactional_id="u")
        assert refused == (ErrorCode.CONCURRENT_TRANSACTIONS, -1)

    run(scenario)


# --- answers that come too late ---------------------------------------------------------------------------------------


def test_a_batch_that_comes_behind_its_transactions_marker_is_not_written() -> None:
    """It would hold the last stable offset back for ever."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client, coordinator = await cluster.client(), await cluster.client()
        cluster.transactions.holds = True
        send(client, version=OLD)
        await cluster.until(lambda: len(cluster.transactions.asked) == 1)
        assert await coordinator.end_transaction(PRODUCER, 0, commit=False) == NONE
        cluster.brokers[1].run(cluster.transactions.answer)
        assert await answer(client, OLD) == (ErrorCode.INVALID_TXN_STATE, -1)
        assert cluster.brokers[1].log().last_stable_offset == 1

    run(scenario)


def test_a_newer_clients_next_transaction_may_come_before_the_marker_of_its_last() -> None:
    """Its client knows the decision sooner than this partition. The coordinator vouches when the marker is written."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client, coordinator = await cluster.client(), await cluster.client()
        assert await produce(client) == (NONE, 0)
        cluster.transactions.holds = True
        send(client, producer_epoch=1)
        await cluster.until(lambda: len(cluster.transactions.asked) == 2)
        assert await coordinator.end_transaction(PRODUCER, 1, transaction_version=2) == NONE
        cluster.brokers[1].run(cluster.transactions.answer)
        assert await answer(client) == (NONE, 2)

    run(scenario)


def test_a_proof_does_not_outlive_the_leaders_epoch() -> None:
    """Another leader may have written the marker meanwhile."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client, other = await cluster.client(), await cluster.client(2)
        cluster.transactions.holds = True
        send(client, version=OLD)
        await cluster.until(lambda: len(cluster.transactions.asked) == 1)
        cluster.elect(2, (1, 2, 3))
        assert await other.end_transaction(PRODUCER, 0, commit=False) == NONE
        cluster.elect(1, (1, 2, 3))
        cluster.brokers[1].run(cluster.transactions.answer)
        assert await answer(client, OLD) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)  # it is sent again
        send(client, version=OLD)
        await cluster.until(lambda: len(cluster.transactions.asked) == 2)
        cluster.brokers[1].run(cluster.transactions.answer)
        assert await answer(client, OLD) == (NONE, 1)

    run(scenario)


def test_an_answer_that_comes_after_the_leader_went_finds_the_right_one_named() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        cluster.transactions.holds = True
        send(client)
        await cluster.until(lambda: len(cluster.transactions.asked) == 1)
        cluster.elect(2, (1, 2, 3))
        cluster.brokers[1].run(cluster.transactions.answer)
        assert (await answer(client))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_a_batch_does_not_overtake_one_that_was_not_vouched_for() -> None:
    """Its records would stand before those of the first when that comes again."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        cluster.transactions.holds = True
        cluster.transactions.errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        send(client)
        await cluster.until(lambda: len(cluster.transactions.asked) == 1)
        cluster.brokers[1].run(cluster.transactions.answer)
        assert await answer(client) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        send(client, sequence=1)
        await cluster.until(lambda: len(cluster.transactions.asked) == 2)
        cluster.brokers[1].run(cluster.transactions.answer)
        assert await answer(client) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        cluster.transactions.holds = False
        assert [await produce(client, sequence=each) for each in (0, 1)] == [(NONE, 0), (NONE, 1)]

    run(scenario)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (NONE, [(NONE, 0), (NONE, 1)]),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)] * 2),
    ],
)
def test_batches_in_flight_are_vouched_for_together(said: ErrorCode, told: list[tuple[ErrorCode, int]]) -> None:
    """The coordinator is asked once: it could not answer a second question sooner."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        cluster.transactions.holds, cluster.transactions.errors = True, [said]
        asking = cluster.brokers[1].verifications._asking
        for sequence in (0, 1):
            send(client, sequence=sequence)
        await cluster.until(lambda: sum(map(len, asking.values())) == 2)
        assert len(cluster.transactions.asked) == 1
        cluster.brokers[1].run(cluster.transactions.answer)
        assert [await answer(client) for _ in range(2)] == told

    run(scenario)


def test_requests_in_flight_of_a_known_producer_are_written_in_their_order() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client, coordinator = await cluster.client(), await cluster.client()
        assert await produce(client) == (NONE, 0)
        assert await coordinator.end_transaction(PRODUCER, 0) == NONE
        for sequence in range(1, 6):
            send(client, sequence=sequence, version=OLD)
        assert [await answer(client, OLD) for _ in range(5)] == [(NONE, 1 + each) for each in range(1, 6)]

    run(scenario)


def test_version_two_begins_at_zero_where_nobody_knows_the_producer() -> None:
    """A lost write of Jepsen's kind: the first batch was lost, its successor would be taken for the first."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        assert await produce(client, sequence=3) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produce(client, sequence=3, version=OLD, producer_id=8) == (NONE, 0)

    run(scenario)


def test_without_verification_old_clients_are_believed_and_new_ones_still_asked_about() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        assert await produce(client, version=OLD) == (NONE, 0)
        assert await produce(client, producer_id=8, transactional_id="u") == (NONE, 1)
        assert [each.transactions[0].transactional_id for each in cluster.transactions.asked] == ["u"]

    run(scenario, transaction_partition_verification_enable="false")


def test_a_transactional_batch_of_no_transactional_id_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        client = await cluster.client()
        assert await produce(client, transactional_id=None) == (ErrorCode.INVALID_TXN_STATE, -1)

    run(scenario)
