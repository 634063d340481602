"""SyncGroup, Heartbeat and LeaveGroup of members, and what becomes of those that fall silent (kraft.md 5.2)."""

import pytest

from ottla.broker.coordinator.decisions.groups.classic_group import GroupState
from ottla.broker.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequest
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_bench import Asked, Bench


def joined(bench: Bench, count: int = 2, **more: object) -> list[str]:
    joining = [bench.new_member(**more) for _ in range(count)]
    bench.wait(2 * bench.settings.initial_rebalance_delay_ms)
    return [member_id for member_id, _ in joining]


def test_nobody_learns_of_an_assignment_before_it_is_committed() -> None:
    bench = Bench(commits=False)
    leader, follower = joined(bench)
    early = bench.sync(follower, 1)
    brought = bench.sync(leader, 1, c_id1=b"mine", c_id2=b"yours")
    assert early.waits
    assert brought.waits
    assert not bench.group.is_in(GroupState.STABLE)
    bench.commit()
    assert (brought.said.assignment, early.said.assignment) == (b"mine", b"yours")
    assert bench.group.state is GroupState.STABLE


def test_of_two_assignments_of_a_generation_the_first_counts_here_and_for_another_coordinator() -> None:
    bench = Bench(commits=False)
    leader, follower = joined(bench)
    first = bench.sync(leader, 1, c_id1=b"first")
    again = bench.sync(leader, 1, c_id2=b"second")
    bench.commit()
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert again.said.assignment == b"first"
    other = bench.another()
    late = other.sync(follower, 1)
    other.commit()
    assert late.said.assignment == b""


def test_a_leader_may_assign_again_after_its_assignment_could_not_be_written() -> None:
    bench = Bench(commits=False)
    (leader,) = joined(bench, 1)
    bench.sync(leader, 1, c_id1=b"first")
    bench.fail()
    assert bench.join(leader).said.generation_id == 2
    again = bench.sync(leader, 2, c_id1=b"second")
    bench.commit()
    assert again.said.assignment == b"second"


def test_who_asks_late_is_told_its_assignment_at_once() -> None:
    bench = Bench()
    leader, follower = joined(bench)
    bench.sync(leader, 1, c_id2=b"yours")
    assert bench.sync(follower, 1).said.assignment == b"yours"


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])
def test_an_assignment_that_was_found_in_the_log_is_told_when_it_is_committed(error: ErrorCode) -> None:
    """Another leader may not have it, and give its generation's number again."""
    bench = Bench(commits=False)
    leader, follower = joined(bench)
    bench.sync(leader, 1, c_id2=b"yours")
    other = bench.another()
    again = other.sync(follower, 1)
    assert again.waits
    other.commit(error)
    assert (again.error, again.said.assignment) == (error, b"" if error else b"yours")


def test_who_is_taken_out_while_that_is_awaited_is_told_so() -> None:
    bench = Bench(commits=False)
    leader, follower = joined(bench)
    bench.sync(leader, 1, c_id2=b"yours")
    other = bench.another()
    again = other.sync(follower, 1)
    other.leave(follower)
    other.commit()
    assert again.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_assignment_that_cannot_be_written_makes_another_rebalance() -> None:
    bench = Bench(commits=False)
    leader, follower = joined(bench)
    waiting = [bench.sync(follower, 1), bench.sync(leader, 1, c_id2=b"yours")]
    bench.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert [each.error for each in waiting] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert bench.group.state is GroupState.PREPARING_REBALANCE
    assert bench.join(leader).waits
    assert bench.join(follower).said.generation_id == 2


def test_an_assignment_that_is_committed_after_the_next_rebalance_began_is_nobodys() -> None:
    bench = Bench(commits=False)
    leader, follower = joined(bench)
    waiting = bench.sync(leader, 1, c_id1=b"old")
    bench.leave(follower)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    again = bench.join(leader)
    assert again.said.generation_id == 2
    waiting = bench.sync(leader, 2, c_id1=b"new")
    bench.commit()
    assert waiting.said.assignment == b"new"


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [
        ("c-id1", 2, ErrorCode.ILLEGAL_GENERATION),
        ("c-id1", 0, ErrorCode.ILLEGAL_GENERATION),
        ("c-id9", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_the_generation_are_heard(member_id: str, generation: int, error: ErrorCode) -> None:
    bench = Bench()
    bench.stable()
    assert bench.sync(member_id, generation).error is error
    assert bench.heartbeat(member_id, generation) is error


@pytest.mark.parametrize(("version", "error"), [(4, ErrorCode.NONE), (5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)])
@pytest.mark.parametrize("names", [(None, None), ("consumer", None), (None, "range")])
def test_who_can_say_which_protocol_it_means_has_to(
    version: int, error: ErrorCode, names: tuple[str | None, str | None]
) -> None:
    bench = Bench()
    member_id = bench.stable()[0]
    asked = Asked(version)
    bench.shard.members.sync(asked, SyncGroupRequest("g", 1, member_id, None, *names))
    assert asked.error is error


def test_members_that_do_not_ask_for_their_assignment_are_expelled() -> None:
    bench = Bench()
    leader, follower = joined(bench, session_ms=1_000_000)
    bench.sync(leader, 1, c_id1=b"x")
    bench.wait(60_000)
    assert bench.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_falls_silent_is_removed_and_one_that_is_heard_is_not() -> None:
    bench = Bench()
    ids = bench.stable(2, session_ms=10_000)
    for _ in range(3):
        bench.wait(5_000)
        error = bench.heartbeat(ids[0], 1)
    assert error is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.heartbeat(ids[1], 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_us_does_not_fall_silent() -> None:
    bench = Bench(commits=False)
    leader, follower = joined(bench, session_ms=6_000)
    waiting = bench.sync(leader, 1, c_id1=b"x")
    bench.sync(follower, 1)
    bench.wait(30_000)
    bench.commit()
    assert waiting.said.assignment == b"x"
    bench.wait(6_000)
    assert not bench.group.members, "its session began again with the answer"


def test_a_session_that_is_made_shorter_ends_sooner() -> None:
    bench = Bench()
    ids = bench.stable(1, session_ms=100_000)
    bench.join(ids[0], session_ms=6_000)
    bench.sync(ids[0], 2)
    bench.wait(6_000)
    assert ids[0] not in bench.group.members


def test_the_last_that_leaves_leaves_an_empty_group_whose_generation_goes_on() -> None:
    bench = Bench()
    ids = bench.stable(1)
    bench.leave(ids[0])
    assert (bench.group.state, bench.group.generation) == (GroupState.EMPTY, 2)
    assert bench.another().group.generation == 2
    assert bench.reminders == 0


def test_several_members_leave_with_one_request() -> None:
    bench = Bench()
    ids = bench.stable(3)
    answer = bench.leave(ids[0], "c-id77", ids[1]).said
    assert [each.error_code for each in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert list(bench.group.members) == [ids[2]]
    assert bench.join(ids[2]).said.leader == ids[2]


def test_a_static_member_leaves_by_the_name_of_its_instance() -> None:
    bench = Bench()
    joining = bench.join(instance="one")
    bench.wait(6_000)
    member_id = joining.said.member_id
    fenced = bench.leave(MemberIdentity("c-old", "one")).said.members[0]
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.leave(MemberIdentity("", "two")).said.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.leave(MemberIdentity("", "one")).said.members[0].error_code == ErrorCode.NONE
    assert member_id not in bench.group.members


def test_an_old_client_leaves_alone() -> None:
    bench = Bench()
    ids = bench.stable(1)
    asked = Asked(2)
    bench.shard.members.leave(asked, LeaveGroupRequest("g", ids[0]))
    assert asked.error is ErrorCode.NONE
    again = Asked(2)
    bench.shard.members.leave(again, LeaveGroupRequest("g", ids[0]))
    assert again.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_only_given_can_be_given_back() -> None:
    bench = Bench()
    ids = bench.stable(1)
    pending = bench.join().said.member_id
    again = bench.join(ids[0])
    assert again.waits
    bench.leave(pending)
    assert again.said.generation_id == 2


def test_another_coordinator_goes_on_with_the_members_there_are() -> None:
    bench = Bench()
    ids = bench.stable(2)
    other = bench.another()
    assert other.heartbeat(ids[1], 1) is ErrorCode.NONE
    assert other.sync(ids[1], 1).said.assignment == f"of {ids[1]}".encode()
    assert other.group.leader_id == ids[0]
    other.wait(9_999)
    other.heartbeat(ids[0], 1)
    other.wait(1)
    assert list(other.group.members) == [ids[0]]


def test_whoever_waits_is_told_when_the_coordinator_is_another() -> None:
    bench = Bench(commits=False)
    _, follower = joined(bench)
    syncing = bench.sync(follower, 1)
    joining = bench.new_member()[1]
    list(bench.shard.end(ErrorCode.NOT_COORDINATOR))
    assert (syncing.error, joining.error) == (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
    assert bench.reminders == 0
    bench.commit(ErrorCode.NOT_COORDINATOR)
    assert bench.group is None


def test_a_group_that_had_become_too_large_has_to_choose_again() -> None:
    bench = Bench()
    bench.stable(3)
    bench.settings = type(bench.settings)(max_size=2)
    assert bench.another().group.state is GroupState.PREPARING_REBALANCE
