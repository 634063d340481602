"""Transactions' requests in all their versions, from the wire to the coordinator and back."""

import asyncio
from typing import Any, cast

import pytest
from msgspec import structs

from ottla.broker.coordinator.decisions.transactions.transaction import State
from ottla.broker.coordinator.placement import partition_of
from ottla.broker.handlers.transaction_descriptions import LOOKED_AT_MAX
from ottla.broker.links.verifier import TIMEOUT_MS
from ottla.broker.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.broker.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.broker.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.broker.wire.messages.end_txn_request import EndTxnRequest
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.broker.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.shard_bench import TIME_MS
from tests.unit.broker.coordinator.transactions.transaction_bench import Bench
from tests.unit.broker.handlers.conftest import Site, partition_view
from tests.unit.broker.handlers.coordinators import Coordinators, InternalTopics

OFFSETS = "__consumer_offsets"


class Groups:
    place: int | None = 3

    def place_of(self, group_id: str) -> int | None:
        return self.place


class Clock:
    def wall_ms(self) -> int:
        return TIME_MS


@pytest.fixture
def bench(site: Site) -> Bench:
    made = Bench()
    site.broker.transactions = cast(Any, Coordinators(made))
    site.broker.groups = cast(Any, Groups())
    site.broker.internal_topics = cast(Any, InternalTopics())
    cast(Any, site.broker.host).clock = Clock()
    return made


def init(site: Site, version: int, name: str = "x", producer_id: int = -1, epoch: int = -1) -> Any:
    return site.ask(InitProducerIdRequest(name, 60_000, producer_id, epoch), version)


def adding(version: int, *, name: str = "x", producer_id: int = 1_001, epoch: int = 0, verify: bool = False) -> Any:
    topics = [AddPartitionsToTxnTopic("t", [0, 1]), AddPartitionsToTxnTopic("u", [7])]
    if version < 4:
        return AddPartitionsToTxnRequest([], name, producer_id, epoch, topics)
    return AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(name, producer_id, epoch, verify, topics)])


def errors(version: int, response: Any) -> dict[tuple[str, int], int]:
    (topics,) = (
        [response.results_by_topic_v3_and_below]
        if version < 4
        else [each.topic_results for each in response.results_by_transaction]
    )
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in topics
        for each in topic.results_by_partition
    }


# --- finding it -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 7))
def test_the_leader_of_its_partition_coordinates_a_transactional_id(site: Site, bench: Bench, version: int) -> None:
    leaders = [2 if index == partition_of("x", 3) else 1 for index in range(3)]
    site.add_topic("__transaction_state", *(partition_view((1, 2), (1, 2), leader) for leader in leaders))
    many = version >= 4
    request = FindCoordinatorRequest("" if many else "x", 1, ["x"] if many else [])
    response = site.ask(request, version)
    found = response.coordinators[0] if many else response
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, 2)


# --- InitProducerId ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_producer_begins(site: Site, bench: Bench, version: int) -> None:
    response = init(site, version)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 1_001, 0)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_who_is_fenced_is_told_in_words_it_knows(site: Site, bench: Bench, version: int) -> None:
    bench.producer()
    response = init(site, version, producer_id=5, epoch=0)
    expected = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert (response.error_code, response.producer_id, response.producer_epoch) == (expected, -1, -1)


def test_who_comes_to_another_node_is_sent_on(site: Site, bench: Bench) -> None:
    wrong = ErrorCode.NOT_COORDINATOR
    assert init(site, 4, "elsewhere").error_code == wrong
    assert site.ask(EndTxnRequest("elsewhere", 1, 0, True), 5).error_code == wrong
    assert set(errors(3, site.ask(adding(3, name="elsewhere"), 3)).values()) == {wrong}
    assert site.ask(AddOffsetsToTxnRequest("elsewhere", 1, 0, "g"), 3).error_code == wrong
    (state,) = site.ask(DescribeTransactionsRequest(["elsewhere"]), 0).transaction_states
    assert state.error_code == wrong


def test_an_empty_name_is_none(site: Site, bench: Bench) -> None:
    wrong = ErrorCode.INVALID_REQUEST
    assert init(site, 4, "").error_code == wrong
    assert site.ask(EndTxnRequest("", 1, 0, True), 5).error_code == wrong
    assert set(errors(3, site.ask(adding(3, name=""), 3)).values()) == {wrong}


# --- AddPartitionsToTxn, AddOffsetsToTxn ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added(site: Site, bench: Bench, version: int) -> None:
    bench.producer()
    found = errors(version, site.ask(adding(version), version))
    assert found == {("t", 0): 0, ("t", 1): 0, ("u", 7): 0}
    assert bench.transaction.partitions == {"t": {0, 1}, "u": {7}}
    assert bench.transaction.client_version == (2 if version >= 4 else 0)


@pytest.mark.parametrize("version", [3, 5])
def test_where_one_partition_is_not_there_none_is_added(site: Site, bench: Bench, version: int) -> None:
    bench.producer()
    request = adding(version)
    topics = request.transactions[0].topics if version >= 4 else request.v3_and_below_topics
    topics.append(AddPartitionsToTxnTopic("none", [0]))
    found = errors(version, site.ask(request, version))
    assert found.pop(("none", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(found.values()) == {ErrorCode.OPERATION_NOT_ATTEMPTED}
    assert bench.transaction.state is State.EMPTY


def test_a_client_adds_no_internal_topic_and_a_broker_may(site: Site, bench: Bench) -> None:
    bench.producer()
    for version, expected in ((3, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (4, ErrorCode.NONE)):
        request = adding(version)
        topics = request.transactions[0].topics if version >= 4 else request.v3_and_below_topics
        topics.append(AddPartitionsToTxnTopic(OFFSETS, [3]))
        found = errors(version, site.ask(request, version))
        assert found[OFFSETS, 3] == expected
        assert found["t", 0] == (ErrorCode.OPERATION_NOT_ATTEMPTED if expected else ErrorCode.NONE)


@pytest.mark.parametrize("version", range(6))
def test_a_fenced_producer_adds_nothing_and_is_told_in_words_it_knows(site: Site, bench: Bench, version: int) -> None:
    bench.producer()
    bench.producer()
    found = errors(version, site.ask(adding(version), version))
    expected = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert set(found.values()) == {expected}


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_verifies_what_is_part_of_a_transaction(site: Site, bench: Bench, version: int) -> None:
    bench.begun({"t": frozenset((0,))})
    found = errors(version, site.ask(adding(version, verify=True), version))
    abort = ErrorCode.TRANSACTION_ABORTABLE
    assert found == {("t", 0): ErrorCode.NONE, ("t", 1): abort, ("u", 7): abort}


def test_a_broker_asks_for_many_transactions_and_each_has_its_answer(site: Site, bench: Bench) -> None:
    bench.producer()
    bench.producer("y")
    topics = [AddPartitionsToTxnTopic("t", [0])]
    asked = [
        AddPartitionsToTxnTransaction("x", 1_001, 0, False, topics),
        AddPartitionsToTxnTransaction("y", 1_001, 0, False, topics),
        AddPartitionsToTxnTransaction("elsewhere", 1_001, 0, True, topics),
    ]
    response = site.ask(AddPartitionsToTxnRequest(asked), 5)
    found = {
        each.transactional_id: each.topic_results[0].results_by_partition[0].partition_error_code
        for each in response.results_by_transaction
    }
    assert found == {"x": 0, "y": ErrorCode.INVALID_PRODUCER_ID_MAPPING, "elsewhere": ErrorCode.NOT_COORDINATOR}
    assert site.ask(AddPartitionsToTxnRequest(), 5).results_by_transaction == []


def test_a_transaction_whose_records_are_not_replicated_keeps_a_broker_s_others_from_no_answer(
    site: Site, bench: Bench
) -> None:
    """The broker asks on one connection, and would have given all of them up."""
    bench.producer()
    bench.commits = False
    topics = [AddPartitionsToTxnTopic("t", [0])]
    asked = [AddPartitionsToTxnTransaction(name, 1_001, 0, False, topics) for name in ("x", "elsewhere")]
    site.send(AddPartitionsToTxnRequest(asked), 5)
    assert not site.written
    site.timers.advance(TIMEOUT_MS // 2)
    response = site.received("AddPartitionsToTxnResponse", 5)
    found = {
        each.transactional_id: each.topic_results[0].results_by_partition[0].partition_error_code
        for each in response.results_by_transaction
    }
    assert found == {"x": ErrorCode.COORDINATOR_NOT_AVAILABLE, "elsewhere": ErrorCode.NOT_COORDINATOR}
    bench.commit()
    assert not site.written
    bench.commits = True
    assert set(errors(5, site.ask(adding(5), 5)).values()) == {0}
    site.timers.advance(TIMEOUT_MS)
    assert not site.written


@pytest.mark.parametrize("version", range(5))
def test_a_group_s_partition_is_added(site: Site, bench: Bench, version: int) -> None:
    bench.producer()
    assert site.ask(AddOffsetsToTxnRequest("x", 1_001, 0, "g"), version).error_code == 0
    assert bench.transaction.partitions == {OFFSETS: {3}}
    bench.init()
    bench.arrive()
    expected = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert site.ask(AddOffsetsToTxnRequest("x", 1_001, 0, "g"), version).error_code == expected


def test_a_group_s_partition_that_is_not_there_yet_is_asked_for_again(site: Site, bench: Bench) -> None:
    bench.producer()
    cast(Any, site.broker.groups).place = None
    response = site.ask(AddOffsetsToTxnRequest("x", 1_001, 0, "g"), 3)
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- EndTxn -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_a_transaction_ends_and_from_version_5_on_the_producer_goes_on_with_the_next_epoch(
    site: Site, bench: Bench, version: int
) -> None:
    bench.begun()
    response = site.ask(EndTxnRequest("x", 1_001, 0, True), version)
    assert response.error_code == ErrorCode.NONE
    assert bench.sent[0].marker[:3] == (1_001, version // 5, True)
    if version >= 5:
        assert (response.producer_id, response.producer_epoch) == (1_001, 1)


@pytest.mark.parametrize("version", range(6))
def test_who_is_fenced_ends_nothing(site: Site, bench: Bench, version: int) -> None:
    bench.producer()
    bench.producer()
    response = site.ask(EndTxnRequest("x", 1_001, 0, True), version)
    assert response.error_code == (ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH)


# --- what administrators ask ------------------------------------------------------------------------------------------


def test_a_transaction_is_described(site: Site, bench: Bench) -> None:
    bench.begun({"t": frozenset((1, 0))})
    found, unknown = site.ask(DescribeTransactionsRequest(["x", "y"]), 0).transaction_states
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", 1_001, 0)
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (60_000, TIME_MS)
    assert [(each.topic, each.partitions) for each in found.topics] == [("t", [0, 1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def names(response: Any) -> list[str]:
    return [each.transactional_id for each in response.transaction_states]


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed_by_state_and_producer(site: Site, bench: Bench, version: int) -> None:
    bench.begun()
    bench.producer("y")
    found = site.ask(ListTransactionsRequest(), version)
    assert [(each.transactional_id, each.transaction_state) for each in found.transaction_states] == [
        ("x", "Ongoing"),
        ("y", "Empty"),
    ]
    found = site.ask(ListTransactionsRequest(["Empty", "PrepareEpochFence", "Nonsense"]), version)
    assert names(found) == ["y"]
    assert found.unknown_state_filters == ["Nonsense"]
    assert names(site.ask(ListTransactionsRequest(["Nonsense"]), version)) == []
    assert names(site.ask(ListTransactionsRequest([], [1_002, 9]), version)) == ["y"]


def test_transactions_are_listed_by_their_age_and_their_name(site: Site, bench: Bench) -> None:
    for name in ("x", "yx"):
        bench.begun(name=name) if name == "x" else bench.producer(name)
    assert names(site.ask(ListTransactionsRequest(["Ongoing"], [], 0), 1)) == []
    cast(Any, site.broker.host).clock = type("Later", (), {"wall_ms": lambda _: TIME_MS + 10})()
    assert names(site.ask(ListTransactionsRequest(["Ongoing"], [], 9), 1)) == ["x"]
    assert names(site.ask(ListTransactionsRequest(["Ongoing"], [], 10), 1)) == []
    assert names(site.ask(ListTransactionsRequest([], [], -1, "x|z"), 2)) == ["x"]
    refused = site.ask(ListTransactionsRequest([], [], -1, "("), 2)
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_while_some_are_loaded_none_are_listed(site: Site, bench: Bench) -> None:
    cast(Any, site.broker.transactions).is_loading = True
    assert site.ask(ListTransactionsRequest(), 0).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_many_are_listed_over_turns(site: Site, bench: Bench) -> None:
    many = 2 * LOOKED_AT_MAX + 5
    for number in range(many):
        bench.producer(str(number))

    async def ask() -> Any:
        site.send(ListTransactionsRequest(), 1)
        assert not site.written
        for _ in range(3):
            await asyncio.sleep(0)
        return site.received("ListTransactionsResponse", 1)

    assert len(asyncio.run(ask()).transaction_states) == many


class Id(int):
    """Counts how often it is compared with another."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Id.compared += 1
        return int.__eq__(self, other)


def test_a_list_of_very_many_producers_is_not_compared_with_all(
    site: Site, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """250,000 of them, 2 MiB, took two seconds of each turn in which 250 transactions were looked at."""
    for number in range(5):
        bench.producer(str(number))
    known = [
        (name, structs.replace(each, producer_id=Id(10_000 + number)))
        for number, (name, each) in enumerate(bench.shard.transactions())
    ]
    monkeypatch.setattr(bench.shard, "transactions", lambda: known)
    Id.compared = 0
    assert names(site.ask(ListTransactionsRequest([], [*range(1_000), 10_003]), 1)) == ["3"]
    assert Id.compared <= 5


def test_what_is_named_again_and_again_is_described_once(site: Site, bench: Bench) -> None:
    """A name takes three bytes, and its transaction may have thousands of partitions."""
    bench.producer("x")
    told = site.ask(DescribeTransactionsRequest(["x", "y", "x", "x"]), 0).transaction_states
    assert [each.transactional_id for each in told] == ["x", "y"]


def test_many_are_described_over_turns(site: Site, bench: Bench) -> None:
    bench.producer("x")
    names = ["x", *(f"missing-{number}" for number in range(2 * LOOKED_AT_MAX))]

    async def ask() -> Any:
        site.send(DescribeTransactionsRequest(names), 0)
        assert not site.written
        for _ in range(2):
            await asyncio.sleep(0)
        return site.received("DescribeTransactionsResponse", 0)

    states = asyncio.run(ask()).transaction_states
    assert [each.transactional_id for each in states] == names
    assert [each.error_code for each in states[:2]] == [0, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]
    assert states[:1] == site.ask(DescribeTransactionsRequest(["x"]), 0).transaction_states


def test_transactions_of_many_topics_are_described_over_more_turns(
    site: Site, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """250 with a thousand topics each were most of a second in one turn."""
    bench.begun(name="x")
    topics = {f"topic-{number}": frozenset((0,)) for number in range(LOOKED_AT_MAX)}
    large = structs.replace(cast(Any, bench.shard.find("x")), partitions=topics)
    monkeypatch.setattr(bench.shard, "find", lambda _: large)

    async def ask() -> Any:
        site.send(DescribeTransactionsRequest(["a", "b", "c"]), 0)
        for _ in range(2):
            assert not site.written
            await asyncio.sleep(0)
        return site.received("DescribeTransactionsResponse", 0)

    assert [len(each.topics) for each in asyncio.run(ask()).transaction_states] == [LOOKED_AT_MAX] * 3
