"""Members that speak the classic protocol in a consumer group."""

from typing import Any

import pytest

from ottla.broker.coordinator.decisions.groups import join_request
from ottla.broker.coordinator.decisions.groups.member import bytes_of
from ottla.broker.coordinator.decisions.groups.migration import emulation
from ottla.broker.coordinator.decisions.groups.migration.policy import MigrationPolicy
from ottla.broker.wire.messages.leave_group_request import MemberIdentity
from ottla.broker.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_bench import Asked
from tests.unit.broker.coordinator.groups.migration.migration_bench import Classic, MigrationBench, Modern
from tests.unit.broker.coordinator.groups.subscribing import written_subscription

SUBSCRIPTION = written_subscription(["t"])


def with_modern(**settings: Any) -> tuple[MigrationBench, Modern]:
    bench = MigrationBench(**settings)
    modern = Modern(bench, "modern")
    modern.go_on()
    return bench, modern


# --- JoinGroup --------------------------------------------------------------------------------------------------------


def test_a_classic_member_is_given_an_id_first_and_leads_nobody() -> None:
    bench, _ = with_modern()
    first = bench.join(metadata=SUBSCRIPTION)
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert bench.consumers().members.keys() == {"modern"}
    said = bench.join(first.said.member_id, metadata=SUBSCRIPTION).said
    assert (said.error_code, said.member_id, said.protocol_type, said.protocol_name) == (
        ErrorCode.NONE,
        first.said.member_id,
        "consumer",
        "range",
    )
    assert (said.leader, said.members) == ("", [])
    assert said.generation_id == bench.consumers().members[said.member_id].epoch


def taken_out(bench: MigrationBench, modern: Modern) -> Classic:
    """It was silent for too long, and does not know it: it still reads."""
    one = Classic(bench, cooperative=True)
    one.rejoin()
    bench.settle(one, modern)
    assert one.owned
    for _ in range(4):
        bench.wait(4_000)
        modern.go_on()
    assert one.id not in bench.consumers().members
    return one


@pytest.mark.parametrize("version", [1, 3])
def test_who_was_taken_out_and_still_reads_has_to_give_that_up_before_he_joins_again(version: int) -> None:
    """As a new member he would read on, and commit, what another has had since; whether or not his client says in which generation he
    got it."""
    bench, modern = with_modern()
    one = taken_out(bench, modern)
    metadata = written_subscription(["t"], {"t": one.owned}, version=version, generation=one.generation)
    assert bench.join(one.id, metadata=metadata).error is ErrorCode.UNKNOWN_MEMBER_ID
    one.id, one.owned = "", set()
    one.rejoin()
    bench.settle(one, modern)


@pytest.mark.parametrize("version", [1, 3])
def test_who_names_what_he_had_although_he_was_told_is_let_in_and_not_told_for_ever(version: int) -> None:
    """Clients that were to give it up before they began this join forget to when they lose their id in the middle of it."""
    bench, modern = with_modern()
    one = taken_out(bench, modern)
    metadata = written_subscription(["t"], {"t": one.owned}, version=version, generation=one.generation)
    assert bench.join(one.id, metadata=metadata).error is ErrorCode.UNKNOWN_MEMBER_ID
    again = bench.join(metadata=metadata)
    one.joined(again)
    one.synced(one.ask_for_assignment())
    assert not one.owned, "the other has not given anything up"
    bench.settle(one, modern)


def test_an_old_client_is_a_member_at_once() -> None:
    bench, _ = with_modern()
    assert bench.join(version=3, metadata=SUBSCRIPTION).error is ErrorCode.NONE
    assert len(bench.consumers().members) == 2


def test_nobody_is_told_that_he_joined_before_it_is_committed() -> None:
    bench, _ = with_modern()
    bench.commits = False
    asked = bench.join(version=3, metadata=SUBSCRIPTION)
    assert asked.waits
    bench.commit()
    assert asked.error is ErrorCode.NONE


def test_who_could_not_be_written_is_no_member() -> None:
    bench, modern = with_modern()
    bench.commits = False
    asked = bench.join(version=3, metadata=SUBSCRIPTION)
    bench.fail()
    bench.commits = True
    assert asked.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.consumers().members.keys() == {"modern"}
    bench.settle(modern)


@pytest.mark.parametrize("metadata", [b"", b"\0"], ids=["none", "cut off"])
def test_one_whose_subscription_nobody_can_read_is_refused(metadata: bytes) -> None:
    bench, _ = with_modern()
    assert bench.join("m", metadata=metadata).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_one_of_another_kind_or_with_other_protocols_is_refused() -> None:
    bench, _ = with_modern()
    assert bench.join("m", kind="connect", metadata=SUBSCRIPTION).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.join("m", protocols=["range", "sticky"], metadata=SUBSCRIPTION).error is ErrorCode.NONE
    assert bench.join("n", protocols=["own"], metadata=SUBSCRIPTION).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.join("n", protocols=["sticky"], metadata=SUBSCRIPTION).error is ErrorCode.NONE
    assert bench.join("m", protocols=["own"], metadata=SUBSCRIPTION).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_no_more() -> None:
    bench, _ = with_modern(consumer_max_size=2)
    assert bench.join("m", metadata=SUBSCRIPTION).error is ErrorCode.NONE
    assert bench.join("n", metadata=SUBSCRIPTION).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.join("m", metadata=SUBSCRIPTION).error is ErrorCode.NONE


def test_the_protocols_of_all_members_take_no_more_memory_than_in_a_classic_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (join_request, emulation):
        monkeypatch.setattr(module, "METADATA_BYTES_MAX", 3 * bytes_of([("range", SUBSCRIPTION)], "c"))
    bench, _ = with_modern()
    errors = [bench.join(each, metadata=SUBSCRIPTION).error for each in ("a", "b", "c", "d", "a")]
    none, full = ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED
    assert errors == [none, none, none, full, none]


# --- SyncGroup and Heartbeat ------------------------------------------------------------------------------------------


def test_a_member_is_told_what_it_holds_and_no_more() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    classic.rejoin()
    assert not classic.owned, "the other has not given anything up"
    bench.settle(modern, classic)
    assert len(classic.owned) == 2


def test_a_member_that_is_taken_out_before_its_answer_is_committed_is_told_to_join_again() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    classic.rejoin()
    bench.settle(modern, classic)
    bench.commits = False
    asked = classic.ask_for_assignment()
    bench.leave(classic.id)
    bench.commit()
    assert asked.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_is_behind_is_told_to_join_again_and_one_that_is_not_goes_on() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    bench.settle(modern, classic)
    assert classic.beat() is ErrorCode.NONE
    bench.wait(1_000)
    Modern(bench, "third").go_on()
    assert classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert classic.ask_for_assignment().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_waits_for_others_is_told_when_all_it_waits_for_is_free() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    bench.wait(1_000)
    classic.rejoin()
    assert classic.beat() is ErrorCode.NONE
    modern.go_on()
    assert classic.beat() is ErrorCode.NONE, "it was told to give up, and has not said that it did"
    modern.go_on()
    assert classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_requests_of_who_is_no_member_or_knows_no_epoch_are_refused() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    bench.settle(modern, classic)
    for ask in (bench.heartbeat, lambda *told: bench.sync(*told).error):
        assert ask("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert ask(modern.id, modern.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
        assert ask(classic.id, classic.generation + 1) is ErrorCode.ILLEGAL_GENERATION


def test_an_assignment_of_another_protocol_is_refused() -> None:
    bench, _ = with_modern()
    joined = bench.join("m", protocols=["sticky"], metadata=SUBSCRIPTION)
    assert bench.sync("m", joined.said.generation_id).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_that_gives_up_a_topic_is_told_to_join_again_and_say_that_it_did() -> None:
    """Although there is no newer target yet."""
    bench, modern = with_modern(consumer_assignment_interval_ms=30_000)
    bench.wait(30_000)
    modern.go_on()
    joined = bench.join("m", metadata=written_subscription(["u"])).said
    assert bench.heartbeat("m", joined.generation_id) is ErrorCode.NONE
    joined = bench.join("m", metadata=written_subscription(["t"], {"u": [0, 1, 2, 3]})).said
    assert bench.heartbeat("m", joined.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = bench.join("m", metadata=written_subscription(["t"])).said
    assert bench.heartbeat("m", joined.generation_id) is ErrorCode.NONE


# --- in time ----------------------------------------------------------------------------------------------------------


def test_a_member_has_the_session_that_it_asked_for() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    bench.settle(modern, classic)
    for _ in range(3):
        bench.wait(4_000)
        modern.go_on()
    assert bench.consumers().members.keys() == {"modern"}


def test_a_member_that_does_not_join_again_in_time_is_taken_out_however_often_it_was_told() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    bench.settle(modern, classic)
    Modern(bench, "third").go_on()
    bench.wait(1_000)
    for _ in range(12):
        bench.wait(5_000)
        modern.go_on()
        classic.beat()
    assert classic.id in bench.consumers().members
    bench.wait(5_000)
    assert classic.id not in bench.consumers().members


def test_a_member_that_never_asks_for_its_assignment_is_taken_out() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    classic.joined(classic.ask_to_join())
    for _ in range(12):
        bench.wait(4_900)
        modern.go_on()
        bench.heartbeat(classic.id, classic.generation)
    assert classic.id in bench.consumers().members
    bench.wait(1_500)
    assert classic.id not in bench.consumers().members


def test_who_joined_in_time_and_asked_is_a_member_for_good() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    bench.settle(modern, classic)
    for _ in range(40):
        bench.wait(5_000)
        modern.go_on()
        classic.go_on()
    assert bench.consumers().members.keys() == {"modern", classic.id}


def test_a_shard_that_ends_leaves_no_timer() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    bench.settle(modern, classic)
    bench.wait(1_000)
    Modern(bench, "third").go_on()
    classic.beat()
    for _ in bench.shard.end(ErrorCode.NOT_COORDINATOR):
        pass
    assert not bench.reminders


# --- LeaveGroup -------------------------------------------------------------------------------------------------------


def test_what_a_member_had_that_left_others_get() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    bench.settle(modern, classic)
    assert bench.leave(classic.id).said.members[0].error_code == ErrorCode.NONE
    bench.settle(modern)


def test_leaving_is_told_when_it_is_committed() -> None:
    bench, modern = with_modern()
    classic = Classic(bench)
    bench.settle(modern, classic)
    bench.commits = False
    left = bench.leave(classic.id)
    assert left.waits
    bench.fail()
    bench.commits = True
    assert left.said.members[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert classic.id in bench.consumers().members


def test_who_is_no_classic_member_cannot_leave_in_this_way() -> None:
    bench, modern = with_modern()
    classic, static = Classic(bench), Classic(bench, instance="i")
    bench.settle(modern, classic, static)
    left = bench.leave(
        modern.id,
        "nobody",
        MemberIdentity("another", "i"),
        MemberIdentity("", "unknown"),
        classic.id,
        classic.id,
        MemberIdentity("", "i"),
        MemberIdentity("", "i"),
    )
    unknown, fenced, none = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE
    assert [each.error_code for each in left.said.members] == [
        unknown,
        unknown,
        fenced,
        unknown,
        none,
        unknown,
        none,
        unknown,
    ]
    bench.settle(modern)


# --- static members ---------------------------------------------------------------------------------------------------


def test_another_process_of_a_static_member_has_what_the_one_before_had() -> None:
    bench, modern = with_modern()
    classic = Classic(bench, instance="i")
    bench.settle(modern, classic)
    again = Classic(bench, instance="i")
    again.rejoin()
    assert again.owned == classic.owned
    assert again.id != classic.id
    assert classic.beat() is ErrorCode.FENCED_INSTANCE_ID
    assert bench.join(classic.id, instance="i", metadata=SUBSCRIPTION).error is ErrorCode.FENCED_INSTANCE_ID
    assert bench.join("m", instance="unknown", metadata=SUBSCRIPTION).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_come_back_with_the_consumer_protocol_and_has_what_it_had() -> None:
    """Which is how static members are upgraded: the classic one never says that it leaves."""
    bench, modern = with_modern()
    classic = Classic(bench, instance="i")
    bench.settle(modern, classic)
    upgraded = Modern(bench, "upgraded", instance="i")
    upgraded.go_on()
    assert upgraded.owned == classic.owned
    assert bench.consumers().members["upgraded"].classic is None
    bench.settle(modern, upgraded)


def test_a_group_becomes_classic_when_its_last_member_that_is_not_comes_back_as_a_classic_one() -> None:
    bench = MigrationBench()
    modern = Modern(bench, "modern", instance="i")
    modern.go_on()
    classic = Classic(bench, instance="i")
    asked = classic.ask_to_join()
    classic.joined(asked)
    assert bench.classic().members.keys() == {classic.id}
    assert classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    bench.rejoin_classic(classic)
    assert classic.owned == {0, 1, 2, 3}


def test_who_joined_when_the_group_became_classic_is_awaited_as_a_classic_member_alone() -> None:
    bench = MigrationBench()
    Modern(bench, "modern", instance="i").go_on()
    bench.commits = False
    joined = bench.join(instance="i", metadata=SUBSCRIPTION)
    bench.commit()
    assert joined.error is ErrorCode.NONE
    assert bench.reminders == 3, "its session, that of the process before it, and the deadline of the rebalance"


# --- offsets ----------------------------------------------------------------------------------------------------------


def commit(bench: MigrationBench, member: Classic, generation: int, partition: int, version: int = 7) -> ErrorCode:
    asked = Asked(version)
    topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(partition, 5)])
    bench.shard.commits.commit(asked, OffsetCommitRequest("g", generation, member.id, None, -1, [topic]))
    return ErrorCode(asked.said.topics[0].partitions[0].error_code)


def test_a_classic_member_commits_in_its_generation_whatever_its_version() -> None:
    bench, modern = with_modern(migration_policy=MigrationPolicy.DISABLED)
    classic = Classic(bench, cooperative=True)
    bench.settle(modern, classic)
    mine = min(classic.owned)
    assert commit(bench, classic, classic.generation, mine) is ErrorCode.NONE
    assert commit(bench, classic, classic.generation + 1, mine) is ErrorCode.ILLEGAL_GENERATION
    assert commit(bench, classic, 0, mine) is ErrorCode.ILLEGAL_GENERATION


def test_what_it_commits_while_it_joins_again_is_taken_where_it_keeps_the_partition() -> None:
    bench, modern = with_modern()
    classic = Classic(bench, cooperative=True)
    bench.settle(modern, classic)
    third = Modern(bench, "third")
    third.go_on()
    bench.wait(1_000)
    assert classic.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    before = classic.generation
    assert classic.ask_to_join().said.generation_id >= before
    bench.settle(modern, third, classic)
    assert commit(bench, classic, before, min(classic.owned)) is ErrorCode.NONE
    assert classic.generation > before
