"""ListGroups (16), DescribeGroups (15) and DeleteGroups (42), for the groups of one shard."""

from collections.abc import Collection, Iterable

from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.kinds import AnyGroup, has_ended
from ottla.broker.wire.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from ottla.broker.wire.messages.list_groups_response import ListedGroup
from ottla.runtime.errors import ErrorCode

CLASSIC, CONSUMER = "classic", "consumer"
_ERROR_FOR_NO_GROUP_FROM = 6
_DEAD = "Dead"


class GroupFilter:
    """What ListGroups asks for: groups in one of the states and of one of the types; empty means all. The names' case does not matter."""

    def __init__(self, states: Collection[str], types: Collection[str]) -> None:
        self._states = {each.lower() for each in states}
        self._types = {each.lower() for each in types}

    def among(self, groups: Iterable[AnyGroup]) -> list[ListedGroup]:
        states, types = self._states, self._types
        return [
            each
            for each in map(_listed, groups)
            if (not types or each.group_type in types) and (not states or each.group_state.lower() in states)
        ]


def _listed(group: AnyGroup) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(group.id, CONSUMER, group.state.value, CONSUMER)
    return ListedGroup(group.id, group.protocol_type or "", group.state.value, CLASSIC)


def described(group_id: str, group: ClassicGroup | None, version: int, *, is_newer: bool = False) -> DescribedGroup:
    """A group that does not exist, or ``is_newer`` than this request (ConsumerGroupDescribe knows it), is dead; newer clients are told
    that there is none."""
    if group is None:
        dead = DescribedGroup(group_id=group_id, group_state=_DEAD)
        if version >= _ERROR_FOR_NO_GROUP_FROM:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            dead.error_message = f"Group {group_id} {'is not a classic group' if is_newer else 'not found'}."
        return dead
    is_stable = group.is_in(GroupState.STABLE)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                each.id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.metadata(group.protocol) if is_stable else b"",
                each.assignment,
            )
            for each in group.members.values()
        ],
    )


def delete_error(group: AnyGroup | None) -> ErrorCode:
    """Whether it may be deleted."""
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if has_ended(group) else ErrorCode.NON_EMPTY_GROUP
