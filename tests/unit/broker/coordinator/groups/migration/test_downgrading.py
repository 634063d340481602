"""A consumer group whose members are all classic, as a classic group."""

from msgspec.structs import replace

from ottla.broker.coordinator.decisions.groups.classic_group import GroupState
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember
from ottla.broker.coordinator.decisions.groups.embedded_protocol import CONSUMER, read_assignment
from ottla.broker.coordinator.decisions.groups.migration.downgrading import (
    can_be_downgraded,
    common_protocols,
    downgraded,
)
from ottla.broker.wire.messages.consumer_group_member_metadata_value import ClassicMemberMetadata, ClassicProtocol
from tests.unit.broker.coordinator.groups.migration.test_upgrading import T, Topics, U, after, group_of, member

PLENTY = 1_000
NOW_MS = 99


def group_with(*more: ConsumerMember) -> ConsumerGroup:
    """Two classic members, and more."""
    group = after(group_of(member("a", {"t": [0, 1]}, instance="i"), member("b", {"t": [2, 3], "u": [0]})))
    for each in more:
        group.put(each)
    return group


def test_a_group_whose_members_are_all_classic_can_be_a_classic_group() -> None:
    assert can_be_downgraded(group_with(), PLENTY)
    assert not can_be_downgraded(group_with(ConsumerMember("new")), PLENTY)


def test_one_without_members_or_with_too_many_cannot() -> None:
    group = group_with()
    assert not can_be_downgraded(group, 1)
    for each in ("a", "b"):
        group.remove(each)
    assert not can_be_downgraded(group, PLENTY)


def test_one_whose_members_would_not_understand_each_other_cannot() -> None:
    """No node lets them in, but records may say it."""
    group = group_with()
    own = ClassicMemberMetadata(10_000, [ClassicProtocol("own", b"")])
    group.put(replace(group.members["a"], classic=own))
    assert not can_be_downgraded(group, PLENTY)


def test_its_members_are_who_they_were() -> None:
    classic = downgraded(group_with(), Topics(), NOW_MS)
    a = classic.members["a"]
    assert (classic.generation, classic.state, classic.since_ms) == (7, GroupState.STABLE, NOW_MS)
    assert (classic.protocol_type, classic.leader_id, classic.static) == (CONSUMER, None, {"i": "a"})
    assert classic.protocol in ("range", "sticky")
    assert (a.session_timeout_ms, a.rebalance_timeout_ms, a.client_id) == (10_000, 60_000, "client")
    assert [name for name, _ in a.protocols] == ["sticky", "range"]


def test_they_have_what_they_hold_and_not_what_they_were_to_get() -> None:
    """Others may still hold that."""
    group = group_with()
    group.aim("a", {T: frozenset({0, 1, 2})})
    group.put(replace(group.members["b"], assigned={T: {2: 7}, b"gone" * 4: {0: 7}, U: {0: 7}}))
    classic = downgraded(group, Topics(), NOW_MS)
    assert read_assignment(classic.members["a"].assignment).partitions == {"t": {0, 1}}
    assert read_assignment(classic.members["b"].assignment).partitions == {"t": {2}, "u": {0}}


def test_who_missed_the_last_epoch_is_known() -> None:
    group = group_with()
    group.put(replace(group.members["a"], epoch=6))
    classic = downgraded(group, Topics(), NOW_MS)
    assert classic.generation == 7
    assert [each.is_behind for each in classic.members.values()] == [True, False]


def test_the_members_of_a_consumer_group_that_are_classic_have_protocols_in_common() -> None:
    group = group_with(ConsumerMember("new"))
    assert common_protocols(group.members.values()) == {"range", "sticky"}
    assert common_protocols([ConsumerMember("new")]) is None
