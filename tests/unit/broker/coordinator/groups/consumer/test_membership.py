"""Members leave, fall silent, do not give up in time, are replaced by another process, come back (KIP-848; kraft.md 5.3)."""

from time import process_time

import pytest

from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember, MemberState
from ottla.broker.coordinator.decisions.groups.consumer.records import current_record
from ottla.broker.coordinator.decisions.groups.consumer.requests import owned_of
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import (
    INTERVAL_MS,
    REBALANCE_MS,
    Member,
    T,
    beat,
    join,
    settle,
)
from tests.unit.broker.coordinator.groups.group_bench import Asked, Bench

SESSION_MS = 45_000


def group_of(bench: Bench) -> ConsumerGroup:
    group = bench.shard.consumers.find("g")
    assert group is not None
    return group


def pair(bench: Bench) -> tuple[Member, Member]:
    one, two = Member(bench, "one"), Member(bench, "two")
    settle([one, two])
    return one, two


def giving_up(bench: Bench) -> tuple[Member, Member]:
    """The first has been told to give two partitions up, for the second."""
    one, two = Member(bench, "one"), Member(bench, "two")
    one.join()
    bench.wait(INTERVAL_MS)
    two.join()
    beat(bench, "one", one.epoch, owned=one.owned)
    assert group_of(bench).members["one"].state is MemberState.UNREVOKED_PARTITIONS
    return one, two


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_what_a_member_had_goes_to_the_others_when_it_leaves() -> None:
    bench = Bench()
    one, two = pair(bench)
    asked = beat(bench, "one", -1)
    assert (asked.said.member_id, asked.said.member_epoch) == ("one", -1)
    bench.wait(INTERVAL_MS)
    two.beat()
    assert len(two.owned[T]) == 4
    assert not two.revoked
    assert one.id not in group_of(bench).targets


def test_the_last_one_leaves_an_empty_group_whose_epoch_goes_on() -> None:
    bench = Bench()
    one, two = pair(bench)
    one.leave()
    two.leave()
    group = group_of(bench)
    assert (group.state, group.epoch) == (ConsumerGroupState.EMPTY, 4)
    assert not group.owners
    bench.wait(SESSION_MS)
    assert bench.reminders == 0
    assert Member(bench, "three").join() is ErrorCode.NONE
    assert group.epoch == 5


def test_no_timer_is_left_of_a_member_that_left() -> None:
    bench = Bench()
    giving_up(bench)
    beat(bench, "one", -1)
    beat(bench, "two", -1)
    assert bench.reminders == 0


# --- silence ----------------------------------------------------------------------------------------------------------


def test_a_member_that_is_not_heard_from_is_taken_out() -> None:
    bench = Bench()
    _, two = pair(bench)
    for _ in range(5):
        bench.wait(SESSION_MS // 5)
        two.beat()
    two.beat()
    assert list(group_of(bench).members) == ["two"]
    assert len(two.owned[T]) == 4


def test_a_member_that_is_heard_from_stays() -> None:
    bench = Bench()
    one, _ = pair(bench)
    for _ in range(10):
        assert one.beat() is ErrorCode.NONE
        bench.wait(SESSION_MS - 1)


def test_who_is_taken_out_before_his_answer_is_committed_is_told_so_and_of_no_partitions() -> None:
    """Others may have them by the time he hears of them."""
    bench = Bench(commits=False)
    asked = join(bench, "one")
    bench.wait(SESSION_MS)
    bench.commit()
    assert asked.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert asked.said.assignment is None


def test_another_coordinator_gives_members_a_session_and_then_takes_them_out() -> None:
    bench = Bench()
    pair(bench)
    other = bench.another()
    other.wait(SESSION_MS - 1)
    assert len(group_of(other).members) == 2
    other.wait(1)
    assert not group_of(other).members
    assert other.reminders == 0


def test_a_member_that_could_not_be_taken_out_is_looked_at_again() -> None:
    bench = Bench()
    pair(bench)
    bench.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.wait(SESSION_MS)
    assert len(group_of(bench).members) == 2
    bench.refuses = ErrorCode.NONE
    bench.wait(SESSION_MS)
    assert not group_of(bench).members


# --- giving up --------------------------------------------------------------------------------------------------------


def test_a_member_that_does_not_give_up_in_time_is_taken_out_although_it_is_heard_from() -> None:
    bench = Bench()
    one, two = giving_up(bench)
    while bench.clock_ms < REBALANCE_MS - 10_000:
        beat(bench, "one", one.epoch, owned=one.owned)
        two.beat()
        bench.wait(10_000)
    assert not two.owned
    beat(bench, "one", one.epoch)
    two.beat()
    bench.wait(20_000)
    two.beat()
    assert len(two.owned[T]) == 4
    assert one.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_gives_up_in_time_stays() -> None:
    bench = Bench()
    one, two = giving_up(bench)
    bench.wait(SESSION_MS - 1)
    one.owned = {T: frozenset(sorted(group_of(bench).members["one"].assigned[T]))}
    for _ in range(5):
        one.beat()
        two.beat()
        bench.wait(SESSION_MS - 1)
    assert len(group_of(bench).members) == 2


def test_a_member_that_names_a_topic_for_each_of_its_partitions_has_all_of_them() -> None:
    bench = Bench()
    one, _ = giving_up(bench)
    member = group_of(bench).members["one"]
    told = [TopicPartitions(T, [each]) for each in (*member.revoking[T], *member.assigned[T])]
    request = ConsumerGroupHeartbeatRequest("g", "one", one.epoch, topic_partitions=told)
    bench.shard.heartbeats.heartbeat(Asked(1), request)
    assert group_of(bench).members["one"].state is MemberState.UNREVOKED_PARTITIONS


def test_a_member_that_names_a_topic_thousands_of_times_holds_nobody_up() -> None:
    """Those that fit into 2 MiB took a minute of one turn of the loop."""
    told = [TopicPartitions(T, [each]) for each in range(40_000)]
    begun = process_time()
    assert owned_of(ConsumerGroupHeartbeatRequest("g", "one", 1, topic_partitions=told)) == {
        T: frozenset(range(40_000))
    }
    assert process_time() - begun < 3.0


def test_what_a_member_has_just_given_up_may_be_its_own_again() -> None:
    bench = Bench()
    one, two = giving_up(bench)
    one.owned = {T: frozenset(group_of(bench).members["one"].assigned[T])}
    two.leave()
    bench.wait(INTERVAL_MS)
    one.beat()
    assert len(one.owned[T]) == 4, "in the same answer"
    assert group_of(bench).state is ConsumerGroupState.STABLE


def test_who_gives_up_has_its_time_again_at_another_coordinator() -> None:
    bench = Bench()
    giving_up(bench)
    other = bench.another()
    for _ in range(2):
        other.wait(REBALANCE_MS // 2 - 1)
        beat(other, "one", 1)
        beat(other, "two", 2)
    assert "one" in group_of(other).members
    other.wait(2)
    assert "one" not in group_of(other).members


def test_a_member_that_could_not_be_taken_out_for_giving_up_late_is_looked_at_again() -> None:
    bench = Bench()
    one, two = giving_up(bench)
    bench.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.wait(SESSION_MS - 1)
    bench.refuses = ErrorCode.NONE
    beat(bench, "one", one.epoch)
    two.beat()
    bench.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.wait(REBALANCE_MS - SESSION_MS + 1)
    bench.refuses = ErrorCode.NONE
    assert "one" in group_of(bench).members
    for _ in range(2):
        beat(bench, "one", one.epoch)
        two.beat()
        bench.wait(REBALANCE_MS // 2)
    assert "one" not in group_of(bench).members


def test_who_says_that_it_needs_no_time_to_give_up_is_tried_once_a_second_where_it_cannot_be_taken_out() -> None:
    """While too few replicas are in sync that was tried each turn of the loop, for nothing."""
    bench = Bench()
    join(bench, "one", rebalance_timeout_ms=0)
    join(bench, "two")
    bench.wait(INTERVAL_MS)
    beat(bench, "two", 1)
    beat(bench, "one", 1, owned={T: range(4)})
    assert group_of(bench).members["one"].state is MemberState.UNREVOKED_PARTITIONS
    bench.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.reminded = 0
    bench.wait(10_000)
    assert 10 <= bench.reminded <= 30
    bench.refuses = ErrorCode.NONE
    bench.wait(1_000)
    assert "one" not in group_of(bench).members


# --- static members ---------------------------------------------------------------------------------------------------


def static_pair(bench: Bench) -> tuple[Member, Member]:
    one, two = Member(bench, "one", instance_id="i1"), Member(bench, "two", instance_id="i2")
    settle([one, two])
    return one, two


def test_a_static_member_comes_back_as_another_process_to_what_it_had() -> None:
    bench = Bench()
    one, two = static_pair(bench)
    mine, epoch = one.owned, group_of(bench).epoch
    assert one.leave(-2) is ErrorCode.NONE
    two.beat()
    again = Member(bench, "three", instance_id="i1")
    assert again.join() is ErrorCode.NONE
    assert again.owned == mine
    assert group_of(bench).epoch == epoch, "nobody else hears of it"
    assert sorted(group_of(bench).members) == ["three", "two"]
    assert sorted(group_of(bench).targets) == ["three", "two"]
    assert not two.revoked[2:]


def test_a_static_member_that_does_not_come_back_in_time_is_gone() -> None:
    bench = Bench()
    one, two = static_pair(bench)
    one.leave(-2)
    for _ in range(5):
        bench.wait(SESSION_MS // 5)
        two.beat()
    two.beat()
    assert len(two.owned[T]) == 4
    assert "i1" not in group_of(bench).static


def test_an_instance_that_is_in_use_is_not_given_to_another_process() -> None:
    bench = Bench()
    one, _ = static_pair(bench)
    assert join(bench, "three", instance_id="i1").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert one.beat() is ErrorCode.NONE


def test_the_process_of_an_instance_joins_again_under_its_own_id() -> None:
    bench = Bench()
    one, _ = static_pair(bench)
    mine = one.owned
    assert one.join() is ErrorCode.NONE
    assert one.owned == mine


def test_the_process_before_is_fenced() -> None:
    bench = Bench()
    one, _ = static_pair(bench)
    one.leave(-2)
    Member(bench, "three", instance_id="i1").join()
    assert beat(bench, "one", one.epoch, instance_id="i1").error is ErrorCode.FENCED_INSTANCE_ID
    assert beat(bench, "one", -1, instance_id="i1").error is ErrorCode.FENCED_INSTANCE_ID
    assert beat(bench, "one", one.epoch).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(bench, "one", 3, instance_id="nix").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(bench, "one", -2, instance_id="nix").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_leave_for_good() -> None:
    bench = Bench()
    one, two = static_pair(bench)
    one.leave(-1)
    bench.wait(INTERVAL_MS)
    two.beat()
    assert len(two.owned[T]) == 4


def test_a_static_member_that_left_while_it_gave_up_has_given_up() -> None:
    bench = Bench()
    one, two = Member(bench, "one", instance_id="i1"), Member(bench, "two")
    one.join()
    bench.wait(INTERVAL_MS)
    two.join()
    beat(bench, "one", 1, owned=one.owned, instance_id="i1")
    one.leave(-2)
    two.beat()
    assert len(two.owned[T]) == 2
    other = bench.another()
    other.wait(SESSION_MS - 1)
    beat(other, "two", two.epoch, owned=two.owned)
    assert group_of(other).members["one"].state is MemberState.STABLE, "no time to give up runs for who has left"


def test_a_static_member_that_comes_back_to_read_something_else_makes_a_target_due() -> None:
    bench = Bench()
    one, two = static_pair(bench)
    epoch = group_of(bench).epoch
    one.leave(-2)
    again = Member(bench, "three", ("u",), instance_id="i1")
    again.join()
    assert group_of(bench).epoch == epoch + 1
    settle([again, two])
    assert len(two.owned[T]) == 4
    assert T not in again.owned


def test_a_static_member_that_left_while_it_gave_up_comes_back_to_its_whole_target() -> None:
    bench = Bench()
    one, two, three = (Member(bench, each, instance_id=each) for each in ("one", "two", "three"))
    settle([one, two, three])
    two.leave(-1)
    three.leave(-1)
    join(bench, "four", ("u",))
    bench.wait(INTERVAL_MS)
    one.leave(-2)
    again = Member(bench, "five", instance_id="one")
    again.join()
    assert len(again.owned[T]) == 4


def test_the_process_that_left_for_a_while_is_not_let_in_with_an_epoch_that_it_had() -> None:
    bench = Bench()
    one, _ = static_pair(bench)
    one.leave(-2)
    left = group_of(bench).members["one"]
    asked = beat(bench, "one", left.previous_epoch, owned={}, instance_id="i1")
    assert asked.error is ErrorCode.FENCED_MEMBER_EPOCH


def test_who_joins_again_while_it_leaves_is_watched() -> None:
    bench = Bench()
    pair(bench)
    bench.commits = False
    beat(bench, "one", -1)
    join(bench, "one")
    bench.commit()
    bench.commits = True
    bench.wait(SESSION_MS)
    assert not group_of(bench).members


def test_a_full_group_takes_a_static_member_back() -> None:
    bench = Bench(consumer_max_size=2)
    one, _ = static_pair(bench)
    one.leave(-2)
    assert join(bench, "four", instance_id="i4").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join(bench, "three", instance_id="i1").error is ErrorCode.NONE


# --- a newer node's records -------------------------------------------------------------------------------------------


def test_a_member_in_a_state_that_is_not_known_has_to_begin_anew() -> None:
    bench = Bench()
    one, _ = pair(bench)
    unknown = ConsumerMember("one", epoch=2, previous_epoch=2, state=MemberState.UNKNOWN, assigned={T: {0: 1}})
    bench.write([current_record("g", unknown)], lambda _: None)
    assert beat(bench, "one", 2).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert one.join() is ErrorCode.NONE
    assert group_of(bench).members["one"].state is not MemberState.UNKNOWN


@pytest.mark.parametrize("leaves", [-1, -2])
def test_a_departure_that_cannot_be_written_is_undone(leaves: int) -> None:
    bench = Bench()
    one, two = static_pair(bench)
    before = bench.shard.contents()
    bench.commits = False
    asked = beat(bench, "one", leaves, instance_id="i1")
    bench.fail()
    bench.commits = True
    assert asked.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.shard.contents() == before == bench.another().shard.contents()
    assert one.beat() is two.beat() is ErrorCode.NONE
    bench.wait(SESSION_MS)
    assert not group_of(bench).members, "its session is still watched"


def test_a_member_whose_departure_is_undone_is_looked_for_although_its_time_came_meanwhile() -> None:
    """Nobody would ever have taken it out, and what it has would have been read no more."""
    bench = Bench()
    join(bench, "one")
    bench.wait(SESSION_MS - 1)
    bench.commits = False
    asked = beat(bench, "one", -1)
    bench.wait(1)
    bench.fail()
    assert asked.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "one" in group_of(bench).members
    bench.commits = True
    bench.wait(2 * SESSION_MS)
    assert not group_of(bench).members


def test_what_a_member_had_that_becomes_another_instance_is_given_to_somebody() -> None:
    bench = Bench()
    one, two = Member(bench, "one", instance_id="i"), Member(bench, "two", instance_id="j")
    settle([one, two])
    two.leave(-2)
    one.instance_id = "j"
    one.join()
    settle([one])
    assert len(one.places) == 4
