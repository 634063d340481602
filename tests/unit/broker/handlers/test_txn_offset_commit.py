"""TxnOffsetCommit in all its versions: the transaction's coordinator is asked before the group's."""

from typing import Any, cast

import pytest

from ottla.broker.replication.decisions.verification import Client
from ottla.broker.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.broker.coordinator.groups.group_bench import Bench
from tests.unit.broker.coordinator.groups.test_offsets import offset
from tests.unit.broker.handlers.conftest import Site


class Groups:
    """This node coordinates every group but those whose names say otherwise."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.has_moved = False

    def partition_of(self, group_id: str) -> str:
        if group_id == "elsewhere":
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "another broker does")
        return "its partition"

    def shard_of(self, group_id: str) -> Any:
        if self.has_moved:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "another broker does")
        return self.bench.shard


class Coordinators:
    """Of transactions."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.asked: list[tuple[Any, ...]] = []
        self.before: Any = lambda: None

    def begin(self, partition: Any, batch: Any, transactional_id: str | None, client: Client, then: Any) -> None:
        self.asked.append((partition, batch.producer_id, batch.producer_epoch, transactional_id, client))
        self.before()
        then(1, self.error)


@pytest.fixture
def groups(site: Site) -> Groups:
    made = Groups()
    site.broker.groups = cast(Any, made)
    return made


@pytest.fixture
def coordinators(site: Site) -> Coordinators:
    made = Coordinators()
    site.broker.verifications = cast(Any, made)
    return made


def commit(site: Site, version: int, group: str = "g") -> ErrorCode:
    told = TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5, -1, "")])
    response = site.ask(TxnOffsetCommitRequest("x", group, 7, 2, topics=[told]), version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_committed_once_the_transactions_coordinator_vouched(
    site: Site, groups: Groups, coordinators: Coordinators, version: int
) -> None:
    assert commit(site, version) is ErrorCode.NONE
    client = {4: Client.KNOWS_ABORTABLE, 5: Client.ADDS_NOTHING}.get(version, Client.OLD)
    assert coordinators.asked == [("its partition", 7, 2, "x", client)]
    groups.bench.end_transaction(7, is_commit=True)
    assert offset(groups.bench) == (5, 0)


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.NETWORK_EXCEPTION, 3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_COORDINATOR, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 4, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.INVALID_TXN_STATE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_without_its_word_nothing_is_written(
    site: Site, groups: Groups, coordinators: Coordinators, said: ErrorCode, version: int, told: ErrorCode
) -> None:
    coordinators.error = said
    assert commit(site, version) is told
    assert groups.bench.log == []


def test_the_wrong_broker_says_so_before_it_asks_anybody(
    site: Site, groups: Groups, coordinators: Coordinators
) -> None:
    assert commit(site, 3, "elsewhere") is ErrorCode.NOT_COORDINATOR
    assert commit(site, 3, "") is ErrorCode.INVALID_GROUP_ID
    assert coordinators.asked == []


def test_a_group_that_moves_while_the_coordinator_is_asked_is_looked_for_elsewhere(
    site: Site, groups: Groups, coordinators: Coordinators
) -> None:
    coordinators.before = lambda: setattr(groups, "has_moved", True)
    assert commit(site, 3) is ErrorCode.NOT_COORDINATOR
