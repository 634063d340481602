"""What the metrics say of groups, and that looking at many gives others their turn."""

from functools import partial
from typing import Any, cast

import pytest

from ottla.broker.coordinator import metrics
from ottla.broker.coordinator.decisions.groups.counts import GroupCounts
from ottla.broker.coordinator.decisions.transactions.counts import TransactionCounts
from ottla.broker.coordinator.decisions.transactions.effects import Marker
from ottla.broker.coordinator.decisions.transactions.marker_queue import NOWHERE, MarkerQueue, Task
from ottla.broker.coordinator.decisions.transactions.transaction import State, Transaction
from ottla.broker.coordinator.load_times import WINDOW_MS, LoadTimes
from ottla.broker.wire.messages import offset_commit_request as commit
from ottla.broker.wire.messages import offset_delete_request as delete
from ottla.runtime.errors import ErrorCode
from ottla.runtime.metrics import Registry, gather_now
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import Member, settle
from tests.unit.broker.coordinator.groups.group_bench import DAY_MS, Asked, Bench


class Coordinator:
    """Of shards that are benches."""

    def __init__(self, *benches: Bench) -> None:
        self._benches = benches

    def shards(self) -> Any:
        return (each.shard for each in self._benches)

    def states(self) -> dict[str, int]:
        return {"active": 2, "loading": 1}

    def load_times_ms(self) -> list[int]:
        return [10, 30]

    def counts(self) -> GroupCounts:
        return GroupCounts(*map(sum, zip(*(each.shard.counts() for each in self._benches), strict=True)))


def read(*benches: Bench) -> dict[str, Any]:
    registry = Registry()
    registry.add(metrics.GROUP_METRICS, lambda: metrics.look_at_groups(cast(Any, Coordinator(*benches))))
    return {
        "_".join((family.name.split("metrics_")[-1].split("manager_")[-1], *labels)): value
        for family in gather_now(registry)
        for labels, value in family.samples
    }


def commits(bench: Bench, group: str, *partitions: int, topic: str = "t") -> None:
    asked = Asked(9)
    told = [commit.OffsetCommitRequestPartition(each, 7) for each in partitions]
    request = commit.OffsetCommitRequest(
        group, -1, "", topics=[commit.OffsetCommitRequestTopic(topic, partitions=told)]
    )
    bench.shard.commits.commit(asked, request)


def test_groups_are_counted_by_state_and_offsets_by_what_became_of_them() -> None:
    one, other = Bench(), Bench()
    one.shard.begin()
    other.shard.begin()
    one.stable()
    one.new_member(group="waiting")
    commits(other, "h", 0, 1, 2)
    told = read(one, other)
    assert (told["numgroups"], told["group_count_classic"]) == (3, 3)
    assert (told["numgroupsstable"], told["numgroupspreparingrebalance"], told["numgroupsempty"]) == (1, 1, 1)
    assert (told["numgroupscompletingrebalance"], told["numoffsets"]) == (0, 3)
    assert (told["offset_commit_total"], told["group_completed_rebalance_total"]) == (3, 1)
    assert (told["num_partitions_active"], told["num_partitions_loading"]) == (2, 1)
    assert (told["partition_load_time_max"], told["partition_load_time_avg"]) == (30, 20)


def test_groups_of_the_newer_protocol_are_counted_apart() -> None:
    bench = Bench()
    one = Member(bench, "one")
    settle([one])
    commits(bench, "h", 0)
    told = read(bench)
    assert (told["group_count_classic"], told["group_count_consumer"], told["consumer_group_count_Stable"]) == (1, 1, 1)
    assert told["consumer_group_rebalance_total"] == 1


def test_what_expires_is_told_apart_from_what_is_deleted() -> None:
    bench = Bench()
    bench.shard.begin()
    commits(bench, "g", 0, 1, 2)
    commits(bench, "h", 0)
    topic = delete.OffsetDeleteRequestTopic("t", [delete.OffsetDeleteRequestPartition(0)])
    bench.shard.commits.delete(Asked(0), delete.OffsetDeleteRequest("g", [topic]))
    bench.shard.delete(["h"], lambda _: None)
    bench.wait(8 * DAY_MS)
    bench.shard.expire()
    told = read(bench)
    assert (told["offset_deletion_total"], told["offset_expiration_total"]) == (2, 2)
    assert (told["numoffsets"], told["numgroups"]) == (0, 0)


def test_what_was_loaded_is_not_counted_again() -> None:
    bench = Bench()
    bench.shard.begin()
    commits(bench, "g", 0)
    assert bench.another().shard.counts() == GroupCounts()


def test_others_have_their_turn_while_many_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LOOKED_AT_A_SLICE", 10)
    bench = Bench()
    for number in range(35):
        commits(bench, f"g{number}", 0)
    assert len(list(metrics.look_at_groups(cast(Any, Coordinator(bench))))) == 3


def test_a_group_that_goes_while_it_is_looked_at_is_counted_and_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LOOKED_AT_A_SLICE", 1)
    bench = Bench()
    for number in range(3):
        commits(bench, f"g{number}", 0)
    looking = metrics.look_at_groups(cast(Any, Coordinator(bench)))
    next(looking)
    answers: list[dict[str, ErrorCode]] = []
    bench.shard.delete(["g0", "g2"], answers.append)
    assert len(list(looking)) == 2


def test_load_times_are_of_the_last_minute() -> None:
    times = LoadTimes()
    times.record(0, 5)
    times.record(WINDOW_MS, 7)
    assert times.recent_ms(WINDOW_MS) == [5, 7]
    assert times.recent_ms(WINDOW_MS + 1) == [7]


# --- transactions -----------------------------------------------------------------------------------------------------


class Ids(Coordinator):
    """Of one shard with these transactions."""

    def __init__(self, *found: Transaction) -> None:
        self._found = found

    def shards(self) -> Any:
        return iter((self,))

    def transactions(self) -> Any:
        return enumerate(self._found)

    unwritten_count = 3

    def counts(self) -> Any:
        return TransactionCounts(commits=5, aborts=2, timeouts=1)


def transaction(state: State, started_ms: int = -1) -> Transaction:
    return Transaction(producer_id=1, epoch=0, timeout_ms=1, state=state, updated_ms=0, started_ms=started_ms)


def test_transactions_are_counted_by_state_and_the_oldest_open_one_is_told() -> None:
    ids = Ids(
        transaction(State.ONGOING, 9_000),
        transaction(State.ONGOING, 4_000),
        transaction(State.PREPARE_COMMIT, 3_000),
        transaction(State.COMPLETE_ABORT, 1_000),
    )
    registry = Registry()
    look = partial(metrics.look_at_transactions, cast(Any, ids), lambda: 7, lambda: 10_000)
    registry.add(metrics.TRANSACTION_METRICS, look)
    families = {family.name: dict(family.samples) for family in gather_now(registry)}
    states = families["ottla_transaction_coordinator_ids"]
    assert {state: number for (state,), number in states.items() if number} == {
        "Ongoing": 2,
        "PrepareCommit": 1,
        "CompleteAbort": 1,
    }
    assert families["ottla_transaction_coordinator_open_seconds_max"] == {(): 7}
    waiting = "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize"
    assert families[waiting] == {(): 7}
    retried = "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize"
    assert families[retried] == {(): 3}
    assert families["ottla_transaction_coordinator_transactions_total"] == {("commit",): 5, ("abort",): 2}
    assert families["ottla_transaction_coordinator_timeouts_total"] == {(): 1}


def test_markers_without_a_leader_are_counted_by_transaction() -> None:
    leaders: dict[tuple[str, int], int | None] = {("t", 0): 1, ("t", 1): NOWHERE}
    queue = MarkerQueue(lambda topic, index: leaders[topic, index])
    marker = Marker(1, 0, True, 0, 0)
    queue.add(Task(marker, [("t", 0), ("t", 1)], lambda: None))
    queue.add(Task(marker, [("t", 0)], lambda: None))
    assert queue.leaderless() == 1
    leaders["t", 1] = 2
    queue.look_again()
    assert queue.leaderless() == 0
