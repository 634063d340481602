"""What is kept of the rebalances of consumer groups: from an epoch of the group until all have come to its target."""

import msgspec
import pytest

from ottla.broker.coordinator.decisions.groups.consumer import recorder
from ottla.broker.coordinator.decisions.groups.rebalance_record import RebalanceRecord
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import (
    INTERVAL_MS,
    REBALANCE_MS,
    Member,
    beat,
    settle,
)
from tests.unit.broker.coordinator.groups.group_bench import Bench


def told(bench: Bench) -> list[RebalanceRecord]:
    return [msgspec.json.decode(each, type=RebalanceRecord) for each in bench.shard.history("g")[1:]]


def waits_for(bench: Bench) -> list[str]:
    found: list[str] = msgspec.json.decode(bench.shard.history("g")[0])["waits_for"]
    return found


def test_a_member_that_joins_begins_one_and_its_target_ends_it() -> None:
    bench = Bench()
    settle([Member(bench, "one")])
    (record,) = told(bench)
    assert (record.cause.kind, record.cause.member_id, record.is_newer) == ("join", "one", True)
    assert (record.outcome, record.members, record.last_joined) == ("stable", 1, "one")
    assert {move.after for move in record.moved} == {"one"}
    assert record.moved_count == len(record.moved) > 1


def test_it_goes_on_until_what_is_given_up_has_been_taken() -> None:
    bench = Bench()
    one, other = Member(bench, "one"), Member(bench, "other")
    settle([one])
    bench.wait(INTERVAL_MS)
    other.join()
    assert (told(bench)[-1].outcome, waits_for(bench)) == ("", ["one", "other"])
    one.beat()
    bench.wait(300)
    one.beat()
    assert waits_for(bench) == ["other"]
    other.beat()
    record = told(bench)[-1]
    assert (record.cause.member_id, record.outcome, record.last_joined) == ("other", "stable", "other")
    assert (record.joining_ms, record.assigning_ms) == (0, 300)
    assert {(move.before, move.after) for move in record.moved} == {("one", "other")}
    assert record.kept_count > 0
    assert waits_for(bench) == []


def test_what_comes_meanwhile_belongs_to_it() -> None:
    bench = Bench()
    members = [Member(bench, name) for name in ("one", "two", "three")]
    settle(members[:1])
    members[1].join()
    members[2].join()
    settle(members)
    first, record = told(bench)
    assert (first.cause.member_id, record.cause.member_id) == ("one", "two")
    assert [each.member_id for each in record.also] == ["three"]
    assert (record.outcome, record.members) == ("stable", 3)


@pytest.mark.parametrize("way", ["leave", "session timeout"])
def test_who_goes_is_named_and_what_he_had(way: str) -> None:
    bench = Bench()
    one, other = Member(bench, "one"), Member(bench, "other")
    settle([one, other])
    if way == "leave":
        assert other.leave() is ErrorCode.NONE
    else:
        for _ in range(50):
            bench.wait(INTERVAL_MS)
            one.beat()
    settle([one])
    record = told(bench)[-1]
    assert (record.cause.kind, record.cause.member_id, record.members) == (way, "other", 1)
    assert {(move.before, move.after) for move in record.moved} == {("other", "one")}


def test_who_does_not_give_up_is_named() -> None:
    bench = Bench()
    one, other = Member(bench, "one"), Member(bench, "other")
    settle([one])
    everything = dict(one.owned)
    bench.wait(INTERVAL_MS)
    other.join()
    for _ in range(REBALANCE_MS // INTERVAL_MS):
        beat(bench, "one", one.epoch, owned=everything)
        other.beat()
        bench.wait(INTERVAL_MS)
    causes = [each for record in told(bench) for each in (record.cause, *record.also)]
    assert (causes[-1].kind, causes[-1].member_id) == ("partitions not given up", "one")


def test_a_subscription_that_changes_is_told_and_a_topic_that_does() -> None:
    bench = Bench()
    one = Member(bench, "one")
    settle([one])
    one.beat(subscribed_topic_names=["t", "u"])
    settle([one])
    assert told(bench)[-1].cause.kind == "subscription change"


def test_a_target_that_nobody_explained_is_of_other_topics() -> None:
    bench = Bench()
    one = Member(bench, "one")
    settle([one])
    later = bench.another()
    later.shard.consumers.find("g").epoch += 1  # type: ignore[union-attr]
    one.bench = later
    settle([one])
    (record,) = told(later)
    assert (record.cause.kind, record.outcome, record.moved_count) == ("topics changed", "stable", 0)


def test_the_last_to_leave_leaves_nobody() -> None:
    bench = Bench()
    one = Member(bench, "one")
    settle([one])
    one.leave()
    record = told(bench)[-1]
    assert (record.outcome, record.members) == ("empty: nobody is left", 0)


def test_a_deleted_group_leaves_no_history() -> None:
    bench = Bench()
    one = Member(bench, "one")
    settle([one])
    one.leave()
    bench.shard.delete(["g"], lambda _: None)
    assert told(bench) == []


def test_what_moved_among_too_many_partitions_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "COMPARED_PARTITIONS_MAX", 1)
    bench = Bench()
    settle([Member(bench, "one")])
    assert told(bench)[-1].moved_count is None
