"""What a heartbeat costs: which records it writes, and who waits for them."""

import pytest

from ottla.broker.coordinator.decisions.groups.consumer import writes
from ottla.broker.coordinator.decisions.groups.consumer.records import epoch_record
from ottla.broker.coordinator.decisions.groups.consumer.targets import preferred_assignor
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import (
    INTERVAL_MS,
    Member,
    T,
    assigned,
    beat,
    group_of,
    join,
    pair,
    settle,
)
from tests.unit.broker.coordinator.groups.group_bench import Bench


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_moves_no_timer() -> None:
    bench = Bench()
    one, _ = pair(bench)
    one.beat()
    log, reminded, written = len(bench.log), bench.reminded, len(bench.written)
    bench.topic_ids = {}  # it looks at no topic
    for _ in range(100):
        assert one.beat() is ErrorCode.NONE
    assert (len(bench.log), bench.reminded, len(bench.written)) == (log, reminded, written)


def test_who_is_told_something_new_is_told_when_it_is_committed_and_the_others_at_once() -> None:
    bench = Bench()
    one, two = Member(bench, "one"), Member(bench, "two")
    one.join()
    bench.wait(INTERVAL_MS)
    bench.commits = False
    joins = join(bench, "two")
    revokes = beat(bench, "one", 1, owned=one.owned)
    assert joins.waits
    assert revokes.waits
    bench.commit()
    two.hear(joins)
    one.hear(revokes)
    assert not beat(bench, "one", 1).waits, "it is to give up what it was told to"
    assert not beat(bench, "two", 2).waits, "it goes on waiting for the others"
    released = beat(bench, "one", 1, owned=one.owned)
    assert released.waits
    again = beat(bench, "two", 2, owned={})
    assert again.waits, "it is given what is not committed to be free"


def test_a_coordinator_that_took_over_tells_what_it_has_read_when_that_is_committed() -> None:
    bench = Bench()
    one, _ = pair(bench)
    other = bench.another()
    other.commits = False
    assert not beat(other, "one", one.epoch, owned=one.owned).waits, "it is told what it said"
    asked = join(other, "one")
    assert asked.waits
    other.commit()
    assert assigned(asked) == {T: sorted(one.owned[T])}


def test_only_those_whose_target_changes_are_written() -> None:
    bench = Bench()
    members = [Member(bench, f"m{number}") for number in range(4)]
    settle(members)
    before = len(bench.log)
    Member(bench, "m4").join()
    kinds = sorted(each.key[1] for each in bench.log[before:])
    assert kinds == [3, 5, 6, 7, 8]


def test_an_assignor_that_only_another_node_knows_has_no_vote() -> None:
    assert preferred_assignor({"theirs": 5, "range": 1}, ("uniform", "range")) == "range"
    assert preferred_assignor({"theirs": 5}, ("uniform", "range")) == "uniform"
    assert preferred_assignor({"range": 2, "uniform": 2}, ("uniform", "range")) == "range"


def test_after_a_step_that_is_refused_nothing_more_is_written() -> None:
    bench = Bench()
    told: list[ErrorCode] = []
    chain = writes.Writes(bench, told.append)
    chain.write([epoch_record("g", 1, 0)])
    bench.refuses = ErrorCode.UNKNOWN_SERVER_ERROR
    chain.write([epoch_record("g", 2, 0)])
    bench.refuses = ErrorCode.NONE
    chain.write([epoch_record("g", 3, 0)])
    assert not told
    chain.close()
    assert told == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert group_of(bench).epoch == 1


def test_who_holds_a_partition_may_be_given_it() -> None:
    bench = Bench()
    one, two = pair(bench)
    group = group_of(bench)
    for member, other in ((one, two), (two, one)):
        for topic, partition in member.places:
            assert group.is_free_for(member.id, topic, partition)
            assert not group.is_free_for(other.id, topic, partition)


def test_a_target_of_many_members_is_written_in_pieces_with_its_epoch_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "PIECE_BYTES_MAX", 200)
    bench = Bench()
    for number in range(10):
        join(bench, f"m{number}")
    bench.wait(INTERVAL_MS)
    bench.sizes.clear()
    beat(bench, "m0", 1)
    assert len(bench.sizes) == 3, "two pieces of the target, and what the member holds"
    assert max(bench.sizes) <= 200
    assert group_of(bench).assignment_epoch == 10
    assert bench.shard.contents() == bench.another().shard.contents()
