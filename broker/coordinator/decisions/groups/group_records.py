"""The records of `__consumer_offsets` (kraft.md 5.3)."""

from collections.abc import Mapping
from typing import Any

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.coordinator.decisions.groups.committed_offset import NEVER, CommittedOffset
from ottla.broker.coordinator.decisions.groups.member import Member
from ottla.broker.coordinator.decisions.record_format import Format
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
from ottla.broker.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.broker.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from ottla.broker.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.broker.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.broker.wire.offset_commit_fast import (
    OFFSET_KEY,
    offset_key,
    offset_value,
    read_offset_key,
    read_offset_value,
)

_GROUP_VERSION = 3
"""As Kafka writes it: the highest that is not flexible."""
_OFFSET_VERSION_WITH_EXPIRY = 1
"""The only one that has a time to expire at; it has neither leader epoch nor topic id."""

FORMAT = Format(
    {
        1: (OffsetCommitKey, OffsetCommitValue),
        0: (OffsetCommitKey, OffsetCommitValue),  # of Kafka 0.8, with the same fields
        2: (GroupMetadataKey, GroupMetadataValue),
        3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    }
)


_OFFSET_KIND = OFFSET_KEY.to_bytes(2, "big")


def read(record: Record) -> tuple[Any, Any | None] | None:
    """As `Format.read` has it, and quicker where it is an offset, as nearly all are."""
    if record.meaning is None and record.value is not None and record.key.startswith(_OFFSET_KIND):
        value = read_offset_value(record.value)
        if value is not None:
            offset, leader_epoch, metadata, time_ms, topic_id = value
            committed = CommittedOffset(offset, leader_epoch, metadata, time_ms, topic_id=topic_id)
            return OffsetCommitKey(*read_offset_key(record.key)), committed
    return FORMAT.read(record)


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> Record:
    """The generation, its members, and what each of them was assigned."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader_id,
        current_state_timestamp=group.since_ms,
        members=[
            MemberMetadata(
                each.id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.rebalance_timeout_ms,
                each.session_timeout_ms,
                each.metadata(group.protocol),
                assignments.get(each.id, b""),
            )
            for each in group.members.values()
        ],
    )
    return FORMAT.record(GroupMetadataKey(group.id), value, _GROUP_VERSION)


def group_tombstone(group_id: str) -> Record:
    return FORMAT.record(GroupMetadataKey(group_id), None)


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> Record:
    key = OffsetCommitKey(group_id, topic, partition)
    if committed.expire_time_ms != NEVER:
        return _expiring(key, committed)
    offset, leader_epoch, metadata, time_ms = (
        committed.offset,
        committed.leader_epoch,
        committed.metadata,
        committed.commit_time_ms,
    )
    written = offset_value(offset, leader_epoch, metadata, time_ms, committed.topic_id)
    return Record(offset_key(group_id, topic, partition), written, (key, committed))


def _expiring(key: OffsetCommitKey, committed: CommittedOffset) -> Record:
    value = OffsetCommitValue(
        offset=committed.offset,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_time_ms,
        expire_timestamp=committed.expire_time_ms,
    )
    return FORMAT.record(key, value, _OFFSET_VERSION_WITH_EXPIRY)


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    return FORMAT.record(OffsetCommitKey(group_id, topic, partition), None)


def restored_offset(value: OffsetCommitValue | CommittedOffset) -> CommittedOffset:
    """As its record has it. One that was just written is known."""
    if isinstance(value, CommittedOffset):
        return value
    return CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp, value.topic_id
    )


def restored_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group as its record has it: stable, or empty without members."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    for each in value.members:
        timeout_ms = each.rebalance_timeout if each.rebalance_timeout >= 0 else each.session_timeout
        member = Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            timeout_ms,
            each.session_timeout,
            [(value.protocol or "", each.subscription)],
            each.assignment,
        )
        group.add(member, value.protocol_type)
    if group.members:
        group.state = GroupState.STABLE
        group.leader_id = value.leader
    group.protocol_type = value.protocol_type or None
    group.generation = value.generation
    group.protocol = value.protocol
    return group
