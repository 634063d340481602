"""Requests about transactions and members of the newer protocol that nobody would send who means well, and late ones."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.broker.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.end_txn_request import EndTxnRequest
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.broker.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.log.records import Record, encode_batch
from ottla.runtime.errors import ErrorCode
from ottla.testing.processes import ProcessCluster, wait_for
from tests.integration.wire import Connection, frame, nobody_disturbed

TOPIC = "calm"
STORM = 3_000
IN_FLIGHT = 50
MEMBER_EPOCH_JOIN = 0
TRANSACTIONS_VERSION_2 = (12, 5)
"""Versions of Produce and EndTxn with which clients speak transaction.version 2."""


@pytest.fixture(scope="module")
def single() -> Iterator[ProcessCluster]:
    settings = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    with ProcessCluster(nodes=1, settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
        connection = Connection(running.node(1).port)
        for kind in (0, 1):
            wait_for(lambda kind=kind: is_coordinated(connection, kind), "the coordinators")  # type: ignore[misc]  # called now
        wait_for(lambda: asked(connection) is ErrorCode.NONE, "a producer's id")
        connection.close()
        yield running


@pytest.fixture
def connection(single: ProcessCluster) -> Iterator[Connection]:
    opened = Connection(single.node(1).port)
    yield opened
    opened.close()


def is_coordinated(connection: Connection, kind: int) -> bool:
    return not connection.ask(FindCoordinatorRequest("calm", kind), 3).error_code


def asked(connection: Connection) -> ErrorCode:
    """Of a producer that means well, again and again."""
    return ErrorCode(connection.ask(InitProducerIdRequest("calm", 10_000), 4).error_code)


def producer_of(connection: Connection, transactional_id: str) -> tuple[int, int]:
    told = connection.ask(InitProducerIdRequest(transactional_id, 60_000), 4)
    assert told.error_code == ErrorCode.NONE
    return told.producer_id, told.producer_epoch


def add(transactional_id: str, producer: tuple[int, int], topic: str, count: int) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(topic, list(range(count)))]
    return AddPartitionsToTxnRequest([], transactional_id, *producer, topics)


def offsets(transactional_id: str, producer: tuple[int, int], **more: Any) -> TxnOffsetCommitRequest:
    topic = TxnOffsetCommitRequestTopic(
        more.pop("topic", TOPIC), [TxnOffsetCommitRequestPartition(more.pop("partition", 0), 1)]
    )
    return TxnOffsetCommitRequest(transactional_id, "group", *producer, topics=[topic], **more)


def error_of_offsets(connection: Connection, request: TxnOffsetCommitRequest) -> ErrorCode:
    return ErrorCode(connection.ask(request, 3).topics[0].partitions[0].error_code)


def test_a_hundred_thousand_partitions_that_are_not_there_are_not_added(
    single: ProcessCluster, connection: Connection
) -> None:
    producer = producer_of(connection, "many")
    with nobody_disturbed(single, asked):
        for topic in ("nowhere", TOPIC):
            answer = connection.ask(add("many", producer, topic, 100_000), 3)
            (told,) = answer.results_by_topic_v3_and_below
            errors = Counter(ErrorCode(each.partition_error_code) for each in told.results_by_partition)
            known = {"nowhere": 0, TOPIC: 1}[topic]
            assert errors[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == 100_000 - known
            assert errors[ErrorCode.OPERATION_NOT_ATTEMPTED] == known


@pytest.mark.parametrize(
    ("known", "producer", "expected"),
    [
        (True, (0, 1), ErrorCode.INVALID_PRODUCER_EPOCH),
        (True, (1_000_000, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (False, (0, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_who_is_not_the_producer_of_a_transaction_adds_and_ends_nothing(
    connection: Connection, known: bool, producer: tuple[int, int], expected: ErrorCode
) -> None:
    """``producer``: added to what it is."""
    mine = producer_of(connection, "mine")
    other = (mine[0] + producer[0], mine[1] + producer[1])
    name = "mine" if known else "nobody's"
    (topic,) = connection.ask(add(name, other, TOPIC, 1), 1).results_by_topic_v3_and_below
    assert ErrorCode(topic.results_by_partition[0].partition_error_code) is expected
    assert ErrorCode(connection.ask(EndTxnRequest(name, *other, True), 1).error_code) is expected


def test_a_broker_that_does_not_coordinate_a_transaction_says_so(cluster: ProcessCluster, topic: str) -> None:
    """To each of its requests; of its offsets the group's coordinator has to be asked."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(60)
    cluster.wait_for_topic(topic)
    asking = Connection(cluster.node(1).port)
    nodes = {}
    for kind, name in ((0, "group"), (1, "somewhere")):

        def found(kind: int = kind, name: str = name) -> bool:
            told = asking.ask(FindCoordinatorRequest(name, kind), 3)
            nodes[kind] = told.node_id
            return not told.error_code

        wait_for(found, "a coordinator")
    producer = (0, 0)
    elsewhere = Connection(cluster.node(nodes[1] % 3 + 1).port)
    answers = [
        elsewhere.ask(InitProducerIdRequest("somewhere", 10_000), 4).error_code,
        elsewhere.ask(add("somewhere", producer, topic, 1), 1)
        .results_by_topic_v3_and_below[0]
        .results_by_partition[0]
        .partition_error_code,
        elsewhere.ask(AddOffsetsToTxnRequest("somewhere", *producer, "group"), 3).error_code,
        elsewhere.ask(EndTxnRequest("somewhere", *producer, True), 3).error_code,
    ]
    assert set(answers) == {ErrorCode.NOT_COORDINATOR}
    not_the_groups = Connection(cluster.node(nodes[0] % 3 + 1).port)
    assert error_of_offsets(not_the_groups, offsets("somewhere", producer, topic=topic)) is ErrorCode.NOT_COORDINATOR
    for each in (asking, elsewhere, not_the_groups):
        each.close()


@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31 - 1])
def test_a_transaction_that_may_take_for_ever_is_refused(connection: Connection, timeout_ms: int) -> None:
    told = connection.ask(InitProducerIdRequest("slow", timeout_ms), 4)
    assert told.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_offsets_of_a_transaction_are_taken_from_members_for_partitions_that_are_there(connection: Connection) -> None:
    producer = producer_of(connection, "offsets")
    assert connection.ask(AddOffsetsToTxnRequest("offsets", *producer, "group"), 3).error_code == ErrorCode.NONE
    for topic, partition in (("nowhere", 0), (TOPIC, 1), (TOPIC, -1)):
        refused = offsets("offsets", producer, topic=topic, partition=partition)
        assert error_of_offsets(connection, refused) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stranger = offsets("offsets", producer, generation_id=7, member_id="stranger")
    assert error_of_offsets(connection, stranger) in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_storm_of_members_of_the_newer_protocol_disturbs_nobody(single: ProcessCluster) -> None:
    """Each is a process that is never heard from again."""
    with nobody_disturbed(single, asked):
        connections = [Connection(single.node(1).port) for _ in range(STORM // IN_FLIGHT)]
        told: Counter[ErrorCode] = Counter()
        for place, each in enumerate(connections):
            each.send(b"".join(frame(beat(f"{place}-{number}"), 1) for number in range(IN_FLIGHT)))
        for each in connections:
            for _ in range(IN_FLIGHT):
                told[ErrorCode(each.answer(beat(""), 1).error_code)] += 1
            each.close()
    assert set(told) <= {ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED}, told


def beat(member_id: str, group: str = "storm", topics: list[str] | None = None) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group, member_id, MEMBER_EPOCH_JOIN)
    request.rebalance_timeout_ms = 10_000
    request.subscribed_topic_names = topics or [TOPIC]
    request.topic_partitions = []
    return request


def test_a_member_that_subscribes_to_ten_thousand_names_disturbs_nobody(single: ProcessCluster) -> None:
    with nobody_disturbed(single, asked):
        connection = Connection(single.node(1).port)
        names = [f"{number}-" + "n" * 200 for number in range(10_000)]
        told = ErrorCode(connection.ask(beat("greedy", "greedy", names), 1).error_code)
        assert told is not ErrorCode.NONE, "2 MB: no record holds it"
        assert ErrorCode(connection.ask(beat("modest", "greedy"), 1).error_code) is ErrorCode.NONE
        connection.close()


# --- Jepsen's (KAFKA-17754) -------------------------------------------------------------------------------------------


def written(connection: Connection, transactional_id: str, producer: tuple[int, int], sequence: int) -> ErrorCode:
    """One record of a transaction, by a client that lets the leader add the partition."""
    batch = encode_batch(
        [Record(0, 1_700_000_000_000, b"k", b"v")],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        transactional=True,
    )
    data = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, memoryview(batch))])]
    request = ProduceRequest(transactional_id, -1, 10_000, data)
    answer = connection.ask(request, TRANSACTIONS_VERSION_2[0])
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def stable_end(connection: Connection) -> int:
    request = ListOffsetsRequest(-1, 1, [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, -1)])])
    found: int = connection.ask(request, 5).topics[0].partitions[0].offset
    return found


def test_the_end_of_a_transaction_that_comes_late_does_not_end_the_next_one(connection: Connection) -> None:
    """Aborted reads and torn transactions: an EndTxn that the network held back arrives while the next transaction is open."""
    name = "late"
    first = producer_of(connection, name)
    assert written(connection, name, first, 0) is ErrorCode.NONE
    commit = EndTxnRequest(name, *first, True)
    ended = connection.ask(commit, TRANSACTIONS_VERSION_2[1])
    assert ended.error_code == ErrorCode.NONE
    second = (ended.producer_id, ended.producer_epoch)
    assert second == (first[0], first[1] + 1)
    wait_for(lambda: written(connection, name, second, 0) is ErrorCode.NONE, "the next transaction")
    before = stable_end(connection)

    late = connection.ask(commit, TRANSACTIONS_VERSION_2[1])

    assert late.error_code != ErrorCode.NONE
    assert stable_end(connection) == before
    assert connection.ask(EndTxnRequest(name, *second, False), TRANSACTIONS_VERSION_2[1]).error_code == ErrorCode.NONE
    wait_for(lambda: stable_end(connection) > before, "the abort to be written")
