"""JoinGroup: who becomes a member, and when a rebalance follows (kraft.md 5.2)."""

from typing import Any

import pytest

from ottla.broker.coordinator.decisions.groups import joining
from ottla.broker.coordinator.decisions.groups.classic_group import GroupState
from ottla.broker.coordinator.decisions.groups.join_request import METADATA_BYTES_MAX
from ottla.broker.coordinator.decisions.groups.settings import MEMBERS_MAX, GroupSettings
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_bench import Bench


def test_a_member_without_an_id_is_given_one_and_joins_with_it() -> None:
    bench = Bench()
    first = bench.join(client_id="app")
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert first.said.member_id == "app-id1"
    joined = bench.join("app-id1")
    assert joined.waits
    bench.wait(3_000)
    assert (joined.said.generation_id, joined.said.leader, joined.said.protocol_name) == (1, "app-id1", "range")


def test_an_old_client_is_a_member_at_once() -> None:
    bench = Bench()
    joined = bench.join(version=3)
    bench.wait(3_000)
    assert joined.said.member_id == "c-id1"


def test_an_id_that_nobody_joins_with_does_not_hold_up_the_rebalance_for_ever() -> None:
    bench = Bench()
    ids = bench.stable(1)
    bench.join()  # and is never seen again
    again = bench.join(ids[0], protocols=("range", "sticky"))
    assert again.waits, "the new one may come in time"
    bench.wait(10_000)
    assert again.said.generation_id == 2


def test_members_of_a_new_group_start_together() -> None:
    bench = Bench()
    early = bench.new_member()[1]
    bench.wait(2_000)
    late = bench.new_member()[1]
    bench.wait(2_000)
    assert early.waits, "somebody came, and more may come"
    bench.wait(2_000)
    assert early.said.generation_id == late.said.generation_id == 1
    assert len(early.said.members) == 2
    assert late.said.members == [], "only the leader assigns"


def test_a_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    bench = Bench()
    first = bench.new_member(rebalance_ms=10_000)[1]
    for _ in range(9):
        bench.wait(1_000)
        bench.new_member(rebalance_ms=10_000)
    assert first.waits
    bench.wait(1_000)
    assert len(first.said.members) == 10


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    assert Bench().join(session_ms=session_ms).error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_an_id_of_another_group_is_unknown() -> None:
    bench = Bench()
    assert bench.join("c-id77").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.group is None


def test_a_member_that_shares_no_protocol_with_the_others_is_refused() -> None:
    bench = Bench()
    bench.stable(1)
    assert bench.join(protocols=("sticky",)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.join(kind="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.join(kind="").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_the_one_that_most_prefer_of_those_that_all_have() -> None:
    bench = Bench()
    members = [
        bench.new_member(protocols=each)[1]
        for each in (("sticky", "range", "odd"), ("range", "sticky"), ("range", "sticky"))
    ]
    bench.wait(6_000)
    assert {each.said.protocol_name for each in members} == {"range"}
    assert members[0].said.members[1].metadata == b"range"


def test_a_full_group_takes_nobody_more() -> None:
    bench = Bench(max_size=2)
    bench.stable(2)
    member_id, refused = bench.new_member()
    assert (member_id, refused.error) == ("", ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert len(bench.group.members) == 2


def test_while_a_rebalance_is_prepared_those_that_are_not_back_keep_nobody_out() -> None:
    bench = Bench(max_size=2)
    ids = bench.stable(2)
    bench.leave(ids[1])
    bench.join(ids[0])
    first_back = bench.group.state
    assert first_back is GroupState.COMPLETING_REBALANCE
    assert bench.join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_who_finds_no_room_with_its_id_does_not_hold_up_those_that_are_back() -> None:
    bench = Bench(max_size=2)
    ids = bench.stable(2)
    back = [bench.join(ids[0], protocols=("range", "sticky"))]
    third_id = bench.join().said.member_id  # there is room while one is not back
    back.append(bench.join(ids[1], protocols=("range", "sticky")))
    assert bench.join(third_id).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [each.said.generation_id for each in back] == [2, 2]


def test_a_new_member_makes_the_others_join_again() -> None:
    bench = Bench()
    ids = bench.stable(2)
    new_id, new = bench.new_member()
    assert bench.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = [bench.join(each) for each in ids]
    assert new.said.generation_id == 2
    assert again[0].said.leader == ids[0]
    assert {each.member_id for each in again[0].said.members} == {*ids, new_id}


def test_who_does_not_join_again_in_time_is_no_member_any_more() -> None:
    bench = Bench()
    ids = bench.stable(2, session_ms=100_000)
    new = bench.new_member()[1]
    bench.join(ids[1])
    bench.wait(60_000)
    assert new.said.generation_id == 2
    assert new.said.leader == ids[1], "the eldest of those that came"
    assert bench.heartbeat(ids[0], 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_follower_that_joins_again_unchanged_is_told_the_generation_there_is() -> None:
    bench = Bench()
    ids = bench.stable(2)
    again = bench.join(ids[1])
    assert (again.said.generation_id, again.said.leader) == (1, ids[0])
    assert bench.group.state is GroupState.STABLE


def test_a_leader_that_joins_again_wants_a_rebalance() -> None:
    bench = Bench()
    ids = bench.stable(2)
    assert bench.join(ids[0]).waits
    assert bench.group.state is GroupState.PREPARING_REBALANCE


def test_a_lost_answer_is_given_again_while_assignments_are_awaited() -> None:
    bench = Bench()
    member_id, _ = bench.new_member()
    bench.wait(3_000)
    again = bench.join(member_id)
    assert again.said.generation_id == 1
    assert len(again.said.members) == 1


def test_a_member_that_asks_twice_has_both_its_requests_answered() -> None:
    bench = Bench()
    member_id, first = bench.new_member()
    second = bench.join(member_id)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.wait(3_000)
    assert second.said.generation_id == 1


def test_a_new_member_whose_client_is_gone_does_not_wait_for_ever() -> None:
    bench = Bench()
    ids = bench.stable(1, session_ms=1_800_000, rebalance_ms=1_800_000)
    new = bench.new_member()[1]
    bench.wait(300_000)
    assert new.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.join(ids[0]).said.generation_id == 2


def test_a_storm_of_joins_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "PENDING_MAX", 50)
    bench = Bench()
    for _ in range(50):
        bench.join()
    assert bench.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    bench.wait(10_000)
    assert bench.join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_storm_of_members_is_bounded() -> None:
    """Those of old clients need no id first. How many there may be is bounded also where the settings name no bound."""
    assert GroupSettings().max_size == GroupSettings().consumer_max_size == MEMBERS_MAX
    bench = Bench(max_size=50)
    assert all(bench.join(version=3).waits for _ in range(50))
    assert bench.join(version=3).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    bench.wait(10_000)
    assert len(bench.group.members) == 50
    assert bench.join(version=3).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_what_members_tell_their_leader_is_bounded() -> None:
    bench = Bench()
    bench.stable(3, metadata=bytes(2 << 20))
    big = bench.new_member(metadata=bytes(3 << 20))[1]
    assert big.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.new_member(metadata=bytes(1 << 20))[1].waits


def test_strategies_of_long_names_or_of_nothing_are_bounded_too() -> None:
    long, many = ["x" * 15_000 + str(number) for number in range(100)], [str(number) for number in range(18_000)]
    for names in (long, many):
        bench = Bench()
        bench.stable(2, protocols=names)
        assert bench.new_member(protocols=names)[1].error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert bench.new_member(protocols=names[:10])[1].waits


def test_the_names_of_clients_and_instances_count_with_what_they_tell() -> None:
    bench = Bench()
    client = "c" * 32_000
    told = [bench.join(version=3, client_id=client, instance=str(each).zfill(32_000)) for each in range(140)]
    assert [each for each in told if not each.waits]
    taken = sum(each.waits for each in told)
    assert 64_000 * taken <= METADATA_BYTES_MAX < 65_000 * (taken + 1)


def test_a_member_that_joins_again_brings_what_it_had_and_not_more() -> None:
    bench = Bench()
    ids = bench.stable(3, metadata=bytes(5 << 19))
    again = bench.join(ids[0], metadata=bytes(5 << 19))
    assert again.waits, "the group is as large as before"
    assert bench.join(ids[1], metadata=bytes(6 << 20)).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_takes_the_room_of_the_one_before_it() -> None:
    bench = Bench()
    bench.join(instance="one", metadata=bytes(5 << 20))
    bench.wait(6_000)
    assert bench.join(instance="one", metadata=bytes(5 << 20)).error is ErrorCode.NONE
    assert bench.join(instance="two", metadata=bytes(5 << 20)).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_client_of_a_long_name_has_an_id_that_can_be_written() -> None:
    assert len(Bench().join(client_id="x" * 32_767).said.member_id) < 2_000


@pytest.mark.parametrize(
    ("error", "more"),
    [
        (ErrorCode.INVALID_GROUP_ID, {"group": "g" * 32_768}),
        (ErrorCode.INVALID_REQUEST, {"instance": "i" * 32_768}),
        (ErrorCode.INVALID_REQUEST, {"kind": "k" * 32_768}),
        (ErrorCode.INVALID_REQUEST, {"protocols": ("range", "p" * 32_768)}),
    ],
)
def test_names_that_no_record_can_hold_are_refused(error: ErrorCode, more: dict[str, Any]) -> None:
    bench = Bench()
    assert bench.join(**more).error is error
    assert not list(bench.shard.groups())


# --- static members (KIP-345) -----------------------------------------------------------------------------------------


def static(bench: Bench, *instances: str, **more: Any) -> list[str]:
    members = [bench.join(instance=each, **more) for each in instances]
    bench.wait(6_000)
    ids = [each.said.member_id for each in members]
    for member_id, instance in zip(ids, instances, strict=True):
        bench.sync(member_id, 1, instance=instance, **{each.replace("-", "_"): each.encode() for each in ids})
    return ids


def test_a_static_member_that_comes_back_takes_its_place_without_a_rebalance() -> None:
    bench = Bench()
    ids = static(bench, "one", "two")
    back = bench.join(instance="two")
    assert back.said.generation_id == 1
    assert back.said.member_id != ids[1]
    assert bench.group.state is GroupState.STABLE
    assert bench.sync(back.said.member_id, 1, instance="two").said.assignment == ids[1].encode()
    assert bench.heartbeat(ids[1], 1, "two") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    bench = Bench()
    static(bench, "one", "two")
    back = bench.join(instance="one")
    assert back.said.skip_assignment
    assert back.said.leader == back.said.member_id
    assert len(back.said.members) == 2


def test_an_older_static_leader_is_told_that_it_does_not_lead() -> None:
    bench = Bench()
    ids = static(bench, "one", "two")
    back = bench.join(instance="one", version=8)
    assert (back.said.leader, back.said.members) == (ids[0], [])


def test_a_static_member_whose_new_id_cannot_be_written_is_the_old_one_still() -> None:
    bench = Bench()
    ids = static(bench, "one", "two")
    bench.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.join(instance="two").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.heartbeat(ids[1], 1, "two") is ErrorCode.NONE


def test_a_static_member_with_other_protocols_makes_a_rebalance_if_another_is_chosen() -> None:
    bench = Bench()
    members = [bench.join(instance=each, protocols=("range", "sticky")) for each in ("one", "two")]
    bench.wait(6_000)
    assert not members[0].waits
    for each, instance in zip(members, ("one", "two"), strict=True):
        bench.sync(each.said.member_id, 1, instance=instance)
    assert bench.join(instance="two", protocols=("sticky",)).waits
    assert bench.group.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_is_absent_keeps_its_place_until_its_session_ends() -> None:
    bench = Bench()
    ids = static(bench, "one", "two")
    new = bench.new_member(session_ms=30_000, rebalance_ms=5_000)[1]
    bench.join(ids[0], instance="one", session_ms=30_000, rebalance_ms=5_000)
    bench.wait(5_000)
    assert new.waits or ids[1] in bench.group.members
    bench.wait(60_000)
    assert ids[1] not in bench.group.members


def test_of_two_processes_with_one_instance_id_the_first_is_fenced() -> None:
    bench = Bench()
    first = bench.join(instance="one")
    second = bench.join(instance="one")
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    bench.wait(6_000)
    assert second.said.generation_id == 1


def test_while_static_members_are_away_that_need_no_time_to_join_nobody_spins() -> None:
    bench = Bench()
    first = bench.join(instance="one", rebalance_ms=1)
    bench.wait(3_000)
    bench.sync(first.said.member_id, 1, instance="one")
    new_id, _ = bench.new_member(rebalance_ms=1)
    bench.leave(new_id)
    reminded = bench.reminded
    bench.wait(60_000)
    assert bench.reminded - reminded < 20
    assert not bench.group.members


def test_a_static_member_that_was_replaced_twice_in_vain_is_the_old_one_still() -> None:
    bench = Bench()
    ids = static(bench, "one", "two")
    bench.commits = False
    replacing = [bench.join(instance="two") for _ in range(2)]
    bench.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert [each.error for each in replacing] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert bench.heartbeat(ids[1], 1, "two") is ErrorCode.NONE
    assert bench.reminders == 2
    assert bench.another().heartbeat(ids[1], 1, "two") is ErrorCode.NONE


def test_of_two_replacements_in_vain_the_first_is_not_who_stays() -> None:
    bench = Bench()
    ids = static(bench, "one", "two")
    bench.commits = False
    bench.join(instance="two")
    bench.commit()
    renamed = bench.join(instance="two")
    bench.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert renamed.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    (first,) = (each for each in bench.group.members if each not in ids)
    assert bench.heartbeat(first, 1, "two") is ErrorCode.NONE


def test_a_static_member_replaced_while_a_rebalance_goes_on_is_part_of_it_with_one_timer() -> None:
    bench = Bench()
    ids = static(bench, "one", "two")
    bench.commits = False
    back = bench.join(instance="two")  # being written
    new = bench.new_member()[1]  # a rebalance begins
    bench.fail()
    assert back.error is ErrorCode.KAFKA_STORAGE_ERROR
    bench.commits = True
    waiting = [bench.join(ids[0], instance="one"), bench.join(ids[1], instance="two")]
    assert {each.said.generation_id for each in (*waiting, new)} == {2}
    assert bench.reminders == 3 + 1  # sessions, and the time to ask for assignments
