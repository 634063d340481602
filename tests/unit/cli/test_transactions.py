"""`ottla transactions`: what is asked of brokers, and what the person reads."""

import json
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from ottla.broker.coordinator.decisions.transactions.transaction import State
from ottla.broker.wire.messages import describe_producers_response as producers
from ottla.broker.wire.messages import write_txn_markers_response as markers
from ottla.broker.wire.messages.describe_transactions_response import DescribeTransactionsResponse, TopicData
from ottla.broker.wire.messages.describe_transactions_response import TransactionState as Described
from ottla.broker.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.broker.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.broker.wire.messages.list_transactions_response import TransactionState as Listed
from ottla.cli import coordinators, group_requests, leader_requests, transaction_requests
from ottla.cli.failures import CommandError
from ottla.cli.leader_requests import Place
from ottla.cli.transactions import transactions
from ottla.runtime.errors import ErrorCode
from tests.unit.cli.fake_groups import NOW_MS, FakeCluster, PassingTime


class FakeTransactions(FakeCluster):
    """With one transactional id."""

    def __init__(self) -> None:
        super().__init__()
        self.state = "Ongoing"
        self.ends = {Place("t", 0): (0, 9)}

    def describe_transactions(self, request: Any) -> msgspec.Struct:
        (name,) = request.transactional_ids
        if name != "copy":
            return DescribeTransactionsResponse(
                transaction_states=[Described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)]
            )
        topics = [TopicData("t", [0, 1])]
        found = Described(0, name, self.state, 60_000, NOW_MS - 5_000, 7, 3, topics)
        return DescribeTransactionsResponse(transaction_states=[found])

    def list_transactions(self, request: Any) -> msgspec.Struct:
        unknown = [each for each in request.state_filters if each == "PrepareEpochFence"]
        states = [Listed("copy", 7, self.state), Listed("add", 8, "Empty")]
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states)

    def init_producer_id(self, request: Any) -> msgspec.Struct:
        error = max(self.error("init_producer_id"), 0)
        return InitProducerIdResponse(error_code=error)

    def describe_producers(self, request: Any) -> msgspec.Struct:
        found = [producers.ProducerState(8, 1, 5, 1, 4, -1), producers.ProducerState(7, 3, 5, 1, -1, 2)]
        partition = producers.PartitionResponse(0, 0, None, found)
        return producers.DescribeProducersResponse(topics=[producers.TopicResponse("t", [partition])])

    def write_txn_markers(self, request: Any) -> msgspec.Struct:
        result = markers.WritableTxnMarkerPartitionResult(0, max(self.error("write_txn_markers"), 0))
        topic = markers.WritableTxnMarkerTopicResult("t", [result])
        return markers.WriteTxnMarkersResponse(markers=[markers.WritableTxnMarkerResult(7, [topic])])

    def the(self, kind: str) -> Any:
        (found,) = (each for each in self.asked if type(each).__name__ == kind)
        return found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeTransactions:
    made = FakeTransactions()
    for module in (coordinators, leader_requests, group_requests):
        monkeypatch.setattr(module, "Client", made.client)
    for module in (coordinators, leader_requests, transaction_requests):
        monkeypatch.setattr(module, "time", PassingTime())
    return made


def invoke(*given: str) -> Result:
    return CliRunner().invoke(transactions, given)


def rows(*given: str) -> list[dict[str, Any]]:
    done = invoke(*given, "-o", "json")
    assert done.exception is None, done.exception
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_transactions_of_all_brokers_are_listed_by_id(cluster: FakeTransactions) -> None:
    assert [(row["transactional id"], row["state"]) for row in rows("list")] == [("add", "Empty"), ("copy", "Ongoing")]
    assert "knows no state 'PrepareEpochFence'" in str(invoke("list", "--state", "PrepareEpochFence").exception)


def test_a_state_that_no_transaction_has_is_refused_with_those_that_there_are(cluster: FakeTransactions) -> None:
    refused = invoke("list", "--state", "Typo")
    assert refused.exit_code == 2
    assert all(f"'{state.told}'" in refused.stderr for state in State), refused.stderr
    rows("list", "--state", "ongoing")
    assert cluster.the("ListTransactionsRequest").state_filters == ["Ongoing"]


def test_what_is_open_for_long_is_asked_for_by_time_and_state(cluster: FakeTransactions) -> None:
    rows("list", "--longer-than", "2m", "--id-pattern", "c.*")
    request = cluster.the("ListTransactionsRequest")
    assert (request.duration_filter, request.transactional_id_pattern) == (120_000, "c.*")
    assert request.state_filters == ["Ongoing", "PrepareCommit", "PrepareAbort"]


def test_an_open_one_is_described_with_its_age_and_partitions(cluster: FakeTransactions) -> None:
    (row,) = rows("describe", "copy")
    assert (row["open seconds"], row["partitions"], row["coordinator"]) == (5.0, ["t-0", "t-1"], 1)
    assert "5.0 s" in invoke("describe", "copy").stdout
    cluster.state = "CompleteCommit"
    assert rows("describe", "copy")[0]["open seconds"] is None
    assert "no transactional id 'nosuch'" in str(invoke("describe", "nosuch").exception)


def test_an_abort_by_id_fences_the_producer_and_waits_for_the_markers(cluster: FakeTransactions) -> None:
    assert rows("abort", "copy", "--dry-run")[0]["done"] == "would be aborted"
    assert cluster.names("InitProducerIdRequest") == 0
    cluster.errors = {"init_producer_id": [ErrorCode.CONCURRENT_TRANSACTIONS] * 3}
    assert rows("abort", "copy")[0]["done"] == "aborted"
    assert cluster.names("InitProducerIdRequest") == 4
    assert cluster.asked[-1].transaction_timeout_ms == 60_000  # type: ignore[attr-defined]


@pytest.mark.parametrize("state", ["Empty", "CompleteAbort", "PrepareCommit"])
def test_nobody_is_fenced_where_nothing_is_open(cluster: FakeTransactions, state: str) -> None:
    cluster.state = state
    assert rows("abort", "copy")[0]["done"].startswith(f"nothing: it is {state}")
    assert cluster.names("InitProducerIdRequest") == 0


def test_one_that_hangs_in_a_partition_is_ended_by_a_marker(cluster: FakeTransactions) -> None:
    where = ["--topic", "t", "--partition", "0", "--start-offset", "2"]
    assert rows("abort", *where, "--dry-run")[0]["done"] == "would be aborted"
    assert cluster.names("WriteTxnMarkersRequest") == 0
    assert rows("abort", *where)[0]["producer id"] == 7
    (marker,) = cluster.the("WriteTxnMarkersRequest").markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 0)
    assert not marker.transaction_result


def test_where_no_transaction_begins_nothing_is_written(cluster: FakeTransactions) -> None:
    failure = invoke("abort", "--topic", "t", "--partition", "0", "--start-offset", "3").exception
    assert isinstance(failure, CommandError)
    assert "t-0: no transaction begins at 3" in str(failure)
    assert cluster.names("WriteTxnMarkersRequest") == 0


@pytest.mark.parametrize(
    "given", [[], ["copy", "--topic", "t"], ["--topic", "t"], ["--topic", "t", "--partition", "0"]]
)
def test_an_abort_is_told_what_to_end_in_one_way(given: list[str]) -> None:
    assert invoke("abort", *given).exit_code == 2
