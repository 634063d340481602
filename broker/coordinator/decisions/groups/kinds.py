"""A group id is that of a classic group or of a consumer group, never of both."""

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.records import group_tombstones
from ottla.broker.coordinator.decisions.groups.group_records import group_tombstone

AnyGroup = ClassicGroup | ConsumerGroup


def has_ended(group: AnyGroup) -> bool:
    """Whether nobody is in it, and nobody is about to be."""
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.is_in(GroupState.EMPTY)


def tombstones(group: AnyGroup) -> list[Record]:
    """Of one that has ended."""
    return group_tombstones(group) if isinstance(group, ConsumerGroup) else [group_tombstone(group.id)]
