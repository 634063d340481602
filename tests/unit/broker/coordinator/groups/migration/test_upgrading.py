"""A classic group of consumers as a consumer group: who holds what, and which groups cannot become one."""

from collections.abc import Mapping, Sequence

import pytest

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.member import MemberState
from ottla.broker.coordinator.decisions.groups.embedded_protocol import written_assignment
from ottla.broker.coordinator.decisions.groups.group_records import FORMAT
from ottla.broker.coordinator.decisions.groups.member import Member
from ottla.broker.coordinator.decisions.groups.migration.upgrading import upgraded
from ottla.broker.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.broker.coordinator.groups.subscribing import written_subscription

T, U = b"t" * 16, b"u" * 16
PLENTY = 1_000


class Topics:
    """t has 4 partitions, u 2."""

    def id_of(self, name: str) -> bytes | None:
        return {"t": T, "u": U}.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return {T: "t", U: "u"}.get(topic_id)

    def partition_count(self, topic_id: bytes) -> int:
        return {T: 4, U: 2}[topic_id]

    def names(self) -> list[str]:
        return ["t", "u"]

    version = 1


def group_of(*members: Member, generation: int = 7, kind: str = "consumer") -> ClassicGroup:
    group = ClassicGroup("g", 0)
    for each in members:
        group.add(each, kind)
    group.generation, group.protocol, group.state = generation, "range", GroupState.STABLE
    return group


def member(
    member_id: str,
    assigned: Mapping[str, Sequence[int]] | None = None,
    *,
    owned: Mapping[str, Sequence[int]] | None = None,
    topics: Sequence[str] = ("t", "u"),
    instance: str | None = None,
    generation: int = 7,
    version: int = 3,
) -> Member:
    metadata = written_subscription(topics, owned, version=version, generation=generation, rack="rack")
    assignment = written_assignment(1, assigned) if assigned is not None else b""
    return Member(
        member_id, instance, "client", "/host", 60_000, 10_000, [("sticky", metadata), ("range", metadata)], assignment
    )


def replayed(records: Sequence[Record]) -> ConsumerGroup:
    groups = ConsumerGroups(lambda group_id: lambda: None)
    for each in records:
        meaning = FORMAT.read(Record(each.key, each.value))
        assert meaning is not None
        if not isinstance(meaning[0], GroupMetadataKey):
            groups.replay(*meaning)
    (group,) = groups
    return group


def after(group: ClassicGroup) -> ConsumerGroup:
    return replayed(upgraded(group, Topics(), PLENTY))


def test_members_go_on_in_their_generation_with_what_they_were_assigned() -> None:
    group = after(group_of(member("a", {"t": [0, 1]}, instance="i"), member("b", {"t": [2, 3], "u": [0]})))
    a, b = group.members["a"], group.members["b"]
    assert (group.assignment_epoch, a.epoch, b.previous_epoch) == (7, 7, 7)
    assert {topic: sorted(held) for topic, held in b.assigned.items()} == {T: [2, 3], U: [0]}
    assert group.targets["a"] == {T: frozenset({0, 1})}
    assert (a.instance_id, a.rack_id, a.client_id, a.client_host) == ("i", "rack", "client", "/host")
    assert a.topics == {"t", "u"}
    assert a.state is MemberState.STABLE
    assert not a.revoking


def test_a_member_keeps_what_it_said_as_a_classic_one() -> None:
    classic = after(group_of(member("a", {"t": [0]}))).members["a"].classic
    assert classic is not None
    assert classic.session_timeout_ms == 10_000
    assert [each.name for each in classic.supported_protocols] == ["sticky", "range"]


def test_the_records_of_the_classic_group_end_with_it() -> None:
    first = upgraded(group_of(member("a", {"t": [0]})), Topics(), PLENTY)[0]
    assert (FORMAT.read(Record(first.key, None)), first.value) == ((GroupMetadataKey("g"), None), None)


@pytest.mark.parametrize("state", [each for each in GroupState if each is not GroupState.EMPTY])
def test_another_target_is_due_whatever_the_group_was_doing(state: GroupState) -> None:
    """A stable one too: it may be between the two rebalances of a cooperative hand-over."""
    classic = group_of(member("a", {"t": [0]}))
    classic.state = state
    group = after(classic)
    assert (group.epoch, group.assignment_epoch) == (8, 7)


def test_the_next_target_is_not_made_to_wait() -> None:
    assert after(group_of(member("a"))).assignment_time_ms == 0


def test_what_a_member_is_giving_up_nobody_gets_before_it_joins_again() -> None:
    """Cooperative: it owned it when it joined, and nobody was assigned it, so it is told to give it up just now."""
    group = after(group_of(member("a", {"t": [0]}, owned={"t": [0, 1]}), member("b", {"t": [2]})))
    a = group.members["a"]
    assert a.state is MemberState.UNREVOKED_PARTITIONS
    assert a.revoking == {T: {1: 7}}
    assert not group.is_free_for("b", T, 1)


def test_of_two_members_that_say_that_they_own_a_partition_the_one_of_the_newer_generation_is_believed() -> None:
    """The other was away when it was given to somebody else, and its place was kept: it is static."""
    group = after(
        group_of(
            member("says no generation", owned={"t": [0, 3]}, version=1),
            member("stale", owned={"t": [0, 1, 2]}, generation=5),
            member("newer", owned={"t": [0, 1]}, generation=6),
        )
    )
    assert group.members["newer"].revoking == {T: {0: 7, 1: 7}}
    assert group.members["stale"].revoking == {T: {2: 7}}, "nobody else says that it has that one"
    assert group.members["says no generation"].revoking == {T: {3: 7}}


def test_what_a_member_owned_once_and_another_was_assigned_is_the_others() -> None:
    group = after(group_of(member("a", {"t": [0]}, owned={"t": [0, 1]}), member("b", {"t": [1]})))
    assert group.members["a"].state is MemberState.STABLE
    assert group.members["b"].assigned == {T: {1: 7}}


def test_a_partition_that_two_were_assigned_has_one_owner() -> None:
    group = after(group_of(member("a", {"t": [0]}), member("b", {"t": [0, 1]})))
    assert group.members["b"].assigned == {T: {1: 7}}


def test_topics_and_partitions_that_are_gone_are_nobodys() -> None:
    group = after(group_of(member("a", {"t": [3, 4], "gone": [0]}, owned={"gone": [1]})))
    assert group.members["a"].assigned == {T: {3: 7}}


def test_members_of_a_group_that_has_no_generation_yet_hold_nothing() -> None:
    group = group_of(member("a"), generation=0)
    group.protocol = None
    made = after(group)
    assert (made.assignment_epoch, made.members["a"].epoch, made.members["a"].assigned) == (1, 1, {})


def refusal(group: ClassicGroup, size_max: int = PLENTY) -> str:
    with pytest.raises(KafkaError) as caught:
        upgraded(group, Topics(), size_max)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    return caught.value.message


def test_a_group_of_another_kind_stays_as_it_is() -> None:
    assert "connect" in refusal(group_of(member("a"), kind="connect"))


def test_a_group_that_is_too_large_stays_as_it_is() -> None:
    assert "group.consumer.max.size=1" in refusal(group_of(member("a"), member("b")), 1)


def test_a_group_whose_members_nobody_can_read_stays_as_it_is() -> None:
    strange = member("a")
    strange.protocols = [("range", b"\0")]
    assert "cannot be read" in refusal(group_of(strange))


def test_a_group_whose_assignor_tells_more_than_partitions_stays_as_it_is() -> None:
    told = member("a")
    told.assignment = b"\0\0\0\0\0\0\0\0\0\1x"
    assert "its assignor" in refusal(group_of(told))
