"""The target of a large group is computed and written in pieces, while its members come, go and are heard from."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from ottla.broker.coordinator.decisions.effects import Done, Record
from ottla.broker.coordinator.decisions.groups.assignors import pieces
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.records import group_tombstones
from ottla.broker.wire.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import (
    INTERVAL_MS,
    REBALANCE_MS,
    Member,
    T,
    beat,
    join,
)
from tests.unit.broker.coordinator.groups.group_bench import Bench

LONG_MS = 10_000
"""In which all pieces are done."""


def group_of(bench: Bench) -> ConsumerGroup:
    group = bench.shard.consumers.find("g")
    assert group is not None
    return group


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A shard that does next to nothing in one piece."""
    monkeypatch.setattr(pieces, "PIECE_STEPS", 0.1)
    return Bench()


def trio(bench: Bench) -> list[Member]:
    members = [Member(bench, each, instance_id=f"i-{each}") for each in ("one", "two", "three")]
    for each in members:
        asked = join(bench, each.id, instance_id=each.instance_id)
        bench.wait(LONG_MS)
        each.hear(asked)
    settle_slowly(bench, members)
    assert sorted(len(each.owned[T]) for each in members) == [1, 1, 2]
    return members


def begin(bench: Bench) -> None:
    """A fourth member has joined, and the target with it is under way."""
    join(bench, "four")
    group = group_of(bench)
    assert group.assignment_epoch < group.epoch, "it is not there yet"


def follow(bench: Bench) -> list[str]:
    """The ids of the members whose targets were written from now on, as they come."""
    found: list[str] = []
    write = bench.write

    def writes(records: Sequence[Record], done: Done) -> None:
        for each in records:
            key = each.meaning[0] if each.meaning else None
            if isinstance(key, ConsumerGroupTargetAssignmentMemberKey) and each.value is not None:
                found.append(key.member_id)
        write(records, done)

    bench.write = writes  # type: ignore[method-assign]
    return found


def test_what_fits_into_a_turn_is_done_at_once() -> None:
    bench = Bench()
    asked = join(bench, "one")
    assert asked.said.member_epoch == 1
    assert not [each for each in bench._reminders if "soon" in str(each)]


def test_who_finds_a_target_due_is_told_his_part_of_it_when_it_is_there(slow: Bench) -> None:
    asked = join(slow, "one")
    assert asked.waits
    slow.wait(LONG_MS)
    assert (asked.said.member_epoch, asked.said.assignment.topic_partitions[0].partitions) == (1, [0, 1, 2, 3])


def test_the_others_are_answered_meanwhile(slow: Bench) -> None:
    trio(slow)
    begin(slow)
    group = group_of(slow)
    assert beat(slow, "one", group.members["one"].epoch, instance_id="i-one").error is ErrorCode.NONE
    asked = join(slow, "five")
    assert (asked.error, asked.said.member_epoch) == (ErrorCode.NONE, group.assignment_epoch)


def test_nobody_is_a_member_in_epoch_0(slow: Bench) -> None:
    """Its client would join again and again."""
    one, two = join(slow, "one"), join(slow, "two")
    assert two.waits
    slow.wait(LONG_MS)
    assert (one.said.member_epoch, two.said.member_epoch) == (1, 1)


def test_one_target_of_a_group_is_under_way_at_a_time(slow: Bench) -> None:
    trio(slow)
    begin(slow)
    written = follow(slow)
    slow.time_ms += INTERVAL_MS
    for _ in range(5):
        beat(slow, "one", group_of(slow).members["one"].epoch, instance_id="i-one")
    slow.wait(LONG_MS)
    assert len(written) == len(set(written)), "each part once"
    assert "four" in written


def test_who_joins_meanwhile_makes_the_next_one_due(slow: Bench) -> None:
    trio(slow)
    begin(slow)
    join(slow, "five", ("t", "u"))
    slow.wait(LONG_MS)
    group = group_of(slow)
    assert group.assignment_epoch == group.epoch - 1
    assert (group.targets["four"], group.targets.get("five")) != ({}, {})
    assert "five" not in group.targets
    beat(slow, "one", group.members["one"].epoch, instance_id="i-one")
    slow.wait(LONG_MS)
    assert group.assignment_epoch == group.epoch
    assert group.targets["five"]


def test_who_leaves_meanwhile_has_no_target(slow: Bench) -> None:
    members = trio(slow)
    begin(slow)
    members[0].leave()
    slow.wait(LONG_MS)
    group = group_of(slow)
    assert "one" not in group.targets
    assert slow.shard.contents() == slow.another().shard.contents()
    settle_slowly(slow, members[1:])
    assert {each for target in group.targets.values() for each in target.get(T, ())} == {0, 1, 2, 3}


def test_what_a_member_said_before_it_asked_again_counts_no_more(slow: Bench) -> None:
    """It may have been told since what it has, and be at work with it."""
    three = trio(slow)[2]
    said: dict[str, Any] = {
        "subscribed_topic_names": ["t", "u"],
        "rebalance_timeout_ms": REBALANCE_MS,
        "instance_id": three.instance_id,
    }
    late = beat(slow, three.id, three.epoch, owned={}, **said)
    assert late.waits
    again = beat(slow, three.id, three.epoch, owned=three.owned, **said)
    assert (late.error, again.error) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE)
    slow.wait(LONG_MS)
    member = group_of(slow).members[three.id]
    assert member.assigned[T].keys() == three.owned[T], "it has not said that it gave anything up"


def test_who_waited_for_it_and_is_taken_out_is_told_so(slow: Bench) -> None:
    trio(slow)
    asked = join(slow, "four")
    assert asked.waits
    beat(slow, "four", -1)
    slow.wait(LONG_MS)
    assert asked.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_process_of_a_static_member_gets_what_the_one_before_was_to_have(slow: Bench) -> None:
    """That alone brings no other epoch, so nothing else would bring it another target."""
    members = trio(slow)
    begin(slow)
    epoch = group_of(slow).epoch
    loser = max(members, key=lambda each: len(each.owned[T]))
    loser.leave(-2)
    again = join(slow, "again", instance_id=loser.instance_id)
    assert not again.error
    slow.wait(LONG_MS)
    group = group_of(slow)
    assert (group.epoch, group.assignment_epoch) == (epoch, epoch)
    given = sorted(each for target in group.targets.values() for each in target.get(T, ()))
    assert given == [0, 1, 2, 3], "each has one reader"
    assert loser.id not in group.targets


def test_a_group_that_is_deleted_meanwhile_does_not_come_back(slow: Bench) -> None:
    join(slow, "one")
    beat(slow, "one", -1)
    slow.write(group_tombstones(group_of(slow)), lambda error: None)
    slow.wait(LONG_MS)
    assert slow.shard.consumers.find("g") is None


def test_nor_has_another_one_of_its_name_its_target(slow: Bench) -> None:
    join(slow, "one")
    beat(slow, "one", -1)
    slow.write(group_tombstones(group_of(slow)), lambda error: None)
    asked = join(slow, "two")
    slow.wait(LONG_MS)
    assert asked.said.member_epoch == 1
    assert set(group_of(slow).targets) == {"two"}


def test_an_epoch_that_was_undone_and_came_again_is_another_one(slow: Bench) -> None:
    """The target would be of a member that is none, and nobody would look for another."""
    trio(slow)
    slow.commits = False
    begin(slow)
    epoch = group_of(slow).epoch
    slow.fail()
    assert "four" not in group_of(slow).members
    slow.commits = True
    join(slow, "five")
    group = group_of(slow)
    assert group.epoch == epoch
    slow.wait(LONG_MS)
    beat(slow, "one", group.members["one"].epoch, instance_id="i-one")
    slow.wait(LONG_MS)
    assert group.assignment_epoch == epoch
    assert group.targets["five"]


def test_a_part_that_cannot_be_written_is_computed_anew_at_the_next_heartbeat(slow: Bench) -> None:
    trio(slow)
    asked = join(slow, "four")
    slow.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    slow.wait(LONG_MS)
    slow.refuses = ErrorCode.NONE
    group = group_of(slow)
    assert group.assignment_epoch < group.epoch
    assert not asked.waits
    beat(slow, "four", 0, rebalance_timeout_ms=1, subscribed_topic_names=["t"], owned={})
    slow.wait(LONG_MS)
    assert group.assignment_epoch == group.epoch


def test_who_waits_for_it_is_told_when_the_coordinator_is_another_one(slow: Bench) -> None:
    asked = join(slow, "one")
    assert asked.waits
    for _ in slow.shard.end(ErrorCode.NOT_COORDINATOR):
        pass
    assert asked.error is ErrorCode.NOT_COORDINATOR


def test_so_is_who_waits_for_that_of_a_group_in_whose_place_another_has_come(slow: Bench) -> None:
    """As where it became a classic group and a consumer group again within a few turns. The same member may be in both."""
    first = join(slow, "one")
    beat(slow, "one", -1)
    slow.write(group_tombstones(group_of(slow)), lambda error: None)
    second = join(slow, "two")
    assert first.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert second.waits
    for _ in slow.shard.end(ErrorCode.NOT_COORDINATOR):
        pass
    assert second.error is ErrorCode.NOT_COORDINATOR


def test_another_coordinator_goes_on_from_a_part_of_it(slow: Bench) -> None:
    members = trio(slow)
    members.append(Member(slow, "four"))
    begin(slow)
    slow.wait(200)
    other = slow.another()
    for each in members:
        each.bench = other
    settle_slowly(other, members)
    assert [len(each.owned[T]) for each in members] == [1, 1, 1, 1]


def settle_slowly(bench: Bench, members: Sequence[Member]) -> None:
    for _ in range(4):
        for each in members:
            joins = partial(join, bench, each.id, instance_id=each.instance_id)
            beats = partial(beat, bench, each.id, each.epoch, owned=each.owned, instance_id=each.instance_id)
            asked = beats() if each.is_in else joins()
            bench.wait(LONG_MS // 4)
            each.hear(asked)


def test_no_turn_writes_more_than_a_few_thousand_steps_worth() -> None:
    """A thousand members, a thousand partitions: no write of them takes much longer than a piece."""
    bench = Bench()
    bench.partitions[T] = 1_000
    for number in range(1_000):
        join(bench, f"m{number:04d}")
    bench.wait(LONG_MS)
    del bench.written[:]
    asked = beat(bench, "m0000", 1)
    bench.wait(LONG_MS)
    group = group_of(bench)
    assert group.assignment_epoch == group.epoch == 1_000
    assert all(len(target[T]) == 1 for target in group.targets.values())
    assert not asked.waits
    assert max(bench.written) <= 101, "records a piece"
