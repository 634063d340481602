"""The records of consumer groups: 3 the group, 5 its members, 6 and 7 the target, 8 what members hold (kraft.md 5.3)."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.groups.assignors import Assignment
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember, Held, MemberState
from ottla.broker.coordinator.decisions.groups.group_records import FORMAT
from ottla.broker.coordinator.decisions.groups.regexes.resolution import Resolved
from ottla.broker.wire.messages import consumer_group_current_member_assignment_value as current_value
from ottla.broker.wire.messages import consumer_group_target_assignment_member_value as target_value
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


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    return FORMAT.record(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))


def member_record(group_id: str, member: ConsumerMember) -> Record:
    value = ConsumerGroupMemberMetadataValue(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        sorted(member.topics),
        member.regex,
        member.rebalance_timeout_ms,
        member.assignor,
        member.classic,
    )
    return FORMAT.record(ConsumerGroupMemberMetadataKey(group_id, member.id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> Record:
    value = ConsumerGroupTargetAssignmentMemberValue(
        [target_value.TopicPartition(topic_id, sorted(target[topic_id])) for topic_id in sorted(target)]
    )
    return FORMAT.record(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), value)


def target_epoch_record(group_id: str, epoch: int, time_ms: int) -> Record:
    value = ConsumerGroupTargetAssignmentMetadataValue(epoch, time_ms)
    return FORMAT.record(ConsumerGroupTargetAssignmentMetadataKey(group_id), value)


def current_record(group_id: str, member: ConsumerMember) -> Record:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member.epoch, member.previous_epoch, member.state, _written(member.assigned), _written(member.revoking)
    )
    return FORMAT.record(ConsumerGroupCurrentMemberAssignmentKey(group_id, member.id), value)


def regex_record(group_id: str, regex: str, resolved: Resolved) -> Record:
    value = ConsumerGroupRegularExpressionValue(sorted(resolved.topics), resolved.version, resolved.time_ms)
    return FORMAT.record(ConsumerGroupRegularExpressionKey(group_id, regex), value)


def _written(held: Held) -> list[current_value.TopicPartitions]:
    topics = []
    for topic_id in sorted(held):
        partitions = sorted(held[topic_id])
        epochs = [held[topic_id][each] for each in partitions]
        topics.append(current_value.TopicPartitions(topic_id, partitions, epochs))
    return topics


# --- tombstones -------------------------------------------------------------------------------------------------------


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """In Kafka's order: what a member holds is free before it is gone."""
    return [
        FORMAT.record(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        FORMAT.record(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        FORMAT.record(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def regex_tombstone(group_id: str, regex: str) -> Record:
    return FORMAT.record(ConsumerGroupRegularExpressionKey(group_id, regex), None)


def group_tombstones(group: ConsumerGroup) -> list[Record]:
    """Of a group without members."""
    return [
        *(
            FORMAT.record(ConsumerGroupTargetAssignmentMemberKey(group.id, each), None)
            for each in group.targets
            if each not in group.members
        ),
        *(regex_tombstone(group.id, each) for each in group.resolved),
        FORMAT.record(ConsumerGroupTargetAssignmentMetadataKey(group.id), None),
        FORMAT.record(ConsumerGroupMetadataKey(group.id), None),
    ]


# --- what they say ----------------------------------------------------------------------------------------------------


def with_metadata(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )


def with_assignment(member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=_state(value.state),
        assigned=_read(value.assigned_partitions, value.member_epoch),
        revoking=_read(value.partitions_pending_revocation, value.member_epoch),
    )


def _state(number: int) -> MemberState:
    """One that a newer node has written is not known: its member has to begin anew."""
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


def _read(topics: Iterable[current_value.TopicPartitions], epoch: int) -> Held:
    held: dict[bytes, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [epoch] * len(topic.partitions)  # of Kafka before 4.3
        held[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return held


def resolved_of(value: ConsumerGroupRegularExpressionValue) -> Resolved:
    return Resolved(frozenset(value.topics), value.version, value.timestamp)


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}
