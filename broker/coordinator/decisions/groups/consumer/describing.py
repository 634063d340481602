"""ConsumerGroupDescribe (69): a consumer group with its epochs, and what each member has and is to have."""

from collections.abc import Iterable, Mapping

from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics
from ottla.broker.wire.messages.consumer_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from ottla.runtime.errors import ErrorCode

_CLASSIC, _CONSUMER = 0, 1
"""Which protocol a member speaks."""


def described_consumers(group: ConsumerGroup, assignor: str, topics: GroupTopics) -> DescribedGroup:
    """``assignor``: the one that computes its targets."""
    return DescribedGroup(
        group_id=group.id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
        members=[_member(group, each, topics) for each in group.members.values()],
    )


def no_consumer_group(group_id: str, *, is_other_kind: bool) -> DescribedGroup:
    """Tools ask for a classic group when they are told this."""
    why = "is not a consumer group" if is_other_kind else "not found"
    return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.", group_id)


def _member(group: ConsumerGroup, member: ConsumerMember, topics: GroupTopics) -> Member:
    return Member(
        member.id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.topics),
        member.regex or None,
        _told(_held(member), topics),
        _told(group.targets.get(member.id, {}), topics),
        _CONSUMER if member.classic is None else _CLASSIC,
    )


def _held(member: ConsumerMember) -> Mapping[bytes, Iterable[int]]:
    """What it has not said that it gave up is its own, and nobody else's."""
    return {
        topic_id: {*member.assigned.get(topic_id, ()), *member.revoking.get(topic_id, ())}
        for topic_id in (*member.assigned, *member.revoking)
    }


def _told(partitions: Mapping[bytes, Iterable[int]], topics: GroupTopics) -> Assignment:
    """Of topics that there are."""
    return Assignment(
        [
            TopicPartitions(topic_id, name, sorted(each))
            for topic_id, each in partitions.items()
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
