"""The consumer groups of a shard: changed by replaying records, in any order in which compaction leaves them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from ottla.broker.coordinator.decisions.effects import Undo
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup, TopicReaders
from ottla.broker.coordinator.decisions.groups.consumer.member import (
    LEAVING_EPOCH,
    NOTHING_HELD,
    ConsumerMember,
    MemberState,
)
from ottla.broker.coordinator.decisions.groups.consumer.records import (
    resolved_of,
    target_of,
    with_assignment,
    with_metadata,
)
from ottla.broker.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from ottla.broker.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from ottla.broker.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from ottla.broker.wire.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from ottla.broker.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.broker.wire.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from ottla.broker.wire.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from ottla.broker.wire.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from ottla.broker.wire.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from ottla.broker.wire.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from ottla.broker.wire.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.broker.wire.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)

_NO_TARGET_EPOCH = -1
GROUPS_A_TURN = 100


class ConsumerGroups:
    """A group is there from its first record until its tombstone."""

    def __init__(self, displace: Callable[[str], Undo]) -> None:
        """``displace``: a group of that id is a consumer group from now on, and no other."""
        self._displace = displace
        self._groups: dict[str, ConsumerGroup] = {}
        self._readers: TopicReaders = {}
        self._follow: dict[type[Any], Callable[[Any, Any], Undo]] = {
            ConsumerGroupMetadataKey: self._follow_epoch,
            ConsumerGroupMemberMetadataKey: self._follow_member,
            ConsumerGroupTargetAssignmentMetadataKey: self._follow_target_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self._follow_target,
            ConsumerGroupCurrentMemberAssignmentKey: self._follow_assignment,
            ConsumerGroupRegularExpressionKey: self._follow_regex,
        }

    def find(self, group_id: str) -> ConsumerGroup | None:
        return self._groups.get(group_id)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._groups.values())

    def forget(self) -> Iterator[None]:
        """All of them, some a step: to free the memory of many takes time."""
        self._readers.clear()
        while self._groups:
            for _ in range(min(GROUPS_A_TURN, len(self._groups))):
                self._groups.popitem()
            yield

    def refresh(self, topics: set[str]) -> None:
        """Those are others than they were: whoever subscribes to one looks at them again."""
        for topic in topics:
            for group_id in self._readers.get(topic, ()):
                self._groups[group_id].is_refresh_due = True

    def contents(self) -> dict[str, tuple[object, ...]]:
        return {group_id: group.contents() for group_id, group in self._groups.items()}

    # --- replay -------------------------------------------------------------------------------------------------------

    def replay(self, key: Any, value: Any) -> Undo:
        """A tombstone of what is not there changes nothing: compaction may have taken away the rest."""
        return self._follow[type(key)](key, value)

    def _follow_epoch(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> Undo:
        if value is None:
            return self._drop(key.group_id)
        group, made = self._find_or_make(key.group_id)
        return _both(made, group.begin_epoch(value.epoch, value.metadata_hash))

    def _follow_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> Undo:
        if value is None:
            known = self._groups.get(key.group_id)
            return known.remove(key.member_id) if known is not None and key.member_id in known.members else _nothing
        group, made = self._find_or_make(key.group_id)
        member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
        return _both(made, group.put(with_metadata(member, value)))

    def _follow_target_epoch(
        self, key: ConsumerGroupTargetAssignmentMetadataKey, value: ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> Undo:
        if value is None:
            known = self._groups.get(key.group_id)
            return known.finish_target(_NO_TARGET_EPOCH, 0) if known is not None else _nothing
        group, made = self._find_or_make(key.group_id)
        return _both(made, group.finish_target(value.assignment_epoch, value.assignment_timestamp))

    def _follow_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> Undo:
        if value is None:
            known = self._groups.get(key.group_id)
            return known.aim(key.member_id, None) if known is not None else _nothing
        group, made = self._find_or_make(key.group_id)
        return _both(made, group.aim(key.member_id, target_of(value)))

    def _follow_assignment(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> Undo:
        if value is None:
            known = self._groups.get(key.group_id)
            member = known.members.get(key.member_id) if known is not None else None
            return known.put(_released(member)) if known is not None and member is not None else _nothing
        group, made = self._find_or_make(key.group_id)
        member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
        return _both(made, group.put(with_assignment(member, value)))

    def _follow_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> Undo:
        if value is None:
            known = self._groups.get(key.group_id)
            return known.resolve(key.regular_expression, None) if known is not None else _nothing
        group, made = self._find_or_make(key.group_id)
        return _both(made, group.resolve(key.regular_expression, resolved_of(value)))

    # --- groups -------------------------------------------------------------------------------------------------------

    def _find_or_make(self, group_id: str) -> tuple[ConsumerGroup, Undo]:
        group = self._groups.get(group_id)
        if group is not None:
            return group, _nothing
        displaced = self._displace(group_id)
        group = self._groups[group_id] = ConsumerGroup(group_id, self._readers)

        def undo() -> None:
            del self._groups[group_id]
            displaced()

        return group, undo

    def _drop(self, group_id: str) -> Undo:
        group = self._groups.pop(group_id, None)
        if group is None:
            return _nothing
        group.hide()
        return partial(self._take_back, group)

    def _take_back(self, group: ConsumerGroup) -> None:
        self._groups[group.id] = group
        group.show()


def _released(member: ConsumerMember) -> ConsumerMember:
    return replace(
        member,
        epoch=LEAVING_EPOCH,
        previous_epoch=LEAVING_EPOCH,
        state=MemberState.STABLE,
        assigned=NOTHING_HELD,
        revoking=NOTHING_HELD,
    )


def _both(first: Undo, second: Undo) -> Undo:
    """Undone the other way round."""
    if first is _nothing:
        return second

    def undo() -> None:
        second()
        first()

    return undo


def _nothing() -> None:
    """Undoes nothing."""
