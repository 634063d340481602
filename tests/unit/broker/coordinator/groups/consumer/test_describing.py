"""What administrators are told of consumer groups: ConsumerGroupDescribe (69), DescribeGroups (15), ListGroups (16)."""

from ottla.broker.coordinator.decisions.groups.describing import GroupFilter, described
from ottla.broker.wire.messages.consumer_group_describe_response import Assignment, DescribedGroup, TopicPartitions
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import Member, T, beat, join, settle
from tests.unit.broker.coordinator.groups.group_bench import Bench
from tests.unit.broker.coordinator.groups.subscribing import written_subscription


def described_of(bench: Bench) -> DescribedGroup:
    return bench.shard.described_consumers("g")


def held(*partitions: int) -> Assignment:
    return Assignment([TopicPartitions(T, "t", list(partitions))] if partitions else [])


def test_a_group_is_described_with_its_epochs_and_each_member_with_what_it_has_and_is_to_have() -> None:
    bench = Bench()
    one, two = Member(bench, "one", instance_id="i"), Member(bench, "two")
    settle([one])
    two.join(server_assignor="range", rack_id="r")
    told = described_of(bench)
    assert (told.error_code, told.group_state, told.assignor_name) == (0, "Reconciling", "range")
    assert (told.group_epoch, told.assignment_epoch) == (2, 2)
    first, second = told.members
    assert (first.member_id, first.instance_id, first.member_epoch, first.client_host) == ("one", "i", 1, "/10.0.0.1")
    assert (first.assignment, first.target_assignment) == (held(0, 1, 2, 3), held(0, 1))
    assert (second.rack_id, second.assignment, second.target_assignment) == ("r", held(), held(2, 3))
    assert (second.subscribed_topic_names, second.subscribed_topic_regex, second.member_type) == (["t"], None, 1)
    settle([one, two])
    assert described_of(bench).group_state == "Stable"


def test_a_classic_member_of_it_is_told_to_be_one() -> None:
    bench = Bench()
    settle([Member(bench, "one")])
    bench.join("m", metadata=written_subscription(["t"]))
    assert [each.member_type for each in described_of(bench).members] == [1, 0]


def test_what_a_member_has_not_given_up_yet_is_told_as_its_own() -> None:
    """It reads that, and nobody else does: administrators would look for who reads it in vain."""
    bench = Bench()
    one = Member(bench, "one")
    settle([one])
    join(bench, "two")
    beat(bench, "one", one.epoch)
    first, second = described_of(bench).members
    assert (first.assignment, first.target_assignment) == (held(0, 1, 2, 3), held(0, 1))
    assert second.assignment == held()
    beat(bench, "one", one.epoch, owned={T: {0, 1}})
    assert described_of(bench).members[0].assignment == held(0, 1)


def test_a_topic_that_a_member_gives_up_whole_is_told_until_it_has() -> None:
    bench = Bench()
    one = Member(bench, "one", ("t", "u"))
    settle([one])
    beat(bench, "one", one.epoch, subscribed_topic_names=["t"])
    (told,) = described_of(bench).members
    assert [each.topic_name for each in told.assignment.topic_partitions] == ["t", "u"]


def test_topics_that_are_gone_are_left_out() -> None:
    bench = Bench()
    settle([Member(bench, "one")])
    del bench.topic_ids["t"]
    (member,) = described_of(bench).members
    assert member.assignment == held()


def test_a_group_that_is_none_of_the_kind_is_not_found_and_tools_ask_for_the_other_kind() -> None:
    bench = Bench()
    assert (described_of(bench).error_code, described_of(bench).error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g not found.",
    )
    bench.stable(1)
    assert described_of(bench).error_message == "Group g is not a consumer group."
    other = Bench()
    settle([Member(other, "one")])
    classic = described("g", other.shard.find("g"), 6, is_newer=True)
    assert (classic.error_code, classic.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a classic group.",
    )
    assert described("g", None, 5, is_newer=True).group_state == "Dead"


def test_groups_are_listed_by_type_and_state_in_any_case() -> None:
    bench = Bench()
    settle([Member(bench, "one")])
    bench.join(group="classic")
    for states, types, found in [
        ([], [], {"g", "classic"}),
        ([], ["CONSUMER"], {"g"}),
        ([], ["Classic"], {"classic"}),
        (["stable"], [], {"g"}),
        (["EMPTY"], ["consumer"], set()),
        ([], ["share"], set()),
    ]:
        assert {each.group_id for each in GroupFilter(states, types).among(bench.shard.all())} == found
    (told,) = GroupFilter(["Stable"], []).among(bench.shard.all())
    assert (told.protocol_type, told.group_type) == ("consumer", "consumer")
