"""Groups that change their protocol while members are at work, and what becomes of that when a write fails or a coordinator ends."""

import msgspec
import pytest

from ottla.broker.coordinator.decisions.groups.assignors import pieces
from ottla.broker.coordinator.decisions.groups.classic_group import GroupState
from ottla.broker.coordinator.decisions.groups.migration.policy import MigrationPolicy
from ottla.broker.coordinator.decisions.groups.rebalance_record import Kind, RebalanceRecord
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.migration.migration_bench import Classic, MigrationBench, Modern


def upgraded(bench: MigrationBench, *members: Classic) -> Modern:
    """A classic group of these, and a member of the consumer protocol that made it a consumer group."""
    bench.stable_classic(*members)
    modern = Modern(bench, "new")
    modern.go_on()
    return modern


# --- to the consumer protocol -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cooperative", [False, True])
def test_a_classic_group_becomes_a_consumer_group_and_nobody_reads_twice(cooperative: bool) -> None:
    bench = MigrationBench()
    a, b = Classic(bench, cooperative=cooperative), Classic(bench, cooperative=cooperative)
    modern = upgraded(bench, a, b)
    assert len(bench.consumers().members) == 3
    assert not modern.owned, "others hold all of it"
    bench.settle(a, b, modern)
    assert sorted(map(len, (a.owned, b.owned, modern.owned))) == [1, 1, 2]


def test_a_rolling_upgrade_ends_with_members_of_the_consumer_protocol_alone() -> None:
    bench = MigrationBench()
    a, b = Classic(bench, cooperative=True), Classic(bench, cooperative=True)
    first = upgraded(bench, a, b)
    bench.settle(a, b, first)
    bench.leave(a.id)
    second = Modern(bench, "second")
    bench.settle(b, first, second)
    bench.leave(b.id)
    bench.settle(first, second)
    assert all(each.classic is None for each in bench.consumers().members.values())


def test_cooperative_members_go_on_with_what_they_keep() -> None:
    bench = MigrationBench()
    a = Classic(bench, cooperative=True)
    modern = upgraded(bench, a)
    before, seen = set(a.owned), []
    for _ in range(6):
        bench.wait(1_000)
        for each in (a, modern):
            each.go_on()
        seen.append(set(a.owned))
    assert all(after <= before for before, after in zip([before, *seen], seen, strict=False))
    assert len(seen[-1]) == 2


def between_two_rebalances(bench: MigrationBench, static: Classic, other: Classic) -> None:
    """The first has taken two partitions from the static member, and the second is to give them to the other."""
    bench.stable_classic(static)
    asked = [other.ask_to_join(), static.ask_to_join()]
    for member, answer in zip((other, static), asked, strict=True):
        member.joined(answer)
    syncing = static.ask_for_assignment({static.id: [0, 1], other.id: []})
    static.synced(syncing)
    other.synced(other.ask_for_assignment())
    assert bench.classic().is_in(GroupState.STABLE)


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_what_a_second_cooperative_rebalance_was_to_give_somebody_is_given(is_taken_over: bool) -> None:
    """Nobody is new, no topic is another and the group is stable: the static member comes back instead of joining again."""
    bench = MigrationBench()
    static, other = Classic(bench, cooperative=True, instance="s"), Classic(bench, cooperative=True, instance="o")
    between_two_rebalances(bench, static, other)
    back = Modern(bench, "back", instance="s")
    bench.commits = not is_taken_over
    back.ask()
    if is_taken_over:
        bench.fail(but=2)  # the change stands in the log, and who came back: no target
        back.bench = other.bench = bench = MigrationBench.taken_over(bench)
    bench.settle(back, other)
    assert sorted(map(len, (back.owned, other.owned))) == [2, 2]


def test_people_are_told_that_the_protocol_changed_and_not_the_topics() -> None:
    bench = MigrationBench()
    a = Classic(bench, instance="s")
    bench.stable_classic(a)
    Modern(bench, "back", instance="s").go_on()
    records = [msgspec.json.decode(each, type=RebalanceRecord) for each in bench.shard.history("g")[1:]]
    assert [each.cause.kind for each in records] == [Kind.PROTOCOL]
    assert records[0].cause.member_id == "back"


def test_who_waits_in_the_classic_group_is_told_to_join_again() -> None:
    bench = MigrationBench()
    a, b = Classic(bench), Classic(bench)
    bench.stable_classic(a, b)
    joining = a.ask_to_join()
    assert joining.waits
    Modern(bench, "new").go_on()
    assert joining.error is ErrorCode.REBALANCE_IN_PROGRESS
    a.rejoin()
    assert bench.consumers().members[a.id].classic is not None


@pytest.mark.parametrize("takes_a_place", [False, True])
def test_who_asks_for_an_assignment_while_the_group_changes_stays_a_member(takes_a_place: bool) -> None:
    """As a new one it would wait for what its old self holds, which nobody reads until the session of that ends."""
    bench = MigrationBench()
    a, b = Classic(bench), Classic(bench, instance="i")
    bench.stable_classic(a, b)
    bench.commits = False
    b.beat()
    asked = a.ask_for_assignment()
    assert asked.waits, "the generation may not be committed yet"
    Modern(bench, "new", instance="i" if takes_a_place else None).ask()
    bench.commit()
    assert asked.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.id in bench.consumers().members


def test_an_assignment_that_is_being_written_does_not_come_back() -> None:
    bench = MigrationBench()
    a = Classic(bench)
    bench.stable_classic(a)
    joining = a.ask_to_join()
    a.joined(joining)
    bench.commits = False
    syncing = a.ask_for_assignment({a.id: [0, 1, 2, 3]})
    joined = Modern(bench, "new").ask()
    assert syncing.error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.commit()
    assert joined.error is ErrorCode.NONE
    bench.commits = True
    reminders = bench.reminders
    bench.wait(9_000)
    assert bench.consumers().members.keys() == {a.id, "new"}
    assert bench.reminders <= reminders


def test_only_a_member_that_joins_changes_a_group() -> None:
    bench = MigrationBench()
    a = Classic(bench)
    bench.stable_classic(a)
    assert Modern(bench, "new").ask(3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert Modern(bench, "new").leave().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.classic().is_in(GroupState.STABLE)


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_a_group_stays_classic_where_it_may_not_be_upgraded(policy: MigrationPolicy) -> None:
    bench = MigrationBench(migration_policy=policy)
    a = Classic(bench)
    bench.stable_classic(a)
    assert Modern(bench, "new").ask().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.classic().members.keys() == {a.id}
    assert a.beat() is ErrorCode.NONE


def test_a_group_stays_classic_when_it_has_no_room_for_who_joins() -> None:
    """Nobody would be in it but classic members, without their leader and its assignor, and nothing would make it classic again."""
    bench = MigrationBench(consumer_max_size=2)
    a, b = Classic(bench), Classic(bench, instance="i")
    bench.stable_classic(a, b)
    count = len(bench.log)
    assert Modern(bench, "new").ask().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(bench.log) == count
    assert bench.classic().is_in(GroupState.STABLE)
    assert (a.beat(), b.beat()) == (ErrorCode.NONE, ErrorCode.NONE)
    Modern(bench, "takes a place", instance="i").go_on()
    assert len(bench.consumers().members) == 2


def test_a_group_stays_classic_when_the_change_is_refused() -> None:
    bench = MigrationBench()
    a = Classic(bench)
    bench.stable_classic(a)
    bench.refuses = ErrorCode.UNKNOWN_SERVER_ERROR
    assert Modern(bench, "new").ask().error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.classic().is_in(GroupState.STABLE)
    assert a.beat() is ErrorCode.NONE
    bench.refuses = ErrorCode.NONE
    bench.wait(9_000)
    assert a.beat() is ErrorCode.NONE


def test_a_group_is_classic_again_when_the_change_could_not_be_written() -> None:
    bench = MigrationBench()
    a, b = Classic(bench), Classic(bench)
    bench.stable_classic(a, b)
    bench.commits = False
    asked = Modern(bench, "new").ask()
    bench.fail()
    bench.commits = True
    assert asked.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.classic().is_in(GroupState.PREPARING_REBALANCE)
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    answers = [each.ask_to_join() for each in (a, b)]
    assert [each.said.generation_id for each in answers] == [2, 2]


def test_a_group_stays_a_consumer_group_where_nobody_knows_whether_the_change_is_committed() -> None:
    """It stands in the log, its replicas are slow, and this coordinator goes on."""
    bench = MigrationBench()
    a = Classic(bench)
    bench.stable_classic(a)
    bench.commits = False
    Modern(bench, "new").ask()
    bench.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.commits = True
    bench.wait(1_000)
    a.rejoin()
    bench.wait(70_000)
    assert bench.shard.find("g") is None
    assert "g" not in bench.shard.written


def test_an_assignment_of_the_classic_group_that_is_only_late_begins_no_rebalance_of_it() -> None:
    bench = MigrationBench()
    a = Classic(bench)
    joining = a.ask_to_join()
    bench.wait(2 * bench.settings.initial_rebalance_delay_ms)
    a.joined(joining)
    bench.commits = False
    syncing = a.ask_for_assignment({a.id: [0]})
    Modern(bench, "new").ask()
    bench.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.commits = True
    assert syncing.error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.wait(70_000)
    assert "g" not in bench.shard.written


def test_nor_does_a_static_member_that_came_back_to_it() -> None:
    bench = MigrationBench()
    a = Classic(bench, instance="i")
    bench.stable_classic(a)
    bench.commits = False
    assert Classic(bench, instance="i").ask_to_join().waits
    Modern(bench, "new").ask()
    bench.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.commits = True
    bench.wait(70_000)
    assert "g" not in bench.shard.written


def test_a_rebalance_that_was_being_prepared_goes_on_when_the_change_could_not_be_written() -> None:
    bench = MigrationBench()
    a, b = Classic(bench), Classic(bench)
    bench.stable_classic(a, b)
    assert a.ask_to_join().waits
    bench.commits = False
    Modern(bench, "new").ask()
    bench.fail()
    bench.commits = True
    answers = [each.ask_to_join() for each in (a, b)]
    assert [each.said.generation_id for each in answers] == [2, 2]


def test_and_so_does_a_first_one_which_waits_no_longer_than_first_ones_do() -> None:
    bench = MigrationBench()
    a, b = Classic(bench), Classic(bench)
    asked = [a.ask_to_join(), b.ask_to_join()]
    bench.commits = False
    Modern(bench, "new").ask()
    bench.fail()
    assert {each.error for each in asked} == {ErrorCode.REBALANCE_IN_PROGRESS}
    again = [a.ask_to_join(), b.ask_to_join()]
    bench.wait(2 * bench.settings.initial_rebalance_delay_ms)
    assert [each.said.generation_id for each in again] == [1, 1]


def test_members_that_fall_silent_after_a_change_was_undone_are_taken_out() -> None:
    bench = MigrationBench()
    bench.stable_classic(Classic(bench))
    bench.commits = False
    Modern(bench, "new").ask()
    bench.fail()
    bench.commits = True
    bench.wait(11_000)
    assert not bench.classic().members


def test_another_coordinator_finds_the_group_as_it_became() -> None:
    bench = MigrationBench()
    a, b = Classic(bench), Classic(bench)
    modern = upgraded(bench, a, b)
    other = MigrationBench.taken_over(bench)
    assert other.shard.contents() == bench.shard.contents()
    for each in (a, b, modern):
        each.bench = other
    other.settle(a, b, modern)


def test_an_empty_classic_group_makes_way() -> None:
    bench = MigrationBench(migration_policy=MigrationPolicy.DISABLED)
    a = Classic(bench)
    bench.stable_classic(a)
    bench.leave(a.id)
    Modern(bench, "new").go_on()
    assert bench.consumers().members.keys() == {"new"}
    assert not MigrationBench.taken_over(bench).shard.written


# --- to the classic protocol ------------------------------------------------------------------------------------------


def test_a_group_becomes_classic_when_the_last_member_leaves_that_is_not() -> None:
    bench = MigrationBench()
    a, b = Classic(bench, cooperative=True), Classic(bench, cooperative=True)
    modern = upgraded(bench, a, b)
    bench.settle(a, b, modern)
    assert modern.leave().error is ErrorCode.NONE
    assert bench.classic().is_in(GroupState.PREPARING_REBALANCE)
    assert {each.assignment for each in bench.classic().members.values()} == bench.assigned_bytes(a, b)
    assert [a.beat(), b.beat()] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    assert bench.reminders == 3, "two sessions and the deadline of the rebalance"
    bench.rejoin_classic(a, b)
    assert sorted([*a.owned, *b.owned]) == [0, 1, 2, 3]


def test_another_coordinator_begins_the_rebalance_too_of_a_group_that_became_classic() -> None:
    """Nobody has what the member had that left, and the members that stay are not told by anything else."""
    bench = MigrationBench()
    a = Classic(bench, cooperative=True)
    modern = upgraded(bench, a)
    bench.settle(a, modern)
    modern.leave()
    other = MigrationBench.taken_over(bench)
    a.bench = other
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    other.rejoin_classic(a)
    assert a.owned == {0, 1, 2, 3}


def test_what_a_rebalance_was_to_give_somebody_the_consumer_group_gives_instead() -> None:
    """A static member comes back with the consumer protocol: nobody is new, and no topic is another."""
    bench = MigrationBench()
    a, b = Classic(bench, cooperative=True), Classic(bench, cooperative=True, instance="b")
    modern = upgraded(bench, a, b)
    bench.settle(a, b, modern)
    modern.leave()
    assert bench.classic().is_in(GroupState.PREPARING_REBALANCE)
    back = Modern(bench, "b2", instance="b")
    back.go_on()
    bench.settle(a, back)
    assert sorted([*a.owned, *back.owned]) == [0, 1, 2, 3]


def test_who_waits_for_a_target_while_the_group_becomes_classic_stays_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new one it would leave its old self behind, for which the whole group waits."""
    bench = MigrationBench()
    a, b = Classic(bench), Classic(bench)
    modern = upgraded(bench, a, b)
    bench.settle(a, b, modern)
    monkeypatch.setattr(pieces, "PIECE_STEPS", 0.1)
    bench.wait(2_000)
    bench.partitions[bench.topic_ids["t"]] = 5
    bench.shard.consumers.refresh({"t"})
    asked = a.ask_to_join()
    assert asked.waits, "its target comes in pieces"
    modern.leave()
    bench.wait(1_000)
    assert asked.error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.rejoin_classic(a, b)
    assert bench.classic().members.keys() == {a.id, b.id}


def test_a_group_becomes_classic_when_the_last_member_falls_silent_that_is_not() -> None:
    bench = MigrationBench()
    a = Classic(bench)
    modern = upgraded(bench, a)
    bench.settle(a, modern)
    for _ in range(9):
        bench.wait(5_000)
        a.go_on()
    assert bench.classic().members.keys() == {a.id}


def test_generations_go_on_where_epochs_were() -> None:
    bench = MigrationBench()
    a = Classic(bench)
    modern = upgraded(bench, a)
    bench.settle(a, modern)
    epoch = bench.consumers().epoch
    modern.leave()
    bench.rejoin_classic(a)
    assert a.generation > epoch


def with_one_behind(
    bench: MigrationBench, *, cooperative: bool, instance: str | None = None
) -> tuple[Classic, Classic]:
    """A group that has just become classic, one of whose two members has missed its last epoch and reads on."""
    behind, newer = Classic(bench, cooperative=cooperative, instance=instance), Classic(bench, cooperative=cooperative)
    modern = upgraded(bench, behind)
    bench.settle(behind, modern)
    newer.rejoin()
    modern.leave()
    assert behind.owned
    assert behind.generation < newer.generation == bench.classic().generation
    return behind, newer


@pytest.mark.parametrize("instance", [None, "i"])
def test_who_missed_an_epoch_and_joins_with_what_it_has_begins_anew(instance: str | None) -> None:
    """As its heartbeat would tell it: what it claims is older than what others do, and a leader that goes by that gives it away."""
    bench = MigrationBench()
    behind, newer = with_one_behind(bench, cooperative=True, instance=instance)
    assert behind.ask_to_join().error is ErrorCode.UNKNOWN_MEMBER_ID
    behind.id, behind.owned = "", set()
    asked = [behind.ask_to_join(), newer.ask_to_join()]
    assert [each.error for each in asked] == [ErrorCode.NONE] * 2, "nobody waits for who it was"
    assert bench.classic().members.keys() == {each.said.member_id for each in asked}


def test_who_missed_an_epoch_and_has_given_up_what_it_had_joins_as_who_it_was() -> None:
    bench = MigrationBench()
    behind, newer = with_one_behind(bench, cooperative=False)
    bench.rejoin_classic(behind, newer)
    assert bench.classic().members.keys() == {behind.id, newer.id}
    assert not any(each.is_behind for each in bench.classic().members.values())


def test_who_missed_no_epoch_keeps_what_it_has() -> None:
    bench = MigrationBench()
    _, newer = with_one_behind(bench, cooperative=True)
    newer.owned = {1}
    assert newer.ask_to_join().waits


def test_a_group_can_change_again() -> None:
    bench = MigrationBench()
    a = Classic(bench)
    modern = upgraded(bench, a)
    modern.leave()
    bench.rejoin_classic(a)
    again = Modern(bench, "again")
    again.go_on()
    bench.settle(a, again)


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
def test_a_group_stays_a_consumer_group_where_it_may_not_be_downgraded(policy: MigrationPolicy) -> None:
    bench = MigrationBench(migration_policy=policy)
    modern, a = Modern(bench, "new"), Classic(bench)
    modern.go_on()
    bench.settle(modern, a)
    modern.leave()
    bench.settle(a)
    assert bench.consumers().members.keys() == {a.id}


def test_classic_members_alone_see_that_their_topic_grows() -> None:
    bench = MigrationBench(migration_policy=MigrationPolicy.UPGRADE)
    a = Classic(bench)
    modern = upgraded(bench, a)
    modern.leave()
    bench.settle(a)
    bench.partitions[bench.topic_ids["t"]] = 5
    bench.shard.consumers.refresh({"t"})
    for _ in range(3):
        bench.wait(1_000)
        a.go_on()
    assert a.owned == {0, 1, 2, 3, 4}


def test_a_group_stays_a_consumer_group_when_the_change_is_refused() -> None:
    bench = MigrationBench()
    a = Classic(bench)
    modern = upgraded(bench, a)
    bench.settle(a, modern)
    bench.refuses_classic = ErrorCode.UNKNOWN_SERVER_ERROR
    assert modern.leave().error is ErrorCode.NONE
    bench.settle(a)
    assert bench.consumers().members.keys() == {a.id}


def test_a_group_is_a_consumer_group_again_when_the_change_could_not_be_written() -> None:
    bench = MigrationBench()
    a = Classic(bench)
    modern = upgraded(bench, a)
    bench.settle(a, modern)
    bench.commits = False
    left = modern.leave()
    joining = a.ask_to_join()
    bench.fail()
    bench.commits = True
    assert left.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert joining.error is ErrorCode.NOT_COORDINATOR or not joining.waits
    assert bench.consumers().members.keys() == {a.id, "new"}
    a.rejoin()
    bench.settle(a, modern)


def test_a_group_stays_classic_where_nobody_knows_whether_the_change_is_committed() -> None:
    bench = MigrationBench()
    a = Classic(bench)
    modern = upgraded(bench, a)
    bench.settle(a, modern)
    bench.commits = False
    modern.leave()
    generation = bench.classic().generation
    bench.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.commits = True
    assert bench.classic().members.keys() == {a.id}
    bench.rejoin_classic(a)
    assert bench.classic().generation > generation


def test_who_joins_a_group_that_made_way_waits_on_where_nobody_knows_whether_that_is_committed() -> None:
    bench = MigrationBench()
    modern = Modern(bench, "new")
    modern.go_on()
    modern.leave()
    bench.commits = False
    asked = Classic(bench).ask_to_join()
    assert asked.waits
    bench.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert asked.waits
    bench.wait(2 * bench.settings.initial_rebalance_delay_ms)
    assert asked.error is ErrorCode.NONE


def test_members_that_fall_silent_after_that_are_taken_out() -> None:
    bench = MigrationBench()
    a = Classic(bench)
    modern = upgraded(bench, a)
    bench.settle(a, modern)
    bench.commits = False
    modern.leave()
    bench.fail()
    bench.commits = True
    bench.wait(11_000)
    assert bench.consumers().members.keys() == {"new"}


def test_another_coordinator_finishes_what_one_began() -> None:
    """It ended between the record that the member left and those of the classic group."""
    bench = MigrationBench()
    a = Classic(bench)
    modern = upgraded(bench, a)
    bench.settle(a, modern)
    bench.refuses_classic = ErrorCode.UNKNOWN_SERVER_ERROR
    modern.leave()
    other = MigrationBench.taken_over(bench)
    assert other.classic().members.keys() == {a.id}
    a.bench = other
    assert a.beat() in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
    other.rejoin_classic(a)
    assert a.owned == {0, 1, 2, 3}


def test_an_empty_consumer_group_makes_way() -> None:
    bench = MigrationBench(migration_policy=MigrationPolicy.DISABLED)
    modern = Modern(bench, "new")
    modern.go_on()
    modern.leave()
    bench.stable_classic(Classic(bench))
    assert bench.classic().is_in(GroupState.STABLE)
    assert len(MigrationBench.taken_over(bench).classic().members) == 1
