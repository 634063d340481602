"""Transactions, with clients that know nothing of us, and what administrators see of them."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.broker.wire.messages.describe_transactions_response import DescribeTransactionsResponse
from ottla.broker.wire.messages.end_txn_request import EndTxnRequest
from ottla.broker.wire.messages.end_txn_response import EndTxnResponse
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.broker.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.broker.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.broker.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.broker.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.cli.client import Client
from ottla.log.records import Record, encode_batch
from ottla.runtime.errors import ErrorCode
from ottla.testing.processes import ProcessCluster, wait_for

PARTITIONS = 3
PATIENCE_S = 60


@pytest.fixture
def made(cluster: ProcessCluster, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(60)
    cluster.wait_for_topic(topic, PARTITIONS)
    return topic


def transactional(cluster: ProcessCluster, name: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "transaction.timeout.ms": 30_000}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


@pytest.fixture
def reader(cluster: ProcessCluster, made: str) -> Iterator[Consumer]:
    """Of what is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"{made}-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(made, index, 0) for index in range(PARTITIONS)])
    yield consumer
    consumer.close()


def write(producer: Producer, topic: str, *values: str) -> None:
    """To all partitions by turns."""
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)


def read(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"only {found}"
        assert message.error() is None, message.error()
        value = message.value()
        assert value is not None
        found.append(value.decode())
    return found


def coordinator(cluster: ProcessCluster, transactional_id: str) -> str:
    with Client(cluster.bootstrap_servers) as client:
        asked = FindCoordinatorRequest("", 1, [transactional_id])
        (found,) = client.call(asked, FindCoordinatorResponse).coordinators
    return f"{found.host}:{found.port}"


def test_a_reader_of_what_is_committed_sees_whole_transactions_and_none_that_was_aborted(
    cluster: ProcessCluster, made: str, reader: Consumer
) -> None:
    producer = transactional(cluster, made)
    for number in range(6):
        producer.begin_transaction()
        write(producer, made, *(f"{number}-{index}" for index in range(PARTITIONS)))
        if number % 2:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    found = read(reader, 9)
    assert sorted(found) == [f"{number}-{index}" for number in (0, 2, 4) for index in range(PARTITIONS)]
    for index in range(PARTITIONS):
        of_one = [each for each in found if each.endswith(str(index))]
        assert of_one == sorted(of_one)


def test_an_open_transaction_is_seen_by_administrators_and_fenced_by_who_begins_with_its_id(
    cluster: ProcessCluster, made: str, reader: Consumer
) -> None:
    zombie = transactional(cluster, made)
    zombie.begin_transaction()
    write(zombie, made, "lost")
    assert zombie.flush(PATIENCE_S) == 0
    with Client(coordinator(cluster, made)) as client:
        asked = DescribeTransactionsRequest([made])
        (state,) = client.call(asked, DescribeTransactionsResponse).transaction_states
        listed = client.call(ListTransactionsRequest(["Ongoing"]), ListTransactionsResponse).transaction_states
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 30_000)
    assert [(each.topic, each.partitions) for each in state.topics] == [(made, [0])]
    assert (made, state.producer_id) in [(each.transactional_id, each.producer_id) for each in listed]

    alive = transactional(cluster, made)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
    alive.begin_transaction()
    write(alive, made, "kept")
    alive.commit_transaction(PATIENCE_S)
    assert read(reader, 1) == ["kept"]


def test_a_deleted_topic_keeps_no_transaction_from_its_end(cluster: ProcessCluster, made: str) -> None:
    producer = transactional(cluster, made)
    producer.begin_transaction()
    write(producer, made, "gone")
    assert producer.flush(PATIENCE_S) == 0
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([made])[made].result(60)
    producer.commit_transaction(PATIENCE_S)

    def is_complete() -> bool:
        with Client(coordinator(cluster, made)) as client:
            asked = DescribeTransactionsRequest([made])
            (state,) = client.call(asked, DescribeTransactionsResponse).transaction_states
        return state.transaction_state == "CompleteCommit"

    wait_for(is_complete, "the transaction to be complete")


def test_a_coordinator_that_is_killed_loses_no_transaction(
    cluster: ProcessCluster, made: str, reader: Consumer
) -> None:
    producer = transactional(cluster, made)
    producer.begin_transaction()
    write(producer, made, "before")
    producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    write(producer, made, "a", "b", "c")
    assert producer.flush(PATIENCE_S) == 0
    address = coordinator(cluster, made)
    (node_id,) = [each.node_id for each in cluster.nodes if address.endswith(f":{each.port}")]
    cluster.kill(node_id)
    try:
        producer.commit_transaction(PATIENCE_S)
        assert sorted(read(reader, 4)) == ["a", "b", "before", "c"]
    finally:
        cluster.start(node_id)


# --- transaction.version 2 (KIP-890), which librdkafka does not speak -------------------------------------------------


def again(ask: Callable[[], ErrorCode]) -> ErrorCode:
    """As clients do, while the transaction before is being ended."""
    told: list[ErrorCode] = []

    def is_answered() -> bool:
        told.append(ask())
        return told[-1] is not ErrorCode.CONCURRENT_TRANSACTIONS

    wait_for(is_answered, "the transaction before to end")
    return told[-1]


class Newer:
    """A producer that adds no partition itself, and whose epoch grows with each of its transactions."""

    def __init__(self, cluster: ProcessCluster, topic: str, name: str) -> None:
        self._bootstrap = cluster.bootstrap_servers
        self._name = name
        with Client(self._bootstrap) as client:
            (found,) = client.call(MetadataRequest([MetadataRequestTopic(name=topic)]), MetadataResponse).topics
            endpoints = {each.node_id: f"{each.host}:{each.port}" for each in found_brokers(client)}
        self._topic_id = found.topic_id
        self._leaders = {each.partition_index: endpoints[each.leader_id] for each in found.partitions}
        self._coordinator = Client(coordinator(cluster, name))
        self._partitions: dict[int, Client] = {}
        self._sequences: dict[int, int] = {}
        told = self._coordinator.call(InitProducerIdRequest(name, 30_000), InitProducerIdResponse)
        assert told.error_code == ErrorCode.NONE
        self.producer = told.producer_id, told.producer_epoch

    def write(self, index: int, value: str) -> ErrorCode:
        return again(partial(self._write, index, value))

    def _write(self, index: int, value: str) -> ErrorCode:
        producer_id, epoch = self.producer
        batch = encode_batch(
            [Record(0, 1, None, value.encode())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences.get(index, 0),
            transactional=True,
        )
        part = TopicProduceData("", self._topic_id, [PartitionProduceData(index, memoryview(batch))])
        leader = self._partitions.setdefault(index, Client(self._leaders[index]))
        told = leader.call(ProduceRequest(self._name, -1, 30_000, [part]), ProduceResponse)
        error = ErrorCode(told.responses[0].partition_responses[0].error_code)
        self._sequences[index] = self._sequences.get(index, 0) + (error is ErrorCode.NONE)
        return error

    def end(self, *, commits: bool) -> ErrorCode:
        return again(partial(self._end, commits))

    def _end(self, commits: bool) -> ErrorCode:
        producer_id, epoch = self.producer
        told = self._coordinator.call(EndTxnRequest(self._name, producer_id, epoch, commits), EndTxnResponse)
        if told.error_code == ErrorCode.NONE:
            self.producer = told.producer_id, told.producer_epoch
            self._sequences.clear()
        return ErrorCode(told.error_code)

    def close(self) -> None:
        for client in (self._coordinator, *self._partitions.values()):
            client.close()


def found_brokers(client: Client) -> list[MetadataResponseBroker]:
    return client.call(MetadataRequest([]), MetadataResponse).brokers


def test_leaders_add_partitions_for_a_newer_producer_whose_epoch_grows_with_each_transaction(
    cluster: ProcessCluster, made: str, reader: Consumer
) -> None:
    with Client(cluster.bootstrap_servers) as client:
        assert client.finalized["transaction.version"] == 2
    producer = Newer(cluster, made, f"{made}-newer")
    first, epoch = producer.producer
    kept = []
    for number in range(6):
        commits = number % 3 != 1
        for index in range(PARTITIONS):
            assert producer.write(index, f"{number}-{index}") is ErrorCode.NONE
            kept += [f"{number}-{index}"] * commits
        assert producer.end(commits=commits) is ErrorCode.NONE
        assert producer.producer == (first, epoch + number + 1)
    assert sorted(read(reader, len(kept))) == kept
    producer.close()


def test_what_a_newer_producer_repeats_is_known_and_what_it_did_before_the_end_is_fenced(
    cluster: ProcessCluster, made: str, reader: Consumer
) -> None:
    producer = Newer(cluster, made, f"{made}-again")
    before = producer.producer
    assert producer.end(commits=True) is ErrorCode.INVALID_TXN_STATE
    assert producer.write(0, "kept") is ErrorCode.NONE
    assert producer.end(commits=True) is ErrorCode.NONE
    after, producer.producer = producer.producer, before
    assert producer.end(commits=False) is ErrorCode.INVALID_TXN_STATE
    assert producer.end(commits=True) is ErrorCode.NONE
    assert producer.producer == after
    producer.producer = before
    assert producer.write(0, "late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.write(1, "late") is ErrorCode.INVALID_PRODUCER_EPOCH
    producer.producer = after
    assert producer.end(commits=False) is ErrorCode.NONE, "to be sure, without a transaction"
    assert producer.write(1, "too") is ErrorCode.NONE
    assert producer.end(commits=True) is ErrorCode.NONE
    assert sorted(read(reader, 2)) == ["kept", "too"]
    producer.close()
